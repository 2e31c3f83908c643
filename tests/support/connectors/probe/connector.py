"""The probe connector: operations that return, fail, end, linger, ask and flood, as a test needs."""

import errno
import os
import socket
import sys
import time

from aileron_connector import ExternalApiError, audit, hosts, http, idempotency_key, log, op, progress, run
from aileron_sandbox.frames.codec import encode
from aileron_sandbox.frames.frame_messages import Result


@op
def give_back(text: str = "", number: int = 0, flag: bool = False, share: float = 0.0):
    """Return the arguments."""
    return {"text": text, "number": number, "flag": flag, "share": share}


@op
def give_list(text: str = "", number: list[int] | None = None):
    """Return the arguments."""
    return {"text": text, "number": number}


@op
def fetch(path: str = "/", with_credential: bool = False):
    """GET a path of the granted host."""
    with http.request("GET", hosts()[0].url + path, credential="basic" if with_credential else None) as response:
        return {"status": response.status, "body": response.text()}


@op
def fetch_url(url: str):
    """GET any URL."""
    with http.request("GET", url) as response:
        return {"status": response.status}


@op
def take_some(times: int = 20):
    """Read the start of a large response, abandon it and ask again, many times: the frames must stay in step."""
    origin, small = hosts()[0].url, []
    for _ in range(times):
        with http.request("GET", origin + "/big") as response:
            small.append(len(next(response.iter_bytes())))
    with http.request("GET", origin + "/") as response:
        return {"begun": len(small), "body": response.text()}


@op
def leave_unread():
    """Return the result while a response is still on its way."""
    http.request("GET", hosts()[0].url + "/big")
    return "done"


@op
def effect(path: str = "/effect"):
    """POST once."""
    with http.request("POST", hosts()[0].url + path, body=b"now") as response:
        return {"status": response.raise_for_status().status, "body": response.text()}


@op
def fail_as(failure: str = "ExternalApiError", status: int = 503):
    """Fail in the given way."""
    if failure == "ExternalApiError":
        raise ExternalApiError(f"the upstream said {status}", status=status)
    if failure == "made_up":
        from aileron_connector import ConnectorError

        raise ConnectorError("missing_scope", "the token lacks a scope")
    raise RuntimeError("a bug in the connector")


@op
def tell_key(flag: bool = False):
    """Return the idempotency key of this step; with `flag`, each try records its key in the audit trail, and fails."""
    if flag:
        audit("key", key=idempotency_key())
        raise ExternalApiError("the upstream said 503", status=503)
    return {"key": idempotency_key()}


@op
def leave(code: int = 3):
    """Exit without a result."""
    print("some last words", flush=True)
    os._exit(code)


@op
def linger(seconds: float = 60.0):
    """Sleep for a long time."""
    time.sleep(seconds)


@op
def spin():
    """Use the processor without end."""
    while True:
        pass


@op
def hoard(megabytes: int = 512):
    """Use memory."""
    return len(bytearray(megabytes << 20))


@op
def write_raw(hexadecimal: str = "ffffffff00000000"):
    """Write bytes to the frame pipe that are no frame."""
    os.write(4, bytes.fromhex(hexadecimal))
    time.sleep(60)


@op
def close_frames():
    """Close the frame pipe and keep running."""
    os.close(4)
    time.sleep(60)


@op
def open_file(path: str):
    """Return `read` if the file can be read, else the name of the error."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "read"


@op
def reach(host: str = "93.184.216.34", port: int = 443):
    """Try to connect past the supervisor."""
    socket.create_connection((host, port), timeout=5).close()


@op
def reach_at_last(port: int = 443):
    """Send the result, and then try to connect."""
    header, body = encode(Result(output="done"))
    os.write(4, header + bytes(body))
    reach(port=port)


@op
def look_for_a_network():
    """Bind an IPv6 socket, as urllib3 does when it is imported."""
    probe = socket.socket(socket.AF_INET6)
    try:
        probe.bind(("::1", 0))
    except OSError as error:
        return error.strerror
    finally:
        probe.close()


@op
def talk(words: str = "hello"):
    """Print, log and record an audit event."""
    print("\x1b[31m" + words)
    log.info(words, length=len(words))
    audit("said", words=words)
    return sys.argv


@op
def claim(times: int = 1):
    """Record `times` audit events."""
    for number in range(times):
        audit("claimed", number=number)
    return times


@op
def report(times: int = 3, seconds: float = 0.3, message: str = "", path: str = ""):
    """Report progress `times` times within `seconds`; then fetch `path`, if given."""
    for number in range(1, times + 1):
        progress(number, times, message or None)
        time.sleep(seconds / times)
    if path:
        fetch(path)
    return times


if __name__ == "__main__":
    run()
