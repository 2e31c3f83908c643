r"""The lines of a stream or WebSocket of a case, written as in RFCs: `S:` marks the service's lines, `C:` the connector's.

    S: * OK ready
    C: {tag} LOGIN {user} {password}
    S: {tag} OK
    C: ...
    C: .
    S: 250 taken

Pure. Lines of a stream end with CR LF; on a WebSocket each line is a message. `{name}` in a line of the connector matches any
single word. In a line of the service it stands for the word that it last matched. `C: ...` matches any number of lines, up to
a line that matches the script's next line.

>>> script = Script(read_talk(["S: hello", "C: {tag} NOOP", "S: {tag} OK"]))
>>> script.begin(), script.hear(b"a1 NO"), script.hear(b"OP\r\n"), script.expected
(b'hello\r\n', b'', b'a1 OK\r\n', None)

Source: docs/reference/connector-cases.md. Not here: the stream (stub.py), the WebSocket (websocket_service.py). Not for
binary protocols, because their cases would not be readable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Line", "Script", "read_talk"]

_ANY: Final = "..."
_NAME: Final = re.compile(r"\{([a-z]+)\}")
_MAX_LINES: Final = 2000
"""Maximum number of lines of one stream. A person writes and reads these lines."""
_MAX_LINE: Final = 1 << 20
"""Maximum size in bytes of a line that a connector sends. No line-based protocol has longer lines."""
_MAX_SHOWN: Final = 200
"""Maximum number of characters of a line in a message."""


class Line(NamedTuple):
    """A line of a conversation, without its line end. `is_service` is true if the service sends it, false if the
    connector does.
    """

    is_service: bool
    text: str

    @property
    def names(self) -> list[str]:
        """Names of the placeholders in the line, each written `{name}`."""
        return _NAME.findall(self.text)


def read_talk(talk: Sequence[str]) -> tuple[Line, ...]:
    """Parse the lines of a conversation. Raises ValueError, which names the line, if a line is not valid or could never be
    sent.
    """
    lines: list[Line] = []
    heard: set[str] = set()
    for number, raw in enumerate(talk, start=1):
        who, _, said = raw.partition(":")
        if who not in ("S", "C"):
            raise ValueError(f"line {number}, {raw[:60]!r}, begins with neither 'S:' nor 'C:'")
        line = Line(who == "S", said.removeprefix(" "))
        if lines and _is_any(lines[-1]) and (line.is_service or _is_any(line)):
            raise ValueError(
                f"line {number} follows 'C: ...', after which a line of the connector has to say where it ends"
            )
        if line.is_service and (unknown := [name for name in line.names if name not in heard]):
            raise ValueError(f"line {number} says {{{unknown[0]}}}, which no line of the connector before has")
        heard |= set() if line.is_service else set(line.names)
        lines.append(line)
    if not 0 < len(lines) <= _MAX_LINES or _is_any(lines[-1]):
        raise ValueError(f"{len(lines)} lines; from 1 to {_MAX_LINES}, of which the last is not 'C: ...'")
    return tuple(lines)


class Script:
    """The service's part of a conversation.

    For a stream, call `begin` first, then `hear` for all data. For messages, call `said`, then `hear_line` for each message.
    """

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self._left = list(lines)
        self._words: dict[str, str] = {}
        self._waiting = b""

    @property
    def expected(self) -> str | None:
        """The connector's next line as written in the case; None if no further line is expected."""
        return self._left[0].text if self._left else None

    def begin(self) -> bytes:
        """Return the data that the service sends before it receives any."""
        return _stream_of(self.said())

    def hear(self, data: bytes) -> bytes:
        """Return the service's answer to `data`, which the connector sent. Raises ValueError if the data does not match
        the expected lines.
        """
        self._waiting += data
        said = b""
        while b"\n" in self._waiting:
            line, _, self._waiting = self._waiting.partition(b"\n")
            said += _stream_of(self.hear_line(line.removesuffix(b"\r").decode("utf-8", "replace")))
        if len(self._waiting) > _MAX_LINE:
            raise ValueError(f"a line of more than {_MAX_LINE} bytes")
        return said

    def said(self) -> list[str]:
        """Take the service's lines up to the connector's next line from the script, and return them."""
        said = []
        while self._left and self._left[0].is_service:
            said.append(_NAME.sub(lambda name: self._words[name[1]], self._left.pop(0).text))
        return said

    def hear_line(self, line: str) -> list[str]:
        """Return the lines with which the service answers the connector's `line`. Raises ValueError if the line is not
        the expected one.
        """
        is_any = bool(self._left) and _is_any(self._left[0])
        expected = self._left[int(is_any)] if self._left else None
        found = None if expected is None else _pattern(expected).fullmatch(line)
        if found is None and is_any:
            return []
        if found is None:
            wanted = "nothing more" if expected is None else repr(expected.text[:_MAX_SHOWN])
            raise ValueError(f"{line[:_MAX_SHOWN]!r}; expected {wanted}")
        self._words |= found.groupdict()
        del self._left[: 1 + int(is_any)]
        return self.said()


def _stream_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode()


def _is_any(line: Line) -> bool:
    return not line.is_service and line.text == _ANY


def _pattern(line: Line) -> re.Pattern[str]:
    known: set[str] = set()
    pattern = ""
    for at, piece in enumerate(_NAME.split(line.text)):
        if at % 2 == 0:
            pattern += re.escape(piece)
        else:
            pattern += f"(?P={piece})" if piece in known else f"(?P<{piece}>\\S+)"
            known.add(piece)
    return re.compile(pattern)
