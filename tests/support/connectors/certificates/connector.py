"""httpx, unmodified, at a service that asks for a client certificate. The result has every frame that passed.

A word makes it wait between two requests, until the test has read its memory and removes the file /tmp/open.
"""

import httpx
import kept_frames

from aileron_connector import ExternalApiError, hosts, op, run, transports


def origin(number=0):
    """Return the URL of a granted host."""
    return hosts()[number].url


def told_by(answer):
    """Return the service's response; raise ExternalApiError with its text if it refuses."""
    if answer.status_code != 200:
        raise ExternalApiError(answer.text, status=answer.status_code)
    return answer.json()


@op
def who(word: str, host: int = 0):
    """Ask the service twice, by one client, which subject it sees."""
    transports.use("mtls", hosts=[host.host for host in hosts()])
    with httpx.Client(base_url=origin(host)) as client:
        first = told_by(client.get(f"/{word}"))
        if word.startswith("wait"):
            kept_frames.wait(word)
        second = told_by(client.get(f"/{word}"))
    return {"first": first, "second": second, **kept_frames.passed()}


@op
def anonymous():
    """Send a request without naming a credential."""
    return told_by(httpx.get(f"{origin()}/anonymous"))


@op
def with_token():
    """Send a token of the connector's own beside the certificate."""
    transports.use("mtls")
    return httpx.get(f"{origin()}/token", headers={"Authorization": "Bearer of-the-connector"}).json()


if __name__ == "__main__":
    run()
