"""httpx as it is, at a service that asks for a client certificate. The result has every frame that passed.

With a word it waits in between, until the test has looked at its memory, and removes the file /tmp/open.
"""

import base64
import os
import time

FRAMES_IN, FRAMES_OUT = 3, 4
heard, told = bytearray(), bytearray()


def keep_frames():
    """From the first on: the SDK reads and writes them by these two calls."""
    read, writev = os.read, os.writev

    def kept_read(fd, size):
        data = read(fd, size)
        if fd == FRAMES_IN:
            heard.extend(data)
        return data

    def kept_writev(fd, parts):
        written = writev(fd, parts)
        if fd == FRAMES_OUT:
            told.extend(b"".join(parts)[:written])
        return written

    os.read, os.writev = kept_read, kept_writev


keep_frames()

import httpx  # noqa: E402

from aileron_connector import ExternalApiError, hosts, op, run, transports  # noqa: E402


def origin(number=0):
    """Of a granted host."""
    return hosts()[number].url


def wait(word):
    """With what has been read in memory."""
    with open("/tmp/open", "w") as file:
        file.write(word)
    until = time.monotonic() + 20
    while os.path.exists("/tmp/open"):
        if time.monotonic() > until:
            raise TimeoutError("nobody looked")
        time.sleep(0.01)


def told_by(answer):
    """What the service says; a refusal in its own words."""
    if answer.status_code != 200:
        raise ExternalApiError(answer.text, status=answer.status_code)
    return answer.json()


@op
def who(word: str, host: int = 0):
    """Whom the service takes this for: twice, by one client."""
    transports.use("mtls", hosts=[host.host for host in hosts()])
    with httpx.Client(base_url=origin(host)) as client:
        first = told_by(client.get(f"/{word}"))
        if word.startswith("wait"):
            wait(word)
        second = told_by(client.get(f"/{word}"))
    frames = {"heard": base64.b64encode(heard).decode(), "told": base64.b64encode(told).decode()}
    return {"first": first, "second": second, **frames}


@op
def anonymous():
    """The same, and nobody names a credential."""
    return told_by(httpx.get(f"{origin()}/anonymous"))


@op
def with_token():
    """With a token of the connector's own beside the certificate."""
    transports.use("mtls")
    return httpx.get(f"{origin()}/token", headers={"Authorization": "Bearer of-the-connector"}).json()


if __name__ == "__main__":
    run()
