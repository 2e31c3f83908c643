"""A connector that logs in to the granted host with a published library, and measures the time or the throughput in the jail."""

import contextlib
import time
from collections.abc import Callable

from aileron_connector import hosts, op, run


@op
def log_in(library: str, times: int) -> list[float]:
    """Log in `times` times. Return the seconds of each, from the connection to the answer of a first command."""
    login = globals()[f"_{library}"]
    login()  # imports it
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        undo = login()
        taken.append(time.perf_counter() - began)
        undo()
    return taken


@op
def pour(megabytes: int) -> list[float]:
    """Read an answer of this many megabytes as it comes. Return megabytes a second."""
    import redis

    host = hosts()[0]
    with redis.Redis(host=host.host, port=host.port) as client:
        client.ping()
        began = time.perf_counter()
        assert len(client.get("blob")) == megabytes << 20
        return [megabytes / (time.perf_counter() - began)]


def _redis() -> Callable[[], object]:
    import redis

    host = hosts()[0]
    client = redis.Redis(host=host.host, port=host.port, username="any", password="any")
    client.ping()
    return client.close


def _imaplib() -> Callable[[], object]:
    import imaplib

    host = hosts()[0]
    client = imaplib.IMAP4_SSL(host.host, host.port)
    client.login("any", "any")
    client.noop()

    def undo() -> None:
        with contextlib.suppress(OSError, imaplib.IMAP4.error):
            client.logout()

    return undo


def _pg8000() -> Callable[[], object]:
    import pg8000.native

    host = hosts()[0]
    client = pg8000.native.Connection("any", host=host.host, port=host.port, password="any")
    assert client.run("SELECT 1") == [[1]]
    close: Callable[[], object] = client.close
    return close


run()
