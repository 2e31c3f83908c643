"""Logs in at the granted host with a published library, and measures in the jail how long that took, or how fast bytes pass."""

import contextlib
import time

from aileron_connector import hosts, op, run


@op
def log_in(library: str, times: int) -> list[float]:
    """Seconds of each of so many logins, from the connection to the answer of a first command."""
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
    """Megabytes a second of one answer of so many, read as it comes."""
    import redis

    host = hosts()[0]
    with redis.Redis(host=host.host, port=host.port) as client:
        client.ping()
        began = time.perf_counter()
        assert len(client.get("blob")) == megabytes << 20
        return [megabytes / (time.perf_counter() - began)]


def _redis():
    import redis

    host = hosts()[0]
    client = redis.Redis(host=host.host, port=host.port, username="any", password="any")
    client.ping()
    return client.close


def _imaplib():
    import imaplib

    host = hosts()[0]
    client = imaplib.IMAP4_SSL(host.host, host.port)
    client.login("any", "any")
    client.noop()

    def undo():
        with contextlib.suppress(OSError, imaplib.IMAP4.error):
            client.logout()

    return undo


def _pg8000():
    import pg8000.native

    host = hosts()[0]
    client = pg8000.native.Connection("any", host=host.host, port=host.port, password="any")
    assert client.run("SELECT 1") == [[1]]
    return client.close


run()
