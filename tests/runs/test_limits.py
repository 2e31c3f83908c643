"""Limits of a run, from the request on: a connector that exceeds one fails with its name, and one below it succeeds.

The glutton (tests/support/connectors) leaves its errors to the SDK; the hostile connector (tests/attacks) does without
it.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest

from aileron.client import Answer
from aileron_sandbox import cgroups
from tests.attacks.hostile import HostileHome, hostile_home
from tests.sandbox.conftest import needs_groups
from tests.support.home import PROBE, DaemonHome, probe_action
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
ROOT: Final = Path(__file__).resolve().parents[2]
GLUTTON: Final = "github://aileron-tests/glutton"
FAMILY: Final = "github://aileron-tests/family"
"""The glutton with `subprocess = true`."""
_SOURCE: Final = ROOT / "tests" / "support" / "connectors" / "glutton"
_OPS: Final = (
    "files", "file_size", "scratch", "processes", "memory", "shared_memory", "output", "values", "wrapped", "grouped",
    "not_a_limit",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile(upstream: CountingServer) -> Iterator[HostileHome]:
    """Yield a daemon with the hostile connector, with a timeout that is enough on a busy machine, and both gluttons."""
    with hostile_home(upstream.port, timeout_s=20) as opened, tempfile.TemporaryDirectory() as folder:
        opened.home.install(_SOURCE)
        family = Path(shutil.copytree(_SOURCE, Path(folder, "family")))
        manifest = (family / "manifest.toml").read_text(encoding="utf-8").replace(GLUTTON, FAMILY)
        (family / "manifest.toml").write_text(f"{manifest}subprocess = true\n", encoding="utf-8")
        for op in _OPS:
            _add(opened.home, op, GLUTTON, op)
        if cgroups.find() is not None:
            opened.home.install(family)
            for op in ("forks", "programs", "memory"):
                _add(opened.home, op, FAMILY, f"family_{op}")
        yield opened


@pytest.fixture(scope="module")
def hurried(hostile: HostileHome, upstream: CountingServer) -> HostileHome:
    """Return a hostile connector that has a second for a run, in the same daemon."""
    return hostile.hurried(upstream.port, timeout_s=1)


@pytest.fixture(scope="module")
def home(hostile: HostileHome) -> DaemonHome:
    """Return the daemon's home."""
    return hostile.home


def _add(home: DaemonHome, op: str, connector: str, name: str) -> None:
    text = probe_action(op, "amount:integer", name=name.replace("_", "-")).replace(PROBE, connector)
    home.must("POST", "/v1/actions", {"text": text, "file": "a test"})


def _limit(answer: Answer) -> object:
    """Return the name of the limit that ended the run, the class of another failure, or `ok`."""
    error = answer.body.get("error")
    if error is None:
        return "ok" if answer.status == 200 else answer.body
    return error["details"].get("limit") if error["class"] == "resource_limit_exceeded" else error["class"]


# With the SDK


@pytest.mark.parametrize(
    ("action", "over", "below", "limit"),
    [
        ("files", 100, 40, "files"),
        ("file-size", 33, 31, "file_size"),
        ("scratch", 33, 30, "scratch"),
        ("processes", 40, 12, "processes"),
        ("memory", 256, 32, "memory"),
        ("shared-memory", 400, 32, "memory"),
        ("output", 1100, 1000, "output"),
        ("values", 140, 120, "output"),
        ("wrapped", 100, 40, "files"),
        ("grouped", 100, 40, "files"),
        pytest.param("family-forks", 40, 10, "processes", marks=needs_groups),
        pytest.param("family-programs", 15, 10, "processes", marks=needs_groups),
        pytest.param("family-memory", 256, 32, "memory", marks=needs_groups),
    ],
)
def test_a_connector_that_exceeds_a_limit_fails_with_the_name_of_the_limit(
    home: DaemonHome, action: str, over: int, below: int, limit: str
) -> None:
    """The SDK does not catch the error, or the supervisor ends the connector; the same operation below the limit has a result."""
    assert _limit(home.run(action, {"amount": over})) == limit
    assert _limit(home.run(action, {"amount": below})) == "ok"


@pytest.mark.parametrize("amount", [0, 1])
def test_an_error_that_only_resembles_an_exceeded_limit_is_reported_as_a_runtime_error(
    home: DaemonHome, amount: int
) -> None:
    """The cases are an EAGAIN of a pipe, and a bug while a limit's error was handled."""
    assert _limit(home.run("not-a-limit", {"amount": amount})) == "connector_runtime_error"


# The result, without the SDK


def test_a_result_that_is_too_large_fails_with_the_name_of_the_limit(hostile: HostileHome) -> None:
    """The cases are a body one byte too long, a claim of 4 GiB, and a million values; the largest allowed result passes."""
    claims = 'send(framed({"type": "result", "output": None}, body_bytes=%d)); stay()'
    many = r'send(framed({"type": "result", "output": None}, b"\xdd\x00\x0f\x00\x00" + b"\x80" * 0xF0000)); stay()'
    body = r'b"\xdb" + struct.pack(">I", (1 << 20) - 5) + b"x" * ((1 << 20) - 5)'

    assert _limit(hostile.attack(claims % ((1 << 20) + 1))) == "output"
    assert _limit(hostile.attack(claims % 0xFFFFFFFF)) == "output"
    assert _limit(hostile.attack(many)) == "output"
    assert _limit(hostile.attack(f'send(framed({{"type": "result", "output": None}}, {body}))')) == "ok"


def test_a_second_result_of_any_size_is_a_protocol_error(hostile: HostileHome) -> None:
    """The result must be the last frame, so it does not matter that the second one is too large as well."""
    second = 'send(framed({"type": "result", "output": None}, body_bytes=1 << 30)); stay()'

    assert _limit(hostile.attack(f"result(1); {second}")) == "connector_runtime_error"


_LEADER_GONE: Final = """
import ctypes, socket, threading

def later():
    time.sleep(0.05)
    socket.create_connection(("93.184.216.34", 443))

threading.Thread(target=later).start()
result(1)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


def test_a_second_result_or_connection_between_a_connector_s_result_and_exit_fails_the_run(
    hostile: HostileHome,
) -> None:
    """The cases are a second result with an immediate end, many times; a connection by a thread left behind; and output."""
    again = 'result(1); send(framed({"type": "result", "output": None}, b"\\xc0")); os._exit(0)'
    assert {_limit(hostile.attack(again)) for _ in range(20)} == {"connector_runtime_error"}
    # It takes so long to decode that its reader is made to wait, and the connector leaves meanwhile.
    many = r'b"\xdd\x00\x01\xe0\x00" + b"\x90" * 0x1E000'
    dense = f'result(1); send(framed({{"type": "result", "output": None}}, {many})); os._exit(0)'
    assert {_limit(hostile.attack(dense)) for _ in range(10)} == {"connector_runtime_error"}
    assert _limit(hostile.attack(_LEADER_GONE)) == "capability_denied"
    assert _limit(hostile.attack('result(1); os.write(2, b"said at the very end\\n"); os._exit(0)')) == "ok"
    logs = "".join(path.read_text(encoding="utf-8") for path in (hostile.home.path / "logs").iterdir())
    assert "said at the very end" in logs
    assert {_limit(hostile.attack("result(1); os._exit(0)")) for _ in range(20)} == {"ok"}, "the control"


# The wall clock

_STAYS: Final = {
    "a frame a byte at a time": (
        'data = framed({"type": "log", "level": "info", "message": "x" * 60000})\n'
        "for at in range(len(data)):\n    send(data[at:at + 1])\n    time.sleep(0.01)"
    ),
    "frames one after the other": (
        'while True:\n    send(framed({"type": "progress", "done": 1}))\n    time.sleep(0.02)'
    ),
    "an answer it never reads": (
        'send(request(1, "http://localhost:%d/big" % invoke["hosts"][0]["port"]))\nstay()'
    ),
    "waiting for a signal": "import signal\nsignal.pause()",
    "every signal ignored": (
        "import signal\n"
        "for number in set(range(1, 64)) - {9, 19, 32, 33}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "stay()"
    ),
    "stopping itself": "import signal\nsignal.raise_signal(signal.SIGSTOP)\nstay()",
}  # fmt: skip


@pytest.mark.parametrize("name", _STAYS)
def test_no_behaviour_of_a_connector_extends_the_wall_clock_limit(hurried: HostileHome, name: str) -> None:
    """The whole step has one second, whatever is sent or received meanwhile."""
    assert _limit(hurried.attack(_STAYS[name])) == "wall"


def test_work_within_the_wall_clock_limit_has_a_result(hostile: HostileHome) -> None:
    """Control of the test above, with a timeout that is long enough on a busy machine."""
    assert _limit(hostile.attack("time.sleep(0.1); result(1)")) == "ok"


def test_deadlines_use_a_clock_that_cannot_be_set() -> None:
    """The executor's clock is anyio's, which is the loop's, which is CLOCK_MONOTONIC: setting the time of day does not
    move it.

    Modules that hold a run to its time do not ask for the time of day. The exception is the module that serves
    signatures and certificates: it gives the time to code that signs, and to no code that waits.
    """
    assert not time.get_clock_info("monotonic").adjustable
    assert time.get_clock_info("time").adjustable

    async def between() -> bool:
        before, now, after = time.monotonic(), anyio.current_time(), time.monotonic()
        return before <= now <= after

    assert anyio.run(between)
    rooms = ("aileron/executor", "aileron/egress", "sandbox/aileron_sandbox")
    modules = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert len(modules) > 30
    for_signatures = ROOT / "aileron" / "egress" / "signing" / "time_of_day.py"
    assert [path for path in modules if _asks_the_time_of_day(path)] == [for_signatures]
    assert {path.name for path in modules if "time_of_day()" in path.read_text(encoding="utf-8")} == {
        "certificate.py",
        "hmac_template.py",
        "refused.py",
        "signatures.py",
        "time_of_day.py",
    }
    assert _asks_the_time_of_day(ROOT / "aileron" / "cli" / "demo.py"), "the control: a module that does"


def _asks_the_time_of_day(path: Path) -> bool:
    asked = ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.Attribute) and ast.unparse(node).endswith(asked) for node in ast.walk(tree))


# The log


def test_excessive_log_output_is_truncated_and_the_run_continues(hostile: HostileHome) -> None:
    """A connector prints 16 MiB: 64 KiB are kept, with a mark, and the daemon does not grow."""
    daemon = psutil.Process(hostile.home.daemon_pid)
    assert _limit(hostile.attack('os.write(2, b"seen in the log\\n"); result(1)')) == "ok"
    hostile.home.has_all_it_needs()
    before = daemon.memory_info().rss

    flood = (
        'piece, written = b"x" * 65536, 0\n'
        "while written < 16 << 20:\n    written += os.write(1, piece)\n"
        "result(written)"
    )
    answer = hostile.attack(flood)

    logs = "".join(path.read_text(encoding="utf-8") for path in (hostile.home.path / "logs").iterdir())
    assert answer.body["result"] >= 16 << 20
    assert daemon.memory_info().rss - before < 8 << 20
    assert "seen in the log" in logs
    assert "truncated at 65536 bytes" in logs
    assert len(logs) < 1 << 20
