"""Reports of a connector to the host in addition to its result: log lines, progress, audit facts.

    log.info("page fetched", page=3, items=50)
    progress(3, total=10)
    audit("message_sent", recipients=2)

Each needs its name (`log`, `progress`, `audit`) in the manifest's `[capabilities.runtime] imports`. A log line never makes an
operation fail: a line that is too long is cut. Runs inside the jail; the host marks every report as the connector's own
words.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aileron_connector import loop
from aileron_sandbox.frames import AuditEvent, FrameError, JSONObject, Log, LogLevel, Progress, check_json

__all__ = ["audit", "log", "progress"]

_MAX_LOG_CHARACTERS: Final = 8192
"""Maximum number of characters of one log line. A longer line is a dump, which does not belong in a log."""


class _Logger:
    """Logger with `log.debug`, `log.info`, `log.warning`, `log.error`. Each takes a message and named JSON values."""

    def debug(self, message: str, **fields: Any) -> None:
        """Log a message for the connector's author."""
        self._log("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Log a message about what happened, for any reader."""
        self._log("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Log that there is a problem, although the operation goes on."""
        self._log("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """Log that something has failed."""
        self._log("error", message, fields)

    def _log(self, level: LogLevel, message: str, fields: JSONObject) -> None:
        words = str(message).encode("utf-8", "replace").decode()[:_MAX_LOG_CHARACTERS]
        conversation = loop.current()
        try:
            conversation.send(Log(level=level, message=words, fields=_loggable(fields)))
        except FrameError as error:
            conversation.send(Log(level=level, message=words, fields={"fields_left_out": str(error)}))


log: Final = _Logger()


def progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Report how far the operation is, in a unit of your own."""
    words = None if message is None else message.encode("utf-8", "replace").decode()
    loop.current().send(Progress(done=done, total=total, message=words))


def audit(event: str, **fields: Any) -> None:
    """Add a fact to the audit record, in addition to the host's own entries. Raises TypeError if `fields` are not JSON values.

    A number that the record cannot represent, such as an id of 64 bits, becomes text, and a lone surrogate becomes
    U+FFFD: the recorded effect has usually happened by then, and the operation must not fail because of its record.
    """
    from aileron_connector.carried import recordable  # imported late: most operations record nothing

    loop.current().send(AuditEvent(event=event, fields=recordable(fields)))


def _loggable(fields: JSONObject) -> JSONObject:
    """Return the fields as JSON values. A value without a JSON form becomes its repr."""
    loggable = {}
    for name, value in fields.items():
        try:
            loggable[name] = msgspec.to_builtins(value, builtin_types=(bytes, bytearray), str_keys=True)
            check_json(loggable[name])
        except (TypeError, ValueError, RecursionError, FrameError):
            loggable[name] = repr(value)[:200]
    return loggable
