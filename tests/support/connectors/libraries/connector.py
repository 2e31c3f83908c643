"""Published libraries on their own, unmodified; none of these operations mentions a frame."""

import hashlib
import io
import os

from aileron_connector import ExternalApiError, hosts, op, run, transports

os.environ["HOME"] = "/tmp"  # stripe keeps a number there; a jail has no home
KEY = transports.placeholder("api_key")


def origin():
    """Return the URL of the only service."""
    return hosts()[0].url


# slack_sdk, on urllib.request


@op
def slack_post(channel: str, text: str):
    """Post a message. Return its time stamp and its author."""
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError

    client = WebClient(token=KEY, base_url=origin() + "/slack/")
    try:
        answer = client.chat_postMessage(channel=channel, text=text)
    except SlackApiError as error:
        raise ExternalApiError(error.response["error"], status=error.response.status_code) from error
    return {"ts": answer["ts"], "whoami": client.auth_test()["user"]}


# stripe, on requests


@op
def stripe_customers():
    """Return all customers' addresses, page by page."""
    import stripe

    client = stripe.StripeClient(KEY, base_addresses={"api": origin() + "/stripe"}, http_client=stripe.RequestsClient())
    page = client.v1.customers.list({"limit": 2})
    return [customer.email for customer in page.auto_paging_iter()]


@op
def stripe_pay(amount: int):
    """Begin a payment."""
    import stripe

    client = stripe.StripeClient(KEY, base_addresses={"api": origin() + "/stripe"}, max_network_retries=0)
    try:
        return {"id": client.v1.payment_intents.create({"amount": amount, "currency": "eur"}).id}
    except stripe.CardError as error:
        raise ExternalApiError(error.user_message, status=error.http_status, details={"code": error.code}) from error


# notion_client, on httpx


@op
def notion_page(page: str):
    """Retrieve one page."""
    from notion_client import APIResponseError, Client

    with Client(auth=KEY, base_url=origin() + "/notion", retry=False) as client:
        try:
            return client.pages.retrieve(page)
        except APIResponseError as error:
            raise ExternalApiError(str(error), status=error.status) from error


@op
def notion_pages(pages: int):
    """Retrieve several pages at once."""
    import asyncio

    from notion_client import AsyncClient

    async def all_of_them():
        async with AsyncClient(auth=KEY, base_url=origin() + "/notion") as client:
            return await asyncio.gather(*(client.pages.retrieve(str(number)) for number in range(pages)))

    return [page["id"] for page in asyncio.run(all_of_them())]


# The libraries below them


@op
def download(library: str, path: str):
    """Read a response piece by piece. Return the numbers of pieces and bytes, and the digest."""
    url, digest, sizes = origin() + path, hashlib.sha256(), []
    for piece in _pieces(library, url):
        digest.update(piece)
        sizes.append(len(piece))
    return {"pieces": len(sizes), "bytes": sum(sizes), "sha256": digest.hexdigest()}


def _pieces(library, url):
    if library == "http.client":
        import http.client
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=10)
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        while piece := answer.read1():
            yield piece
        connection.close()
    elif library == "urllib":
        import urllib.request

        with urllib.request.urlopen(url, timeout=10) as answer:
            while piece := answer.read(65536):
                yield piece
    elif library == "urllib3":
        import urllib3

        yield from urllib3.PoolManager().request("GET", url, preload_content=False).stream(65536)
    elif library == "requests":
        import requests

        with requests.get(url, stream=True, timeout=10) as answer:
            yield from answer.iter_content(65536)
    elif library == "httpx":
        import httpx

        with httpx.stream("GET", url) as answer:
            yield from answer.iter_raw()
    else:
        raise ValueError(library)


@op
def upload(library: str, pieces: int, with_length: bool = False):
    """Send a body that is made piece by piece."""
    url, size = origin() + "/upload", 100_000
    made = (bytes([number % 251]) * size for number in range(pieces))
    headers = {"Content-Length": str(pieces * size)} if with_length else {}
    if library == "http.client":
        import http.client
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=10)
        connection.request("POST", parts.path, body=made, headers=headers, encode_chunked=not with_length)
        return connection.getresponse().read().decode()
    if library == "requests":
        import requests

        data = io.BytesIO(b"".join(made)) if with_length else made
        return requests.post(url, data=data, timeout=10).text
    import httpx

    return httpx.post(url, content=made, headers=headers).text


@op
def follow(library: str, path: str):
    """Follow redirects as the library does."""
    if library == "urllib":
        import urllib.request

        with urllib.request.urlopen(origin() + path, timeout=10) as answer:
            return {"status": answer.status, "body": answer.read().decode(), "url": answer.url.removeprefix(origin())}
    if library == "requests":
        import requests

        with requests.Session() as session:
            answer = session.get(origin() + path, timeout=10, headers={"Authorization": f"Bearer {KEY}"})
            return {
                "status": answer.status_code,
                "body": answer.text,
                "url": answer.url.removeprefix(origin()),
                "hops": len(answer.history),
                "cookies": session.cookies.get_dict(),
            }
    import httpx

    with httpx.Client(follow_redirects=True, headers={"Authorization": f"Bearer {KEY}"}) as client:
        answer = client.get(origin() + path)
        return {
            "status": answer.status_code,
            "body": answer.text,
            "url": str(answer.url).removeprefix(origin()),
            "hops": len(answer.history),
            "cookies": dict(client.cookies),
        }


@op
def give_up(library: str, path: str):
    """Return the name of the library's own error for a failure; with `unhandled`, do not catch it."""
    if library == "requests unhandled":
        import requests

        return requests.get(origin() + path, timeout=10).text
    timeout_s = 0.2 if path == "/silent" else 10
    if library == "requests":
        import requests

        try:
            return requests.get(origin() + path, timeout=timeout_s).text
        except requests.RequestException as error:
            return type(error).__name__
    import httpx

    try:
        return httpx.get(origin() + path, timeout=timeout_s).text
    except httpx.HTTPError as error:
        return type(error).__name__


@op
def retry():
    """Retry with urllib3's own means at a service that fails twice."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    with requests.Session() as session:
        session.mount("https://", HTTPAdapter(max_retries=Retry(total=3, status_forcelist=[503], backoff_factor=0)))
        return session.get(origin() + "/flaky", timeout=10).text


@op
def reuse(times: int):
    """Send many requests in one session: HEAD, GET, POST in turn."""
    import requests

    statuses = []
    with requests.Session() as session:
        for number in range(times):
            method = ("HEAD", "GET", "POST")[number % 3]
            statuses.append(session.request(method, origin() + "/small", timeout=10).status_code)
    return statuses


@op
def key_in(place: str):
    """Put a placeholder where a library might put it."""
    import requests

    if place == "basic":
        answer = requests.get(origin() + "/auth", auth=("user", KEY), timeout=10)
    elif place == "query":
        answer = requests.get(origin() + "/auth", params={"a": "1", "key": KEY, "b": "2"}, timeout=10)
    elif place == "field":
        answer = requests.get(origin() + "/auth", headers={"X-Api-Key": KEY}, timeout=10)
    elif place == "declared":
        transports.use("api_key")
        answer = requests.get(origin() + "/auth", timeout=10)
    elif place == "own":
        transports.use("api_key")
        answer = requests.get(origin() + "/auth", headers={"Authorization": "Bearer mine"}, timeout=10)
    elif place == "body":
        answer = requests.post(origin() + "/auth", data={"token": KEY}, timeout=10)
    elif place == "path":
        answer = requests.get(f"{origin()}/auth/{KEY}/me", timeout=10)
    else:
        answer = requests.get(origin() + "/auth", timeout=10)
    return answer.json()


@op
def reach(url: str):
    """Request any URL."""
    import requests

    return requests.get(url, timeout=10).status_code


if __name__ == "__main__":
    run()
