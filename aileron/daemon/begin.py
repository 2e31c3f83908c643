"""Do first what takes longest, and then be the daemon: hold the home, harden, and start the template beside the rest.

Runs in the daemon, in its main thread. An interpreter of its own is executed as soon as the home is this process's: it imports
what the template needs, on another processor, while this one reads the settings; is told what to be; and prepares the jails'
root while this one imports the rooms. It is waited for when what it says goes on record (supervise.py).

Order: lock → not dumpable → log → the template's process → settings → what it is to be → everything else.

Not here: what the template does (aileron_sandbox/template), the rooms (supervise.py).
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
"""64 runs have a dozen each; the rest is for callers that wait. A jail has a limit of its own."""
_LOG_BYTES, _LOG_FILES = 5 << 20, 3
_REPEAT_S: Final = 10.0
_log = logging.getLogger(__name__)


def begin(home: Home, tell: Callable[[str], None]) -> int:
    """Be the daemon of `home` until stopped. `tell` is called once: `ready`, or why not. The exit status."""
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


def _be_the_daemon(home: Home, tell: Callable[[str], None]) -> None:
    """Each import comes when it is needed: the template's process waits for none but those at the top of this module."""
    with contextlib.ExitStack() as undo:
        process = _maybe_executed()
        if process is not None:
            undo.callback(process.end)
        # Before it is read: what changes meanwhile is looked at again.
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
    """The template's process; None where there is none to be had now: then it is tried again, and that says why not."""
    with contextlib.suppress(OSError):
        return Begun.execute(interpreter())
    return None


def _settings(home: Home) -> tuple[Settings, Settings]:
    """What config.toml says, and what is in force: where a person decides about some, these as they agreed to them last.

    Before the vault is open nobody can tell whether the copy of what was agreed to is theirs: that is looked at whenever
    something is about to run (decisions/agreements.py).
    """
    from aileron.config import load_settings
    from aileron.daemon.decisions.agreed_settings import AgreedSettings

    wanted = load_settings(home.config)
    agreed = AgreedSettings(home.agreed).maybe_read()
    return wanted, wanted if agreed is None else wanted.with_consented(agreed.consented())


def _told(settings: Settings, process: Begun | None) -> tuple[PythonRuntime, Starting]:
    """The template, which is told what to be. JailUnavailable."""
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
