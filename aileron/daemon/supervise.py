"""The daemon's process: what it is before anybody asks it anything, and how it starts and stops.

It runs as one process per user and home, holds the vault's key while unlocked, and is not dumpable: another process of the user
cannot attach and read it (prctl(2), PR_SET_DUMPABLE).

Order: lock → log → template → ledger → recovery (what ran when the last daemon ended is `unknown`) → sockets → `ready` → the
rooms, with the first connection (rooms.py). Each module that is imported here is in front of whoever starts the daemon.

Rules
- What can keep a daemon from starting is found before `ready`: settings, ports, certificates, the jail, the ledger.
- If the rooms cannot be built after it, whoever waits is told why, and the daemon ends.
- What is imported after it is of the installation that was started, or is refused (installation.py).

Source: docs/adr/0072-rooms-imported-when-first-used.md. Not here: the rooms (rooms.py).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import logging
import logging.handlers
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

import aileron_sandbox
from aileron import __version__, files
from aileron.audit.log import Audit
from aileron.config import Settings, keep_port, load_settings
from aileron.daemon.decisions.agreed_settings import AgreedSettings
from aileron.daemon.http.ports import listen_on, listen_on_loopback
from aileron.daemon.installation import keep_to_one_installation
from aileron.daemon.rendezvous import AlreadyRunning, HomeListeners, hold, listen_in, refuse_all
from aileron.executor.jails import Jails
from aileron.home import Home
from aileron.ingress.certificate import certificate_names, tls_context
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, FailureClass
from aileron_sandbox import kernel
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron.daemon.rooms import Rooms

__all__ = ["supervise"]

_DESCRIPTORS: Final = 16384
"""64 runs have a dozen each; the rest is for callers that wait. A jail has a limit of its own."""
BUILD_AFTER_S: Final = 5.0
"""After `ready` the rooms are built though nobody connects: sessions end, and settings are looked at, whether anybody asks or
not. Whoever started the daemon has connected long before."""
_LOG_BYTES, _LOG_FILES = 5 << 20, 3
_REPEAT_S: Final = 10.0
_PRELOAD: Final = (
    "aileron_connector",
    "aileron_connector.rehearsal",
    "msgspec",
    "base64",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "re",
    "string",
    "textwrap",
    "typing",
    "urllib.parse",
    "xml.etree.ElementTree",
    "zipimport",
)
"""What connectors commonly import: done once in the template instead of in every jail. Never `random`: its state would be
the same in all of them."""
_REHEARSAL: Final = "from aileron_connector.rehearsal import rehearse\nrehearse()\n"
_log = logging.getLogger(__name__)


def supervise(home: Home, tell: Callable[[str], None]) -> int:
    """Be the daemon of `home` until stopped. `tell` is called once: `ready`, or why not. The exit status."""
    keep_to_one_installation()
    told = False

    def tell_once(word: str) -> None:
        nonlocal told
        if not told:
            told = True
            tell(word)

    try:
        with hold(home, {"version": __version__, "started_at": time.time()}):
            _harden()
            kernel.keep_freed_memory()
            _log_to(home.logs / "daemon.log")
            read = files.stamp(
                home.config, follow_symlinks=True
            )  # before it is read: what changes meanwhile is looked at again
            anyio.run(_Daemon(home, load_settings(home.config), read).run, tell_once)
    except AlreadyRunning:
        tell_once("ready")  # somebody else was faster; whoever asked can go on
    except (AileronError, JailUnavailable, OSError) as error:
        _log.error("stopped: %s", error)
        tell_once(str(error))
        return 1
    except BaseException:
        _log.exception("stopped by a bug")
        tell_once(f"the daemon failed to start; see {home.logs / 'daemon.log'}")
        raise
    return 0


class _Daemon:
    """The process, from its settings to its stop. One use."""

    def __init__(self, home: Home, wanted: Settings, read: files.Stamp | None) -> None:
        self._home = home
        self._read = read
        self._port, self._loopback = listen_on_loopback(wanted.daemon_port)
        if wanted.daemon_port is None:
            keep_port(home.config, self._port)
        self._wanted = dataclasses.replace(wanted, daemon_port=self._port)
        self._settings = _in_force(home, self._wanted)
        self._elsewhere = _elsewhere(self._settings)
        # Before the event loop and in the main thread: the template must not outlive or predecease it (jails.py).
        self._jails = Jails(_runtime(), self._settings.sandbox_mode)

    async def run(self, tell: Callable[[str], None]) -> None:
        failed: Exception | None = None
        try:
            with Ledger.open(self._home.ledger, self._home.path, __version__) as ledger:
                audit = Audit(ledger)
                await audit.recover()
                await audit.daemon_started(__version__, self._jails.layers)
                sockets = listen_in(self._home)
                failed = await self._serve(audit, ledger, anyio.Event(), sockets, tell)
        finally:
            self._jails.close()
        if failed is not None:
            refuse_all(sockets, failed)  # at the very end: whoever comes after it can start another daemon
            raise failed
        _log.info("stopped")

    async def _serve(
        self,
        audit: Audit,
        ledger: Ledger,
        stopping: anyio.Event,
        sockets: HomeListeners,
        tell: Callable[[str], None],
    ) -> Exception | None:
        """Be ready, and leave the rest to the rooms as soon as there is somebody to answer. Why they could not be built."""
        async with anyio.create_task_group() as background:
            background.start_soon(self._jails.serve)
            background.start_soon(_stop_on_signal, stopping)
            # Listening before "ready": a client that connects in between waits in the backlog.
            _log.info("ready: version %s, pid %s, layers %s", __version__, os.getpid(), " ".join(self._jails.layers))
            tell("ready")
            await _somebody(stopping, [*sockets, *self._loopback, *self._listening_elsewhere()])
            if not stopping.is_set():
                try:
                    rooms = await self._built(audit, ledger, stopping, sockets)
                except Exception as error:  # noqa: BLE001 - told to whoever waits, and raised
                    _log.error("nothing can be answered: %s", error)
                    background.cancel_scope.cancel()
                    return error
                await rooms.serve()
            background.cancel_scope.cancel()
        await audit.daemon_stopped(__version__)
        return None

    async def _built(self, audit: Audit, ledger: Ledger, stopping: anyio.Event, sockets: HomeListeners) -> Rooms:
        """Every room, which is imported only now: a hundred modules of ours, and the HTTP server."""
        from aileron.daemon.rooms import Rooms, Start

        rooms = Rooms(
            Start(
                home=self._home,
                settings=self._settings,
                wanted=self._wanted,
                read=self._read,
                port=self._port,
                ledger=ledger,
                audit=audit,
                jails=self._jails,
                stopping=stopping,
                sockets=sockets,
                loopback=self._loopback,
                elsewhere=self._elsewhere,
            )
        )
        await rooms.build()
        return rooms

    def _listening_elsewhere(self) -> list[socket.socket]:
        return [] if self._elsewhere is None else [self._elsewhere[0]]


async def _somebody(stopping: anyio.Event, listeners: Sequence[socket.socket]) -> None:
    """Wait for a connection, for BUILD_AFTER_S at most, or until told to stop."""
    with anyio.move_on_after(BUILD_AFTER_S):
        async with anyio.create_task_group() as waiting:

            async def wait(for_one: Callable[[], Awaitable[None]]) -> None:
                await for_one()
                waiting.cancel_scope.cancel()

            waiting.start_soon(wait, stopping.wait)
            for listener in listeners:
                waiting.start_soon(wait, functools.partial(anyio.wait_readable, listener))


async def _stop_on_signal(stopping: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("told to stop by %s", signal.Signals(number).name)
            stopping.set()


def _in_force(home: Home, wanted: Settings) -> Settings:
    """The settings to run with: those of config.toml, but where a person decides about some, these as they agreed to them last.

    Before the vault is open nobody can tell whether the copy of what was agreed to is theirs: that is looked at whenever
    something is about to run (decisions/agreements.py).
    """
    agreed = AgreedSettings(home.agreed).maybe_read()
    return wanted if agreed is None else wanted.with_consented(agreed.consented())


def _elsewhere(settings: Settings) -> tuple[socket.socket, list[str]] | None:
    """What `daemon.listen` asks for: a listening socket, and the names it is asked for by. What it shows is read by ingress;
    that it can be shown is found out here, before anything is served.
    """
    address, pem, key = settings.daemon_listen, settings.daemon_certificate_pem, settings.daemon_certificate_key
    if address is None or pem is None or key is None:
        return None
    tls_context(pem, key)
    names = [str(address), *(f"{name}:{address.port}" for name in certificate_names(pem))]
    return listen_on(address), names


def _runtime() -> PythonRuntime:
    sandbox = Path(aileron_sandbox.__file__).resolve().parent
    return PythonRuntime.of_this_interpreter(
        packages={
            "msgspec": Path(msgspec.__file__).resolve().parent,
            "aileron_connector": _folder("aileron_connector"),
            "aileron_sandbox/__init__.py": sandbox / "__init__.py",
            "aileron_sandbox/frames": sandbox / "frames",
        },
        preload=_PRELOAD,
        rehearsal=_REHEARSAL,
    )


def _folder(package: str) -> Path:
    """Where a package lies, without importing it: what is made for jails has no business in the daemon."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise AileronError(
            FailureClass.INTERNAL_ERROR, f"{package} is not installed with aileron: install aileron again"
        )
    return Path(spec.origin).resolve().parent


def _harden() -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    os.umask(0o077)


class _Seldom(logging.Filter):
    """That no connection can be accepted is said once in ten seconds.

    Without a free descriptor asyncio stops accepting for a second, and says so a hundred times each second: all else that
    the log's few files hold would be gone within minutes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is written."""
        if "out of system resource" not in str(record.msg):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _REPEAT_S
        return True


def _log_to(path: Path) -> None:
    """The daemon's log, and standard error with it: the template's last words come that way."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_Seldom())
    if not sys.stderr.isatty() and handler.stream is not None:
        os.dup2(handler.stream.fileno(), 2)
