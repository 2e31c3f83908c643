"""The probe connector: ops that return, fail, end, linger, ask and flood, as a test wants."""

import errno
import os
import socket
import sys
import time

from aileron_connector import ExternalApiError, audit, hosts, http, idempotency_key, log, op, progress, run
from aileron_sandbox.frames.codec import encode
from aileron_sandbox.frames.messages import Result


@op
def give_back(text: str = "", number: int = 0, flag: bool = False, share: float = 0.0):
    """What came in."""
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
    """Begin to read something large, lose interest, ask again: the frames must stay in step."""
    origin, small = hosts()[0].url, []
    for _ in range(times):
        with http.request("GET", origin + "/big") as response:
            small.append(len(next(response.iter_bytes())))
    with http.request("GET", origin + "/") as response:
        return {"begun": len(small), "body": response.text()}


@op
def leave_unread():
    """Say the last word while an answer is still on its way."""
    http.request("GET", hosts()[0].url + "/big")
    return "done"


@op
def effect(path: str = "/effect"):
    """POST once."""
    with http.request("POST", hosts()[0].url + path, body=b"now") as response:
        return {"status": response.raise_for_status().status, "body": response.text()}


@op
def fail_as(failure: str = "ExternalApiError", status: int = 503):
    """Fail the way that is asked for."""
    if failure == "ExternalApiError":
        raise ExternalApiError(f"the upstream said {status}", status=status)
    if failure == "made_up":
        from aileron_connector import ConnectorError

        raise ConnectorError("missing_scope", "the token lacks a scope")
    raise RuntimeError("a bug in the connector")


@op
def tell_key(flag: bool = False):
    """The idempotency key of this step; with `flag`, each try says its own in the record, and fails."""
    if flag:
        audit("key", key=idempotency_key())
        raise ExternalApiError("the upstream said 503", status=503)
    return {"key": idempotency_key()}


@op
def leave(code: int = 3):
    """Exit without a word."""
    print("some last words", flush=True)
    os._exit(code)


@op
def linger(seconds: float = 60.0):
    """Do nothing for long."""
    time.sleep(seconds)


@op
def spin():
    """Use the processor."""
    while True:
        pass


@op
def hoard(megabytes: int = 512):
    """Use memory."""
    return len(bytearray(megabytes << 20))


@op
def write_raw(hexadecimal: str = "ffffffff00000000"):
    """Write bytes where frames belong."""
    os.write(4, bytes.fromhex(hexadecimal))
    time.sleep(60)


@op
def close_frames():
    """Close the frame pipe and hide."""
    os.close(4)
    time.sleep(60)


@op
def open_file(path: str):
    """Whether a file can be read."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "read"


@op
def reach(host: str = "93.184.216.34", port: int = 443):
    """Try to get out without the supervisor."""
    socket.create_connection((host, port), timeout=5).close()


@op
def reach_at_last(port: int = 443):
    """Say the last word, and then try."""
    header, body = encode(Result(output="done"))
    os.write(4, header + bytes(body))
    reach(port=port)


@op
def look_for_a_network():
    """What urllib3 does when it is imported."""
    probe = socket.socket(socket.AF_INET6)
    try:
        probe.bind(("::1", 0))
    except OSError as error:
        return error.strerror
    finally:
        probe.close()


@op
def talk(words: str = "hello"):
    """Print, log and leave a fact."""
    print("\x1b[31m" + words)
    log.info(words, length=len(words))
    audit("said", words=words)
    return sys.argv


@op
def claim(times: int = 1):
    """Leave so many facts."""
    for number in range(times):
        audit("claimed", number=number)
    return times


@op
def report(times: int = 3, seconds: float = 0.3, message: str = "", path: str = ""):
    """Say how far it is, so often, in so many seconds; then ask for `path`, if there is one."""
    for number in range(1, times + 1):
        progress(number, times, message or None)
        time.sleep(seconds / times)
    if path:
        fetch(path)
    return times


if __name__ == "__main__":
    run()
