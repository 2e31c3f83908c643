"""Hostile streams on the frame pipes: each ends its own run, with a reason that a person can read, and nothing else.

A connector without the SDK writes bytes of its choosing to the daemon (connectors/hostile). An honest run of another
connector succeeds beside each attack, and at the end the daemon has not grown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import psutil
import pytest

from tests.attacks.hostile import HostileHome, hostile_home, is_ended_for, kind_of
from tests.attacks.tally import Attack
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

BROKEN: Final = "connector_runtime_error"
GROWTH_BYTES: Final = 48 << 20
"""Bytes by which the daemon may grow: one frame is 1.06 MiB, its objects at most 9 (docs/reference/frames.md), eight at
once, and the allocator keeps some. 10 MiB were measured, and 33 with Python 3.14.
"""


@pytest.fixture(scope="module")
def hostile(upstream: CountingServer) -> Iterator[HostileHome]:
    """Provide one daemon for all tests, so that each meets what an earlier attack left behind."""
    with hostile_home(upstream.port) as home:
        yield home


@pytest.fixture(scope="module", autouse=True)
def memory(hostile: HostileHome) -> Iterator[Memory]:
    """Watch the daemon's resident bytes for all tests of this module."""
    assert kind_of(hostile.attack("result(1)")) == "ok"
    hostile.home.has_all_it_needs()
    with Memory(hostile.home.daemon_pid) as watched:
        yield watched


class Memory:
    """The resident size of a process in bytes: at first, and the highest of 200 samples a second."""

    def __init__(self, pid: int | None) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.first = self.highest = self._process.memory_info().rss

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.highest = max(self.highest, self._process.memory_info().rss)


LOG: Final = (
    r'b"\x84" + msgspec.msgpack.encode({"type": "log", "level": "info", "message": "m"})[1:] + b"\xa6fields\x81\xa1v"'
)


def value(raw: str) -> str:
    """Return the source of a connector that sends a log frame with these raw MessagePack bytes as field `v`, then stays."""
    return f"send(framed({LOG} + {raw})); stay()"


def header(fields: str) -> str:
    """Return the source of a connector that sends a frame with this header, then stays."""
    return f"send(framed({fields})); stay()"


STREAMS: Final = {
    # Lengths that are claimed and not there: refused without an allocation of that size.
    "array32 of 4 Gi": (value(r'b"\xdd\xff\xff\xff\xff"'), "truncated"),
    "map32 of 4 Gi": (value(r'b"\xdf\xff\xff\xff\xff"'), "truncated"),
    "bin32 of 4 Gi": (value(r'b"\xc6\xff\xff\xff\xff"'), "truncated"),
    "ext32 of 4 Gi": (value(r'b"\xc9\xff\xff\xff\xff\x01"'), "truncated"),
    "str32 of 4 Gi": (value(r'b"\xdb\xff\xff\xff\xff"'), "truncated"),
    "the same in an output": (
        r'send(framed({"type": "result", "output": None}, b"\xdd\xff\xff\xff\xff")); stay()', "cut off",
    ),
    "60,000 arrays inside each other": (value(r'b"\x91" * 60_000 + b"\x90"'), "deep"),
    "100,000 in an output": (
        r'send(framed({"type": "result", "output": None}, b"\x91" * 100_000 + b"\x01")); stay()', "deeper",
    ),
    # The prefix.
    "a header of 0 bytes": (r'send(framed(b"")); stay()', "header of 0 bytes"),
    "a header of 1 byte": (r'send(framed(b"\xc0")); stay()', "Expected `object`"),
    "a header of max + 1": (r'send(framed(b"", header_bytes=65537)); stay()', "header of 65537"),
    "a header of 4 Gi - 1": (r'send(b"\xff" * 8); stay()', "header of 4294967295"),
    "a body of max + 1": (
        r'send(framed({"type": "chunk", "id": 1}, body_bytes=(1 << 20) + 1)); stay()', "body of 1048577",
    ),
    "a body of 4 Gi - 1": (
        r'send(framed({"type": "chunk", "id": 1}, body_bytes=0xFFFFFFFF)); stay()', "body of 42949",
    ),
    "a body where none belongs": (r'send(framed({"type": "progress", "done": 1}, b"x")); stay()', "body"),
    "bytes after the map": (header(r'msgspec.msgpack.encode({"type": "progress", "done": 1}) + b"\x00"'), "trailing"),
    "a header cut off by the end": (
        r'send(framed({"type": "progress", "done": 1})[:-1]); os.close(4); stay()', "kept running",
    ),
    "a header cut off by leaving": (r'send(framed({"type": "progress", "done": 1})[:-1])', "no result"),
    # Values.
    "an unknown type": (header('{"type": "launch"}'), "launch"),
    "a type that is no string": (header('{"type": 7}'), "type"),
    "no type": (header("{}"), "type"),
    "an unknown field": (header('{"type": "cancel", "id": 1, "now": True}'), "unknown field"),
    "a missing field": (header('{"type": "cancel"}'), "missing"),
    "a key twice": (header(r'b"\x83" + msgspec.msgpack.encode({"type": "cancel", "id": 1})[1:] + b"\xa2id\x02"'), "duplicate"),
    "a key that is no string": (value(r'b"\x81\x01\x02"'), "not a string"),
    "invalid UTF-8": (value(r'b"\xa1\xff"'), "utf-8"),
    "a lone surrogate": (value(r'b"\xa3\xed\xa0\x80"'), "utf-8"),
    "NaN": (value(r'b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"'), "NaN"),
    "infinity": (value(r'b"\xca\x7f\x80\x00\x00"'), "NaN"),
    "bin": (value(r'b"\xc4\x01x"'), "not a JSON value"),
    "a timestamp": (value(r'b"\xd6\xff\x00\x00\x00\x00"'), "not a JSON value"),
    "an unknown ext type": (value(r'b"\xd4\x05x"'), "not a JSON value"),
    "the byte that is never used": (value(r'b"\xc1"'), "invalid"),
    "an id of 2**63": (header('{"type": "cancel", "id": 1 << 63}'), "<= 4294967295"),
    "a negative id": (header('{"type": "cancel", "id": -1}'), ">= 1"),
    "an id that is a boolean": (header('{"type": "cancel", "id": True}'), "bool"),
    "a host's own frame": (
        header('{"type": "http_head", "id": 1, "status": 200, "headers": []}'), "http_head",
    ),
    "control characters in the mistake": (header(r'{"type": "\x1b[31m\u202e"}'), "x1b[31m"),
    # The order.
    "a chunk of an id never issued": (header('{"type": "chunk", "id": 4}'), "does not expect one"),
    "a cancel of an id never issued": (header('{"type": "cancel", "id": 4}'), "never issued"),
    "a cancel twice": (
        'send(request(1, body="stream") + 2 * framed({"type": "cancel", "id": 1})); '
        "stay()", "second cancel",
    ),
    "a chunk after its cancel": (
        'send(request(1, body="stream") + framed({"type": "cancel", "id": 1})); '
        'send(framed({"type": "chunk", "id": 1}, b"x")); stay()', "does not expect one",
    ),
    "an id twice": ('send(2 * request(1, body="stream")); stay()', "not larger than 1"),
    "33 requests at once": (
        'send(b"".join(request(n, body="stream") for n in range(1, 34))); stay()', "more than 32",
    ),
    "a second result": ("result(1); result(2); stay()", "result after the result"),
    "a request after the result": ('result(1); send(request(1)); stay()', "after the result"),
    "a log after the result": (
        'result(1); send(framed({"type": "log", "level": "info", "message": "m"})); stay()', "after the result",
    ),
    "a failure after the result": (
        'result(1); send(framed({"type": "failure", "class": "bad_input", "message": "m"})); stay()', "after the",
    ),
    "nonsense after the result": (r'result(1); send(b"\xff" * 8); stay()', "header of 4294967295"),
    # Silence.
    "the pipe closed, and on it runs": ("os.close(4); stay()", "kept running"),
    "gone without a word": ("os._exit(0)", "no result"),
}  # fmt: skip


@pytest.mark.abuse_case("L3", "M1", "M2", "M3")
@pytest.mark.parametrize(("source", "words"), STREAMS.values(), ids=STREAMS)
def test_a_hostile_stream_ends_its_own_run_with_a_readable_reason(
    attack: Attack, hostile: HostileHome, source: str, words: str
) -> None:
    """The failure is connector_runtime_error; an honest run succeeds right after it in the same daemon."""
    attack.denied("a hostile stream", BROKEN, is_ended_for(hostile.attack(source), words))
    attack.control("an honest run of another connector", "right after", hostile.honest("right after"))


HARMLESS: Final = {
    "one byte at a time": ('for byte in framed({"type": "result", "output": 7}): send(bytes([byte]))', 7),
    "frames on the log pipe": (
        'for fd in (1, 2): os.write(fd, framed({"type": "result", "output": "forged"}))\nresult(7)', 7,
    ),
    "every key spelled long": (
        r'send(framed(b"\xdf\0\0\0\x02\xdb\0\0\0\x06output\xd3\0\0\0\0\0\0\0\x07\xd9\x04type\xd9\x06result"))', 7,
    ),
    "a cancel that comes too late": (
        'send(request(1, "http://localhost:%d/" % invoke["hosts"][0]["port"]))\n'
        'while True:\n    head, _ = receive()\n    if head.get("end"): break\n'
        'send(framed({"type": "cancel", "id": 1})); result(7)', 7,
    ),
    "an integer that JSON has no canonical form for": ("result(1 << 63)", 1 << 63),
}  # fmt: skip


@pytest.mark.abuse_case("M7")
@pytest.mark.parametrize(("source", "expected"), HARMLESS.values(), ids=HARMLESS)
def test_an_unusual_but_valid_stream_of_frames_is_accepted_unchanged(
    attack: Attack, hostile: HostileHome, source: str, expected: object
) -> None:
    """The daemon is no stricter than the protocol's page, and never takes printed bytes for a frame. A second result is
    an error.
    """
    answer = hostile.attack(source)
    attack.control("an odd but legal stream", expected, answer.body.get("result", answer.body))
    ended = hostile.attack(source + "\nresult(8); stay()")
    attack.denied("one more result", BROKEN, is_ended_for(ended, "result after the result"))


@pytest.mark.abuse_case("M9")
@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ('{"status": []}', ("external_api_error", {"status": []})),
        ('{"status": {}, "retry_after_s": "soon"}', ("external_api_error", {"status": {}, "retry_after_s": "soon"})),
        (
            '{"status": 503, "retry_after_s": (1 << 64) - 1}',
            ("external_api_error", {"status": 503, "retry_after_s": (1 << 64) - 1}),
        ),
        ('{"step": "another", "status": 1 << 63}', ("external_api_error", {"status": 1 << 63})),
    ],
)  # fmt: skip
def test_invalid_details_of_a_failure_cause_no_internal_error(
    attack: Attack, hostile: HostileHome, details: str, expected: tuple[str, dict[str, object]]
) -> None:
    """Invalid details, such as a text as status, make the failure the connector's own and never `internal_error`."""
    source = f'send(framed({{"type": "failure", "class": "external_api_error", "message": "m", "details": {details}}}))'
    answer = hostile.attack(source)

    found = answer.body["error"]["details"]
    attack.denied("odd details", expected, (kind_of(answer), {k: v for k, v in found.items() if k != "step"}))
    attack.control("the step is ours", "step", found["step"])


@pytest.mark.abuse_case("M9")
def test_a_connector_cannot_claim_the_daemons_failure_classes(attack: Attack, hostile: HostileHome) -> None:
    """Classes such as capability_denied are the daemon's alone; those that an honest connector needs are accepted."""
    claim = 'send(framed({{"type": "failure", "class": "{}", "message": "m"}}))'
    for name in (
        "capability_denied",
        "approval_denied",
        "consent_required",
        "sandbox_unavailable",
        "hash_mismatch",
        "x" * 5000,
    ):
        answer = hostile.attack(claim.format(name))
        found = kind_of(answer), answer.body["error"]["details"].get("connector_class")
        attack.denied(f"claiming {name[:20]}", (BROKEN, name[:100]), found)
    attack.control("bad_input can be claimed", "bad_input", kind_of(hostile.attack(claim.format("bad_input"))))


@pytest.mark.abuse_case("M6")
def test_each_of_250_requests_32_at_a_time_gets_its_own_response(
    attack: Attack, hostile: HostileHome, upstream: CountingServer
) -> None:
    """Each id gets the response for its own path, in any order and with any cancellations; the 257th request is one too many."""
    source = _INTERLEAVED.format(port=upstream.port)
    answer = hostile.attack(source.replace("COUNT", "250"))
    attack.control(
        "every answer is that of its own request", {"wrong": 0, "over": 250}, answer.body.get("result", answer.body)
    )
    too_many = hostile.attack(source.replace("COUNT", "300"))
    attack.denied("300 requests", ("resource_limit_exceeded", "requests"), (kind_of(too_many), _limit(too_many.body)))


_INTERLEAVED: Final = """
url, wrong, over, sent, awaited = "http://localhost:{port}/status/%d", 0, 0, 0, {{}}
while over < COUNT:
    while sent < COUNT and len(awaited) < 32:
        sent += 1
        awaited[sent] = sent % 7 == 0
        send(request(sent, url % (400 + sent % 190)))
        if awaited[sent]:
            send(framed({{"type": "cancel", "id": sent}}))
    head, _ = receive()
    number = head["id"]
    if head["type"] == "http_head":
        wrong += head["status"] != 400 + number % 190
    elif head["type"] == "refused":
        wrong += not awaited.pop(number)
        over += 1
    elif head.get("end"):
        awaited.pop(number)
        over += 1
result({{"wrong": wrong, "over": over}})
"""

FLOODS: Final = {
    "progress": 'd = framed({"type": "progress", "done": 1}) * 5000\nwhile True: send(d)',
    "log frames": 'd = framed({"type": "log", "level": "info", "message": "x" * 60000})\nwhile True: send(d)',
    "values": (
        rf'd = framed({LOG} + b"\xdd\x00\x00\xf0\x00" + b"\x80" * 0xF000)' "\nwhile True: send(d)"
    ),
    "bytes one by one": 'd = framed({"type": "progress", "done": 1})\nwhile True:\n    for b in d: send(bytes([b]))',
    "an upload that nobody reads": (
        'send(request(1, "http://localhost:%d/slow" % invoke["hosts"][0]["port"], "stream"))\n'
        'd = framed({"type": "chunk", "id": 1}, bytes(1 << 20))\nwhile True: send(d)'
    ),
    "the log": 'd = b"\\n" * 65536\nwhile True: os.write(1, d)',
    "an answer that is not taken": (
        'send(request(1, "http://localhost:%d/big" % invoke["hosts"][0]["port"]))\nstay()'
    ),
    "requests and cancels": (
        'n = 0\nwhile True:\n    n += 1\n'
        '    send(request(n, "http://localhost:%d/slow" % invoke["hosts"][0]["port"], "stream"))\n'
        '    send(framed({"type": "cancel", "id": n}))\n    receive()'
    ),
}  # fmt: skip

STREAM_FLOODS: Final = {
    "into a stream that nobody reads": (
        'send(stream(1)); receive()\nd = framed({"type": "chunk", "id": 1}, bytes(1 << 20))\nwhile True: send(d)'
    ),
    "empty pieces": 'send(stream(1)); receive()\nd = framed({"type": "chunk", "id": 1}) * 5000\nwhile True: send(d)',
    "streams opened and cancelled": (
        'n = 0\nwhile True:\n    n += 1\n    send(stream(n) + framed({"type": "cancel", "id": n})); receive()'
    ),
}


@pytest.mark.abuse_case("R3")
@pytest.mark.slow
def test_connectors_that_send_endless_frames_are_ended_by_a_limit_and_honest_runs_finish(
    attack: Attack, hostile: HostileHome, upstream: CountingServer
) -> None:
    """Each endless connector ends with the name of a limit. Honest runs finish meanwhile, so no connector can block the
    event loop, which also enforces every deadline.
    """
    floods = FLOODS | STREAM_FLOODS
    hurried = hostile.hurried(upstream.port, timeout_s=3)
    with ThreadPoolExecutor(len(floods)) as pool:
        under_way = {name: pool.submit(hurried.attack, source) for name, source in floods.items()}
        for number in range(3):
            attack.control("an honest run beside all of them", str(number), hostile.honest(str(number)))
        for name, future in under_way.items():
            answer = future.result()
            limits = {"wall", "requests", "bytes_up", "bytes_down", "cpu"}
            attack.denied(f"a flood of {name}", "resource_limit_exceeded", kind_of(answer))
            assert _limit(answer.body) in limits, answer.body


@pytest.mark.abuse_case("R7")
def test_a_connectors_log_is_truncated_with_a_mark(attack: Attack, hostile: HostileHome) -> None:
    """A connector logs 65,000 empty lines, a megabyte of letters, and terminal sequences: at most 500 lines and 64 KiB
    are kept, escaped.
    """
    attack.control("it may print as it likes", "ok", kind_of(hostile.attack('print("seen in the log"); result(1)')))
    logs = hostile.home.path / "logs"
    size = _size(logs)
    for name, source in {
        "empty lines": r'os.write(1, b"\n" * 65536); result(1)',
        "letters": r'os.write(1, b"x" * (1 << 20)); result(1)',
        "terminal sequences": r'os.write(1, b"\x1b]0;title\x07\x1b[31m" * 1000 + "\u202e\u200b".encode()); result(1)',
    }.items():
        answer = hostile.attack(source)
        written, size = _size(logs) - size, _size(logs)
        attack.denied(f"a log of {name}", (True, "ok"), (written < 512 << 10, kind_of(answer)))
    text = "".join(path.read_text(encoding="utf-8") for path in logs.iterdir() if path.is_file())
    assert "seen in the log" in text
    assert "truncated at" in text
    assert not set("\x1b\x07\u202e\u200b") & set(text)


@pytest.mark.abuse_case("M8")
def test_the_daemons_memory_does_not_grow_during_the_attacks(
    attack: Attack, hostile: HostileHome, memory: Memory
) -> None:
    """The test compares the highest resident size during all tests above with the size at first; the daemon still works."""
    grown_mib = (memory.highest - memory.first) >> 20
    attack.denied("growing beyond some frames' worth, in MiB", frozenset(range(GROWTH_BYTES >> 20)), grown_mib)
    attack.control("it still serves", "still", hostile.honest("still"))


def _limit(body: dict[str, object]) -> object:
    error = body.get("error")
    return error["details"].get("limit") if isinstance(error, dict) else body


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
