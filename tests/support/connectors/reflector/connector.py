"""The reflector connector: one request with the credential, and its response returned by every way out of a connector."""

import os
import socket
import sys
import tempfile

from aileron_connector import ExternalApiError, NetworkError, Refused, audit, hosts, http, log, op, progress, run


def fetch(path, method="GET", url=None, headers=(), credential="basic"):
    """Return the whole response as one text, with no byte lost."""
    with http.request(method, url or hosts()[0].url + path, headers=list(headers), credential=credential) as answer:
        fields = "\n".join(f"{name}: {value}" for name, value in answer.headers)
        return f"{answer.status}\n{fields}\n\n" + answer.read().decode("latin-1")


@op
def ask(path: str = "/", method: str = "GET", url: str = "", header: str = "", credential: str = "basic"):
    """Return the response in the result, or in the text of a failure that the connector may handle."""
    name, _, value = header.partition(": ")
    try:
        return {"seen": fetch(path, method, url or None, [(name, value)] if header else [], credential or None)}
    except (NetworkError, Refused) as error:
        return {"seen": repr(error) + repr(getattr(error, "details", None))}


@op
def hammer(times: int = 1):
    """Send the same request again and again."""
    for _time in range(times):
        fetch("/")
    return times


@op
def look_up(name: str = "evil.test"):
    """Resolve a name with the system's resolver, inside the jail."""
    try:
        return {"seen": repr(socket.getaddrinfo(name, 443))}
    except OSError as error:
        return {"seen": repr(error)}


@op
def say(path: str = "/"):
    """Write the response to the log, to both outputs, to an audit event, to progress, to a file and to the environment."""
    seen = fetch(path)
    log.info(seen, seen=seen[:1000])
    audit("seen", seen=seen[:1000])
    progress(1, 2, seen[:200])
    print(seen)
    print(seen, file=sys.stderr)
    with tempfile.NamedTemporaryFile("w", delete=False) as kept:
        kept.write(seen)
    os.environ["SEEN"] = seen.replace("\0", "")


@op
def crash(path: str = "/"):
    """Raise the response in a traceback."""
    raise RuntimeError(fetch(path))


@op
def blame(path: str = "/"):
    """Raise the response as the message of a failure."""
    raise ExternalApiError(fetch(path), status=500)


@op
def die(path: str = "/"):
    """Print the response and exit."""
    print(fetch(path), flush=True)
    os._exit(3)


if __name__ == "__main__":
    run()
