"""Published client libraries end to end: packed unmodified into a connector, in the jail, to a fake of their service."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import DaemonHome, daemon_home
from tests.support.libraries import pack
from tests.support.upstream import CLOSE, Authority, Seen, Upstream, answer, chunked_answer

pytestmark = pytest.mark.jail
SECRET = "sk-live-0123456789abcdef"
CONNECTOR = "github://aileron-tests/libraries"
SOURCE = Path(__file__).resolve().parents[1] / "support" / "connectors" / "libraries"
PACKAGES = (
    "slack_sdk", "stripe", "notion_client",
    "requests", "urllib3", "charset_normalizer", "idna", "certifi", "httpx", "httpcore", "h11", "anyio", "typing_extensions",
)  # fmt: skip
BODY = bytes(range(256)) * 4096  # 1 MiB
OPERATIONS = {
    "slack_post": ("channel:string", "text:string"),
    "stripe_customers": (),
    "stripe_pay": ("amount:integer",),
    "notion_page": ("page:string",),
    "notion_pages": ("pages:integer",),
    "download": ("library:string", "path:string"),
    "upload": ("library:string", "pieces:integer", "with_length:boolean?"),
    "follow": ("library:string", "path:string"),
    "give_up": ("library:string", "path:string"),
    "retry": (),
    "reuse": ("times:integer",),
    "key_in": ("place:string",),
    "reach": ("url:string",),
}


class Service:
    """The fakes of all services, selected by path. They know which request has the key."""

    def __init__(self) -> None:
        self.flaky = itertools.count()
        self.silence = threading.Event()
        self.together = threading.Barrier(4, timeout=10)

    def __call__(self, seen: Seen) -> bytes | Iterable[bytes]:
        path, _, query = seen.target.partition("?")
        area, _, rest = path.removeprefix("/").partition("/")
        serve: Callable[..., bytes | Iterable[bytes]] = getattr(self, f"at_{area.replace('-', '_')}")
        return serve(seen, rest, urllib.parse.parse_qs(query))

    def at_slack(self, seen: Seen, rest: str, _query: Any) -> bytes:
        assert seen.values("authorization") == [f"Bearer {SECRET}"]
        if rest == "auth.test":
            return _json({"ok": True, "user": "mira"})
        assert rest == "chat.postMessage"
        sent = dict(urllib.parse.parse_qsl(seen.body.decode()))
        sent = sent or json.loads(seen.body)
        if sent["channel"] != "#general":
            return _json({"ok": False, "error": "channel_not_found"})
        return _json({"ok": True, "ts": "1700000000.000100", "message": {"text": sent["text"]}})

    def at_stripe(self, seen: Seen, rest: str, query: dict[str, list[str]]) -> bytes:
        assert seen.values("authorization") == [f"Bearer {SECRET}"]
        if rest == "v1/customers":
            start = int(query.get("starting_after", ["c-0"])[0].removeprefix("c-"))
            data = [_customer(start + 1), _customer(start + 2)]
            return _json({"object": "list", "url": "/v1/customers", "has_more": not start, "data": data})
        if b"amount=4200" in seen.body:
            return _json({"object": "payment_intent", "id": "pi_1", "amount": 4200})
        declined = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
        return _json({"error": declined}, status="402 Payment Required")

    def at_notion(self, seen: Seen, rest: str, _query: Any) -> bytes:
        assert seen.values("authorization") == [f"Bearer {SECRET}"]
        page = rest.rpartition("/")[2]
        if page == "missing":
            gone = {"object": "error", "status": 404, "code": "object_not_found", "message": "Could not find page."}
            return _json(gone, status="404 Not Found")
        if page.isdigit():
            self.together.wait()  # until four requests are here at once
        return _json({"object": "page", "id": page})

    def at_big(self, _seen: Seen, _rest: str, _query: Any) -> bytes:
        return answer(BODY)

    def at_pieces(self, _seen: Seen, _rest: str, _query: Any) -> Iterable[bytes]:
        return chunked_answer(BODY[at : at + 100_000] for at in range(0, len(BODY), 100_000))

    def at_broken(self, _seen: Seen, _rest: str, _query: Any) -> Iterable[bytes]:
        yield answer(BODY)[:1000]
        yield CLOSE

    def at_silent(self, _seen: Seen, _rest: str, _query: Any) -> Iterable[bytes]:
        self.silence.wait(10)
        yield answer(b"late")

    def at_upload(self, seen: Seen, _rest: str, _query: Any) -> bytes:
        framing = "chunked" if seen.values("transfer-encoding") else "length"
        return answer(f"{framing} {len(seen.body)} {hashlib.sha256(seen.body).hexdigest()}".encode())

    def at_hop(self, seen: Seen, rest: str, _query: Any) -> bytes:
        left = int(rest)
        if left:
            return answer(b"", f"Location: /hop/{left - 1}", f"Set-Cookie: hop{left}=1", status="302 Found")
        return answer(f"there, with {len(seen.values('cookie'))} cookie field and {_who(seen)}".encode())

    def at_elsewhere(self, _seen: Seen, _rest: str, _query: Any) -> bytes:
        return answer(b"", "Location: https://undeclared.example.com/steal", status="302 Found")

    def at_flaky(self, _seen: Seen, _rest: str, _query: Any) -> bytes:
        return answer(b"third time") if next(self.flaky) == 2 else answer(b"", status="503 Service Unavailable")

    def at_small(self, seen: Seen, _rest: str, _query: Any) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" if seen.method == "HEAD" else answer(b"small")

    def at_auth(self, seen: Seen, _rest: str, query: Any) -> bytes:
        return _json({"who": _who(seen), "query": query, "fields": [n for n, _ in seen.fields if n.startswith("X-")]})


def _who(seen: Seen) -> str:
    return {(f"Bearer {SECRET}",): "the key", (): "nobody"}.get(tuple(seen.values("authorization")), "somebody")


def _customer(number: int) -> dict[str, Any]:
    return {"object": "customer", "id": f"c-{number}", "email": f"c{number}@example.com"}


def _json(value: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(value).encode(), "Content-Type: application/json", status=status)


@pytest.fixture(scope="module")
def service() -> Service:
    """Provide the fakes that the server responds with."""
    return Service()


@pytest.fixture(scope="module")
def server(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Upstream, Authority]]:
    """Start one server with TLS for all services."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    with Upstream(service, authority.server_context("localhost")) as upstream:
        yield upstream, authority
        service.silence.set()


@pytest.fixture(scope="module")
def home(server: tuple[Upstream, Authority], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """Provide a home with the connector, its key, and an action for each operation."""
    upstream, authority = server
    source = tmp_path_factory.mktemp("connector") / "libraries"
    shutil.copytree(SOURCE, source)
    for package in PACKAGES:
        pack(package, source)
    with daemon_home() as made:
        made.reach(f"localhost:{upstream.port}", ca_file=authority.ca_file)
        made.install(source, f"localhost:{upstream.port}")
        made.unlock(SECRET.encode())
        made.bind(CONNECTOR, "api_key/fake/me")
        for op, inputs in OPERATIONS.items():
            made.add_probe_action(op, *inputs, connector=CONNECTOR)
        yield made


def done(home: DaemonHome, op: str, **args: Any) -> Any:
    """Run an operation that must succeed, and return its output, in which the key is nowhere."""
    found = home.run(op.replace("_", "-"), args)
    assert found.status == 200, found.body
    assert SECRET not in str(found.body)
    return found.body["result"]


def test_slack_sdk_posts_and_raises_its_own_errors(home: DaemonHome) -> None:
    """The library uses urllib.request: it has a placeholder, the service gets the real token, and a refusal is a
    SlackApiError.
    """
    posted = done(home, "slack_post", channel="#general", text="hello")
    refused = home.failed("slack_post", channel="#nowhere", text="hello")

    assert posted == {"ts": "1700000000.000100", "whoami": "mira"}
    assert (refused["class"], refused["message"]) == ("external_api_error", "channel_not_found")


def test_stripe_pages_through_lists_and_raises_its_own_errors(home: DaemonHome) -> None:
    """The library uses requests: auto-paging over two requests, a form body, and a declined card as stripe.CardError."""
    customers = done(home, "stripe_customers")
    paid = done(home, "stripe_pay", amount=4200)
    declined = home.failed("stripe_pay", amount=1)

    assert customers == [f"c{number}@example.com" for number in range(1, 5)]
    assert paid == {"id": "pi_1"}
    assert declined["details"]["code"] == "card_declined"
    assert (declined["class"], declined["details"]["status"]) == ("external_api_error", 402)


def test_notion_client_reads_a_page_and_raises_its_own_errors(home: DaemonHome) -> None:
    """The library uses httpx: a page is read, and a 404 is an APIResponseError."""
    page = done(home, "notion_page", page="p-1")
    missing = home.failed("notion_page", page="missing")

    assert page["id"] == "p-1"
    assert missing["details"]["status"] == 404


def test_asynchronous_requests_of_notion_client_run_concurrently(home: DaemonHome) -> None:
    """The service waits for four requests before it responds to any: an event loop that sent one at a time would hang."""
    assert done(home, "notion_pages", pages=4) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("path", ["/big", "/pieces"])
@pytest.mark.parametrize("library", ["http.client", "urllib", "urllib3", "requests", "httpx"])
def test_a_response_is_streamed(home: DaemonHome, library: str, path: str) -> None:
    """Every byte arrives in more than one piece, with a length or chunked."""
    found = done(home, "download", library=library, path=path)

    assert found["sha256"] == hashlib.sha256(BODY).hexdigest()
    assert found["pieces"] > 1


@pytest.mark.parametrize("with_length", [False, True], ids=["chunked", "length"])
@pytest.mark.parametrize("library", ["http.client", "requests", "httpx"])
def test_an_upload_is_streamed(home: DaemonHome, library: str, with_length: bool) -> None:
    """The body is a generator that yields more than one frame; the library chooses how to frame it."""
    body = b"".join(bytes([number % 251]) * 100_000 for number in range(15))

    found = done(home, "upload", library=library, pieces=15, with_length=with_length)

    assert found == f"{'length' if with_length else 'chunked'} {len(body)} {hashlib.sha256(body).hexdigest()}"


def test_each_redirect_that_a_library_follows_is_a_request_of_its_own_at_egress(
    home: DaemonHome, server: tuple[Upstream, Authority]
) -> None:
    """Ten redirects are eleven requests at egress; cookies are collected, and the key is sent while the host stays the same."""
    for library in ("requests", "httpx"):
        before = len(server[0].requests)
        found = done(home, "follow", library=library, path="/hop/10")

        assert (found["status"], found["url"], found["hops"]) == (200, "/hop/0", 10)
        assert found["body"] == "there, with 1 cookie field and the key"
        assert len(found["cookies"]) == 10
        assert len(server[0].requests) - before == 11
    assert done(home, "follow", library="urllib", path="/hop/9")["url"] == "/hop/0"


def test_a_redirect_to_an_undeclared_host_is_denied(home: DaemonHome) -> None:
    """The library follows the redirect, and the next request is checked by the same rules as the first."""
    for library in ("requests", "httpx", "urllib"):
        error = home.failed("follow", library=library, path="/elsewhere")

        assert (error["class"], error["requested"]) == ("capability_denied", "network:undeclared.example.com:443")


@pytest.mark.parametrize(
    ("library", "path", "words"),
    [
        ("requests", "/silent", "ReadTimeout"),
        ("httpx", "/silent", "ReadTimeout"),
        ("requests", "/broken", "ChunkedEncodingError"),
        ("httpx", "/broken", "ReadError"),
    ],
)
def test_a_network_failure_raises_the_librarys_own_error(home: DaemonHome, library: str, path: str, words: str) -> None:
    """The library's timeouts apply, and a truncated response is an error."""
    assert done(home, "give_up", library=library, path=path) == words


def test_a_network_failure_that_the_connector_does_not_handle_keeps_its_failure_class(home: DaemonHome) -> None:
    """The library requests wraps the error twice; the caller still sees a network_error with its phase."""
    error = home.failed("give_up", library="requests unhandled", path="/broken")

    assert (error["class"], error["details"]["phase"]) == ("network_error", "exchange")


def test_a_library_retries_by_its_own_rules(home: DaemonHome) -> None:
    """The service sends 503 twice to urllib3's Retry, then a response."""
    assert done(home, "retry") == "third time"


def test_a_requests_session_uses_one_connection_for_many_requests(
    home: DaemonHome, server: tuple[Upstream, Authority]
) -> None:
    """An unread rest of a response would close the connection. Thirty requests in turn, HEAD included, share it."""
    before = server[0].connections
    found = home.run("reuse", {"times": 30})
    assert found.body["result"] == [200] * 30, found.body

    ends = [event for event in home.events(found.body["audit_id"]) if event["type"] == "egress.finished"]
    assert len(ends) == 30
    assert [event for event in ends if "class" in event] == []
    assert server[0].connections - before <= 1


@pytest.mark.parametrize(
    ("place", "who"),
    [("basic", "the key"), ("query", "the key"), ("field", "the key"), ("declared", "the key"), ("none", "nobody")],
)
def test_a_placeholder_is_replaced_by_the_credential(home: DaemonHome, place: str, who: str) -> None:
    """A placeholder works in every place where a library puts it; without one no key is sent."""
    found = done(home, "key_in", place=place)

    assert found["who"] == who
    assert found["fields"] == []
    assert found["query"] == ({"a": ["1"], "b": ["2"]} if place == "query" else {})


@pytest.mark.parametrize(
    ("op", "args", "failure_class", "words"),
    [
        ("follow", {"library": "requests", "path": "/hop/40"}, "connector_runtime_error", "TooManyRedirects"),
        ("key_in", {"place": "own"}, "connector_runtime_error", "Authorization"),
        ("key_in", {"place": "body"}, "connector_runtime_error", "transports.use"),
        ("key_in", {"place": "path"}, "capability_denied", "set path"),
    ],
    ids=["more redirects than requests follows", "a field of its own", "a key in a body", "a key in a path"],
)
def test_a_library_that_follows_too_many_redirects_or_misplaces_its_key_fails_with_the_reason(
    home: DaemonHome, op: str, args: dict[str, str], failure_class: str, words: str
) -> None:
    """The library requests stops at thirty redirects. A second Authorization field of the library's own, or a key in a body, is
    an error, and nothing is sent; so it is for a key in a path, since the manifest puts the key in a header.
    """
    error = home.failed(op, **args)

    assert error["class"] == failure_class
    assert words in error["message"]


def test_a_librarys_request_to_an_undeclared_host_is_denied(home: DaemonHome) -> None:
    """An undeclared host is denied by name; the declared one is reached."""
    error = home.failed("reach", url="https://undeclared.example.com/")

    assert (error["class"], error["requested"]) == ("capability_denied", "network:undeclared.example.com:443")
    assert done(home, "reach", url="https://" + str(error["granted"][0]).removeprefix("network:") + "/small") == 200
