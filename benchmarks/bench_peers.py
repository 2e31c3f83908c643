"""Measure the cost of isolation: a jail against no sandbox, two other sandboxes for Python, and WebAssembly.

Three questions, each interleaved in one run:
- How long from the request until the first byte, and until every process is gone? Against the same program in an ordinary
  process, which shows the cost of isolation, and in one confined by nono-py and by sandlock (sandboxes.py). No goals.
- How long from `invoke` to a waiting connector until its first frame? The jail was started ahead and has loaded its
  connector (ADR 48). Against a compiled module of WebAssembly, of which an instance is made and called in the calling
  process. Goal: at most 1.
- The same against such an instance in a process of its own, which has compiled the module and waits at a pipe. No goal.

WebAssembly has done the same once directly before each measurement, so its code and data are in the caches; a waiting jail can
not have that.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

import aileron_connector
import aileron_sandbox
from aileron.registry.connector_build import build
from aileron_sandbox.frames import PROTOCOL_VERSION, Decoder, FromJail, HostSession, Invoke, Result, encode
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from benchmarks import page
from benchmarks.jails import AGAIN, DEADLINE_S, PAUSED, first_frame, paused_or_again, program, reaped
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from benchmarks.peers import ECHO, MSGSPEC, PLAIN_PYTHON, plain_echo, plain_first_frame, read_some, spawned
from benchmarks.sandboxes import (
    NONO,
    NONO_MISSING,
    SANDLOCK,
    SANDLOCK_CLONE,
    SANDLOCK_MISSING,
    WASM_MISSING,
    check_clone,
    nono_echo,
    sandlock_clone,
    sandlock_echo,
    sandlock_first_frame,
)
from tests.support.zipped import zipped

ROUNDS = 100
WARM_ROUNDS = 200
LOADED_S = 0.03
"""Seconds until a new jail has loaded its connector of twelve lines and waits: 6 ms; this is enough on a busy machine."""
SPARE = "a jail that waits, loaded"
WASM, WASM_PIPE = "wasmtime, an instance in the same process", "wasmtime, an instance in a process that waits"
_ROOT: Final = Path(__file__).parents[1]
_ECHO: Final = Path(__file__).parent / "echo"
_PRELOAD: Final = ("aileron_connector", "aileron_connector.rehearsal", "msgspec", "zipimport")
_REHEARSAL: Final = "from aileron_connector.rehearsal import rehearse\nrehearse()\n"
_ARGS: Final[dict[str, Any]] = {"text": "x" * 32}
_INVOKE: Final = Invoke(
    protocol=PROTOCOL_VERSION, op="give_back", args=_ARGS, hosts=[], invocation="benchmark", deadline_ms=30_000
)


def main() -> None:
    """Measure and report."""
    with Template.start(_runtime()) as template, contextlib.ExitStack() as programs:
        echo = programs.enter_context(program(zipped(ECHO.format(source=3, target=4))))
        _measure_sandboxes(template, echo)
        _measure_warm(template, programs.enter_context(program(build(_ECHO, []).connector)))


def _runtime() -> PythonRuntime:
    """Return a runtime like that of the daemon's template: the connector's side of the frames is packed and imported."""
    sandbox = Path(aileron_sandbox.__file__).parent
    packages = {
        "msgspec": MSGSPEC,
        "aileron_connector": Path(aileron_connector.__file__).parent,
        "aileron_sandbox/__init__.py": sandbox / "__init__.py",
        "aileron_sandbox/frames": sandbox / "frames",
    }
    return PythonRuntime.of_this_interpreter(packages=packages, preload=_PRELOAD, rehearsal=_REHEARSAL)


# Without a sandbox, and in others


def _measure_sandboxes(template: Template, echo: int) -> None:
    missing = _missing({NONO: NONO_MISSING, SANDLOCK: SANDLOCK_MISSING, SANDLOCK_CLONE: SANDLOCK_MISSING})
    if SANDLOCK_CLONE not in missing:
        check_clone()
    before = paused_or_again(template, echo)
    _measure_first(template, echo, missing)
    peers: dict[str, Variant] = {
        PLAIN_PYTHON: plain_echo,
        NONO: nono_echo,
        SANDLOCK: sandlock_echo,
        SANDLOCK_CLONE: sandlock_clone,
    }
    ours = dict.fromkeys((PAUSED, AGAIN), reaped(template, echo))
    taken = interleave({**ours, **_present(peers, missing)}, ROUNDS, before=before)
    asked = [Question(f"echo to reaped: {name}", name, peer) for peer in peers for name in (PAUSED, AGAIN)]
    answer("peers-reaped.json", taken, asked, missing=missing)


def _measure_first(template: Template, echo: int, missing: dict[str, str]) -> None:
    peers: dict[str, Variant] = {PLAIN_PYTHON: plain_first_frame, SANDLOCK: sandlock_first_frame}
    ours = dict.fromkeys((PAUSED, AGAIN), first_frame(template, echo))
    taken = interleave({**ours, **_present(peers, missing)}, ROUNDS, before=paused_or_again(template, echo))
    asked = [Question(f"echo to first byte: {name}", name, peer) for peer in peers for name in (PAUSED, AGAIN)]
    answer("peers-first.json", taken, asked, missing=missing)


# One that waits, against WebAssembly


def _measure_warm(template: Template, connector: int) -> None:
    missing = _missing(dict.fromkeys((WASM, WASM_PIPE), WASM_MISSING))
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(_Waiting(template, connector))
        peers: dict[str, Variant] = {}
        if not missing:
            peers = {WASM: _in_process(), WASM_PIPE: stack.enter_context(_over_a_pipe())}
        taken = interleave({SPARE: waiting.told, **peers}, WARM_ROUNDS, before={SPARE: waiting.renew, **peers})
    asked = [
        Question("a jail that waits: told to first frame", SPARE, WASM, at_most(1)),
        Question("a jail that waits: told to first frame", SPARE, WASM_PIPE),
    ]
    answer("peers-warm.json", taken, asked, missing=missing)


class _Waiting:
    """A jail that has loaded its connector and waits for `invoke`; one at a time."""

    def __init__(self, template: Template, connector: int) -> None:
        self._template = template
        self._connector = connector
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def renew(self) -> None:
        """End the current jail and prepare another."""
        self._end()
        self._child = Child.open(self._template, self._connector, Policy())
        time.sleep(LOADED_S)
        self._template.pump()

    def told(self) -> Measured:
        """Send `invoke`. Return the seconds until the first frame comes back, which is the result."""
        assert self._child is not None
        session, decoder = HostSession(), Decoder(FromJail)
        began = time.perf_counter()
        session.sending(_INVOKE)
        os.write(self._child.frames_in, encode(_INVOKE)[0])
        decoder.feed(read_some(self._child.frames_out))
        frame = decoder.next_frame()
        seconds = time.perf_counter() - began
        assert frame is not None
        assert frame.message == Result(output=_ARGS)
        return Measured([seconds])

    def _end(self) -> None:
        if self._child is not None:
            with self._child as child:
                child.kill()
                child.wait(DEADLINE_S)
            self._child = None


def _in_process() -> Callable[[], None]:
    from benchmarks.wasm_echo import echoing

    echo, message = echoing(), msgspec.msgpack.encode(_ARGS)

    def once() -> None:
        assert echo(message) == message

    return once


@contextlib.contextmanager
def _over_a_pipe() -> Iterator[Callable[[], None]]:
    code = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from benchmarks.wasm_echo import serve; serve()"
    message = msgspec.msgpack.encode(_ARGS)

    def once() -> None:
        os.write(process.stdin, message)
        assert read_some(process.stdout) == message

    with spawned(sys.executable, "-c", code) as process:
        once()  # waits until it has compiled
        yield once


def _missing(why: Mapping[str, str | None]) -> dict[str, str]:
    return {name: reason for name, reason in why.items() if reason is not None}


def _present(peers: Mapping[str, Variant], missing: Mapping[str, str]) -> dict[str, Variant]:
    return {name: peer for name, peer in peers.items() if name not in missing}


if __name__ == "__main__":
    main()
    page.write()
