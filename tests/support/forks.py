"""Aileron's processes with everything imported: forked from a process that has, instead of exec'ed.

A daemon imports for half a second, a command for a third of one. Tests that start a thousand of them, and are about what they
do, start them here. Tests of the start itself (arguments of the kernel's, the environment of an interpreter, the imports of a
command, the entries in /proc) start a real process, and so does the first use of each command in a run (tests/cli/command.py).

As in the jail's template: the server has one thread, opens nothing, and knows nothing of any test. A child gets its arguments,
environment, directory and descriptors from the process that asks; signals and streams are as at an interpreter's start.

Passphrases are derived once for all of them (derived.py).

Connectors in an ordinary process (plain_host.py) have a server of their own, which has imported what the template has, and
nothing of Aileron.

Runs in the process of the tests (`start`) and as `python -m tests.support.forks FD [FOLDER]` (the server), which ends with them.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import dataclasses
import gc
import importlib
import io
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Literal, NoReturn, get_args

__all__ = ["Child", "can_fork", "run", "start"]

ROOT: Final = Path(__file__).resolve().parents[2]
_LOADED: Final = (
    "aileron.daemon.rooms",
    "aileron.daemon.supervise",
    "aileron.cli.app",
    "aileron.cli.typer_app",
    "aileron.client",
    "anyio._backends._asyncio",
    "hypercorn.asyncio",
    "pyseccomp",
    "tomlkit",
)
"""Modules that the server imports once, with all that they import."""
CONNECTOR: Final = "tests.support.connector_main"
"""The module whose processes are connectors."""
_LOADED_BY_CONNECTORS: Final = (
    CONNECTOR,
    "aileron_connector.rehearsal",
    "html",
    "inspect",
    "textwrap",
    "xml.etree.ElementTree",
    "zlib",
)
"""Modules that the template imports before there is a jail (aileron/daemon/runtime.py)."""
_COMMANDS: Final = "aileron.cli.commands"
"""The package whose modules are imported when a command is called."""
_MAX_REQUEST: Final = 128 << 10
"""Bytes of one request: a packet of a Unix socket, net.core.wmem_default is 208 KiB (unix(7))."""
_READY_S: Final = 60.0
_AT_START: Final = (sys.stdin, sys.stdout, sys.stderr)
"""Standard streams of this process as its interpreter set them up: encoding, and how they treat characters that do not fit."""
_ABOUT_PYTHON: Final = ("PYTHON", "LC_", "LANG")
"""Variables by which an interpreter sets itself up: another value needs another interpreter."""


class Child:
    """A process, as far as tests use `subprocess.Popen`: `pid`, `wait`, `poll`, `send_signal`, `returncode`."""

    def __init__(self, pid: int, status: int, args: Sequence[str]) -> None:
        """Take the descriptor `status`, from which the exit status is read; this object closes it."""
        self.pid = pid
        self.args = list(args)
        self.returncode: int | None = None
        self._status = status

    def __del__(self) -> None:
        """Close the descriptor without waiting: tests leave daemons running."""
        os.close(self._status)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it. subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            said = os.read(self._status, 64)
            if not said:
                raise RuntimeError("the server of forked processes ended")
            self.returncode = int(said)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(_READY_S)


@dataclasses.dataclass(frozen=True)
class _Request:
    """A request for a child: `module` has a `main`, called with `arguments` or, if it takes none, finding them in sys.argv."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    descriptors: list[int]
    has_own_session: bool
    has_terminal: bool


is_allowed = True
"""False in tests that need every process to be a real one (`real_processes` in tests/conftest.py)."""


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether an interpreter with this environment would be set up like the server's, and no test requires a real one."""
    return is_allowed and all(
        environment.get(name) == os.environ.get(name)
        for name in {*environment, *os.environ}
        if name.startswith(_ABOUT_PYTHON)
    )


def start(
    module: str,
    arguments: Sequence[str],
    *,
    descriptors: Mapping[int, int],
    environment: Mapping[str, str],
    directory: str | Path | None = None,
    has_own_session: bool = False,
    has_terminal: bool = False,
) -> Child:
    """Run `module`'s `main` in a process with these `descriptors` only (number there → number here), in `directory` or here.

    `has_terminal`: its standard input is a terminal, and becomes the one that controls its session.
    """
    request = _Request(
        module=module,
        arguments=list(arguments),
        environment=dict(environment),
        directory=str(directory or Path.cwd()),
        descriptors=list(descriptors),
        has_own_session=has_own_session or has_terminal,
        has_terminal=has_terminal,
    )
    packet = json.dumps(dataclasses.asdict(request)).encode("utf-8", "surrogateescape")
    if len(packet) > _MAX_REQUEST:
        raise ValueError(f"{len(packet)} bytes of arguments and environment: start a real process")
    status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = _server(is_for_connectors=module == CONNECTOR)
        socket.send_fds(server, [packet], [theirs.fileno(), *descriptors.values()])
    with status:
        said = status.recv(64)
        if not said:
            raise RuntimeError("the server of forked processes ended")
        return Child(int(said), status.detach(), [module, *arguments])


def run(
    module: str,
    arguments: Sequence[str],
    *,
    given: bytes | None,
    environment: Mapping[str, str],
    timeout: float,
    directory: str | Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `module` in `directory` or here, as `subprocess.run` does with `input=given` and `capture_output`.

    After `timeout` seconds, kills the process and raises subprocess.TimeoutExpired.
    """
    with contextlib.ExitStack() as stack:
        read, write = _pipe(stack), _pipe(stack)
        typed = _pipe(stack) if given is not None else (stack.enter_context(open(os.devnull, "rb")), None)
        ends = {0: typed[0], 1: read[1], 2: write[1]}
        child = start(
            module,
            arguments,
            descriptors={number: end.fileno() for number, end in ends.items()},
            environment=environment,
            directory=directory,
        )
        for end in ends.values():
            end.close()
        with concurrent.futures.ThreadPoolExecutor(3) as streams:
            out, err = streams.submit(read[0].read), streams.submit(write[0].read)
            if typed[1] is not None:
                streams.submit(_typed, typed[1], given or b"")
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
            return subprocess.CompletedProcess(child.args, code, out.result(timeout), err.result(timeout))


def _pipe(stack: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return stack.enter_context(open(read, "rb")), stack.enter_context(open(write, "wb", buffering=0))


def _typed(to: IO[bytes], given: bytes) -> None:
    with to, contextlib.suppress(BrokenPipeError):
        to.write(given)


_lock = threading.Lock()
_running: dict[tuple[int, bool], socket.socket] = {}
"""The servers' sockets, by process, as a fork of the tests' process has none, and by whether the server is that of connectors."""


def _server(*, is_for_connectors: bool) -> socket.socket:
    with _lock:
        which = os.getpid(), is_for_connectors
        if which not in _running:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                _start_server(theirs.fileno(), is_for_connectors=is_for_connectors)
            if not select.select([ours], [], [], _READY_S)[0] or ours.recv(16) != b"ready":
                raise RuntimeError("the server of forked processes did not start")
            _running[which] = ours
            atexit.register(ours.close)
        return _running[which]


def _start_server(control: int, *, is_for_connectors: bool) -> None:
    from tests.support import derived

    kept = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
    subprocess.Popen(
        [
            *(sys.executable, "-s", "-m", "tests.support.forks", str(control)),
            *([] if is_for_connectors else [str(derived.folder())]),
        ],
        pass_fds=[control],
        stdin=subprocess.DEVNULL,
        env={} if is_for_connectors else kept,  # a connector's is empty, and sets its interpreter up
        cwd=ROOT,
        start_new_session=True,
    ).returncode = 0  # ends with our end of the socket; Popen would warn


def _load() -> None:
    for name in _LOADED:
        importlib.import_module(name)
    folder = Path(str(importlib.import_module(_COMMANDS).__file__)).parent
    for path in sorted(folder.glob("[a-z]*.py")):
        importlib.import_module(f"{_COMMANDS}.{path.stem}")


def _serve(control: socket.socket) -> None:
    """Fork on request. Report each child's process id and, at its end, its status."""
    woken, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    told: dict[int, socket.socket] = {}
    control.send(b"ready")
    sources: list[socket.socket | int] = [control, woken]
    while True:
        ready = select.select(sources, [], [])[0]
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(told)
        if control not in ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, 16)
        if not packet:
            return
        status = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            _become(_Request(**json.loads(packet.decode("utf-8", "surrogateescape"))), descriptors[1:])
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        told[pid] = status
        with contextlib.suppress(OSError):
            status.send(str(pid).encode())


def _reap(told: dict[int, socket.socket]) -> None:
    while told:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        with told.pop(pid) as asked, contextlib.suppress(OSError):  # nobody waits for a daemon
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: _Request, descriptors: list[int]) -> NoReturn:
    """Turn this child into the requested process, and run it to its end."""
    code = 1
    try:
        _take(request, descriptors)
        code = _run(request)
    except BaseException:  # noqa: BLE001 - as an interpreter's last words
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = 120  # as Python's own, Py_FinalizeEx
        os._exit(code)


def _take(request: _Request, descriptors: list[int]) -> None:
    """Take over the descriptors, session, directory, environment, signals and streams of the request."""
    import fcntl
    import termios

    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 1000) for descriptor in descriptors]
    wanted = dict(zip(request.descriptors, high, strict=True))
    os.closerange(3, 1000)
    for number, descriptor in wanted.items():
        os.dup2(descriptor, number)
    os.closerange(1000, 1000 + len(high))
    if request.has_own_session:
        os.setsid()
    if request.has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    sys.argv = [f"{ROOT}/{request.module.replace('.', '/')}.py", *request.arguments]
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")


def _stream(descriptor: int, mode: Literal["r", "w"]) -> io.TextIOWrapper:
    """Return a standard stream, set up as Python does it (pylifecycle.c, create_stdio)."""
    is_terminal = os.isatty(descriptor)
    like = _AT_START[descriptor]
    made = open(descriptor, mode, encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115 - until the end
    if mode == "w":
        made.reconfigure(line_buffering=is_terminal or descriptor == 2)
    return made


def _run(request: _Request) -> int:
    main = importlib.import_module(request.module).main
    try:
        done = main(sys.argv[1:]) if main.__code__.co_argcount else main()
    except SystemExit as ended:
        done = ended.code
    if done is None or isinstance(done, int):
        return (done or 0) & 0xFF
    sys.stderr.write(f"{done}\n")
    return 1


def _get_ready_for_aileron(folder: Path) -> None:
    from starlette.routing import compile_path

    from aileron.api.routes import ROUTES
    from aileron_sandbox import filters
    from aileron_sandbox.policy import Profile
    from aileron_sandbox.runtime import PythonRuntime
    from tests.support import derived

    _load()
    derived.remember(folder)
    PythonRuntime.of_this_interpreter()  # which libraries it loads: asked once, by an interpreter of its own
    for route in ROUTES:
        compile_path(route.path)  # re remembers what it compiled: a fifth of a daemon's start
    for profile in get_args(Profile):
        filters.compile_profile(profile, "namespaces")


def main(arguments: list[str]) -> int:
    """Run the server; without FOLDER the one of connectors."""
    control = socket.socket(fileno=int(arguments[0]))
    if len(arguments) > 1:
        _get_ready_for_aileron(Path(arguments[1]))
    else:
        for name in _LOADED_BY_CONNECTORS:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children share these pages as long as nobody counts what lies there
    _serve(control)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
