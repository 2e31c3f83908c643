"""Starts the daemon, with the slowest step first: takes the home's lock, hardens the process, and starts the template in
parallel.

Runs in the daemon, in its main thread. As soon as this process holds the home's lock, it starts a separate interpreter. That
interpreter imports the template's modules on another processor while this process reads the settings. The interpreter is then
told its role, and prepares the jails' root while this process imports supervise.py, which waits for the interpreter before it
records the jail's layers.

Order: lock → not dumpable → log → the template's process → settings → the template's role → everything else.

Not here: what the template does (aileron_sandbox/template), the rooms, which are imported after `ready` (rooms.py).
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aileron import __version__, files
from aileron.daemon.installation import keep_to_one_installation
from aileron.daemon.rendezvous import AlreadyRunning, hold
from aileron.home import Home
from aileron.model.failure import AileronError, FailureClass
from aileron_sandbox import kernel
from aileron_sandbox.begun import Begun, interpreter
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron.config import Settings
    from aileron_sandbox.jail import Starting
    from aileron_sandbox.runtime import PythonRuntime

__all__ = ["begin"]

_DESCRIPTORS: Final = 16384
"""Maximum number of open descriptors of the daemon. 64 runs use about twelve each; the rest is for waiting callers. A jail has
its own limit.
"""
_LOG_BYTES, _LOG_FILES = 5 << 20, 3
_REPEAT_S: Final = 10.0
_log = logging.getLogger(__name__)


def begin(home: Home, tell: Callable[[str], None]) -> int:
    """Run as the daemon of `home` until stopped. Call `tell` exactly once, with `ready` or the reason why the daemon cannot
    start. Return the exit status.
    """
    keep_to_one_installation()
    told = False

    def tell_once(word: str) -> None:
        nonlocal told
        if not told:
            told = True
            tell(word)

    try:
        with hold(home, {"version": __version__}):
            _harden()
            kernel.keep_freed_memory()
            _log_to(home.logs / "daemon.log")
            _be_the_daemon(home, tell_once)
    except AlreadyRunning:
        tell_once("ready")  # another process was faster; the client that started this one can go on
    except (AileronError, JailUnavailable, OSError) as error:
        _log.error("stopped: %s", error)
        tell_once(str(error))
        return 1
    except BaseException:
        _log.exception("stopped by a bug")
        tell_once(f"the daemon failed to start; see {home.logs / 'daemon.log'}")
        raise
    return 0


def _be_the_daemon(home: Home, tell: Callable[[str], None]) -> None:
    """Run the daemon, and call `tell` as `begin` does. Modules are imported only when needed, so that only this module's
    top-level imports delay the template's process.
    """
    with contextlib.ExitStack() as undo:
        process = _maybe_executed()
        if process is not None:
            undo.callback(process.end)
        # Taken before the file is read: a change in between is then noticed at the next check.
        stamp = files.stamp(home.config, follow_symlinks=True)
        wanted, settings = _settings(home)
        runtime, starting = _told(settings, process)
        undo.callback(starting.close)
        try:
            from aileron.daemon.supervise import supervise
            from aileron.executor.jails import Jails
        except ImportError as error:
            message = f"aileron is not installed completely: {error}; install it again"
            raise AileronError(FailureClass.INTERNAL_ERROR, message) from error
        with contextlib.closing(Jails(runtime, settings.sandbox_mode, starting=starting)) as jails:
            supervise(home, wanted, settings, stamp, jails, tell)


def _maybe_executed() -> Begun | None:
    """Start the template's process. Return None if that fails; a later attempt reports the reason."""
    with contextlib.suppress(OSError):
        return Begun.execute(interpreter())
    return None


def _settings(home: Home) -> tuple[Settings, Settings]:
    """Return the settings of config.toml, and the settings in force. In the latter, settings that need consent have the values
    that a person approved last.

    While the vault is locked, the copy of the approved settings cannot be verified. It is verified whenever a run is about to
    start (consent_service/consent_checks.py).
    """
    from aileron.config import load_settings
    from aileron.daemon.consent_service.approved_settings import ApprovedSettings

    wanted = load_settings(home.config)
    agreed = ApprovedSettings(home.agreed).maybe_read()
    return wanted, wanted if agreed is None else wanted.with_consented(agreed.consented())


def _told(settings: Settings, process: Begun | None) -> tuple[PythonRuntime, Starting]:
    """Give the template its runtime and its sandbox mode, in the already started `process` or, if that is None, in a new
    one. Return the runtime and the starting template. Raises JailUnavailable if the template cannot run.
    """
    from aileron.daemon.runtime import connector_runtime
    from aileron_sandbox.jail import Template

    runtime = connector_runtime()
    return runtime, Template.begin(runtime, mode=settings.sandbox_mode, begun=process)


def _harden() -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    os.umask(0o077)


class _Seldom(logging.Filter):
    """A log filter that passes the message "no connection can be accepted" at most once in ten seconds.

    Without a free descriptor, asyncio stops accepting connections for a second, and logs this a hundred times each second.
    These messages would push all others out of the log's few files within minutes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the log record may be written."""
        if "out of system resource" not in str(record.msg):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _REPEAT_S
        return True


def _log_to(path: Path) -> None:
    """Write the log to a file. Redirect standard error to that file too, because the template writes its last error messages
    there.
    """
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_Seldom())
    if not sys.stderr.isatty() and handler.stream is not None:
        os.dup2(handler.stream.fileno(), 2)
