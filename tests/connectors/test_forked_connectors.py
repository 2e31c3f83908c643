"""Forked connectors of the tests (tests/support/forks.py) compared with ones whose interpreter is started: they behave alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aileron_sandbox.frames import Result
from tests.connectors.test_sdk_operations import written
from tests.support import forks
from tests.support.plain_host import ConnectorProcess, invoke

# LC_CTYPE: a started interpreter puts it there (PEP 538), the template takes it away again.
_AROUND = """
import locale, signal

@op
def x():
    streams = [(s.fileno(), s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout, sys.stderr)]
    print("said"), print("and complained", file=sys.stderr)
    return {
        "argv": sys.argv, "path": sys.path[0],
        "environment": sorted(set(os.environ) - {"LC_CTYPE"}), "directory": os.getcwd(), "streams": streams,
        "descriptors": [fd for fd in range(20) if os.path.exists(f"/proc/self/fd/{fd}")],
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, "masked": sorted(signal.pthread_sigmask(0, [])),
        "utf8": [sys.flags.utf8_mode, locale.getpreferredencoding()], "mode": os.umask(0o22),
        "ours": sorted(n for n in sys.modules if n.partition(".")[0] in ("aileron", "pytest", "cryptography")),
    }
"""
_ENDS = """
import atexit, threading, time
atexit.register(print, "at exit")

@op
def x():
    threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
    return 1
"""
_CASES = {
    "around": _AROUND,
    "ends": _ENDS,
    "leaves": "@op\ndef x():\n    os._exit(4)\n",
    "exits": "@op\ndef x():\n    return 1\nsys.exit('no')\n",
    "fails": "@op\ndef x():\n    return 1\nraise KeyError('at the top')\n",
}


def _ran(program: Path) -> tuple[Any, int, list[str]]:
    """Return its answer, its exit code, and the lines that it prints except those of a traceback."""
    with ConnectorProcess(program, invoke("x")) as connector:
        try:
            answer = connector.receive_until_over()
        except EOFError:
            answer = None
        code = connector.wait()
        printed = [line for line in connector.printed().splitlines() if not line.startswith(" ")]
    assert answer is None or isinstance(answer, Result), answer
    return answer and answer.output, code, printed


@pytest.mark.parametrize("case", _CASES)
def test_a_forked_connector_behaves_like_a_connector_whose_interpreter_is_started(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared are arguments, environment, streams, descriptors, signals, printed text, and exit."""
    program = written(tmp_path, _CASES[case])
    forked = _ran(program)
    monkeypatch.setattr(forks, "is_allowed", False)

    assert forked == _ran(program)
