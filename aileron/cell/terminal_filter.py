r"""A filter that makes a cell's terminal output safe for the person's terminal. It is a pure state machine over bytes.

All output of a cell is hostile. A list has the sequences that pass (terminal_rules.py); everything else is dropped, including
unknown sequences. A sequence that passes is complete, in 7-bit controls and of one strict grammar, so that no terminal reads
it differently than the filter. The filter remembers the modes that were turned on, and `finish` turns them off.

    filter = TerminalFilter()
    os.write(1, filter.feed(data))
    os.write(1, filter.finish())

>>> TerminalFilter().feed(b"\x1b[1mhello\x1b]52;c;cm0=\a")
b'\x1b[1mhello'

Rules
- The output does not depend on how the input is split: incomplete sequences are stored until the rest arrives.
- At most MAX_KEPT bytes are stored. A longer sequence is dropped up to its end without being stored.
- The terminal is expected to read UTF-8. For a terminal that does not (`is_utf8=False`), only ASCII passes, because a byte of
  a letter can be a control there.
- `pause` and `resume` are for a person who stops the agent (Ctrl-Z): `pause` does what `finish` does, and `resume` undoes it.

Source: ECMA-48; the parser of Paul Williams (vt100.net/emu/dec_ansi_parser) for where sequences end; Unicode 15,
table 3-7. Not here: typed input (it passes unchanged), Aileron's own text (model/visible.py).
"""

from __future__ import annotations

import re
from typing import Final

from aileron.cell.terminal_rules import MODES

__all__ = ["MAX_KEPT", "TerminalFilter"]

MAX_KEPT: Final = 4096
"""Maximum number of bytes that are stored of one unfinished sequence. A link of the maximum length (_MAX_LINK) fits,
with its parameters; the titles that shells set are much shorter.
"""
_MAX_CSI: Final = 256
"""Maximum number of bytes of one control sequence: all attributes and three colors of SGR take 80."""
_MAX_TITLE: Final = 120
"""Maximum number of characters of a title: more do not fit into a window's title."""
_MAX_STACK: Final = 8
"""Maximum depth of the stacks that a program can push to: titles, and keyboard states. xterm stores 10 titles, and
would then drop the oldest, which is the person's.
"""

_UTF8 = (
    rb"(?:[\xc3-\xdf][\x80-\xbf]|\xc2[\xa0-\xbf]"
    rb"|(?:[\xe1-\xec\xee\xef][\x80-\xbf]|\xe0[\xa0-\xbf]|\xed[\x80-\x9f])[\x80-\xbf]"
    rb"|(?:[\xf1-\xf3][\x80-\xbf]|\xf0[\x90-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]{2})"
)
_UTF8_BEGUN = re.compile(
    rb"(?:[\xc2-\xdf]|(?:[\xe1-\xec\xee\xef]|\xe0|\xed)|\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf]"
    rb"|[\xf0-\xf4]|(?:[\xf1-\xf3][\x80-\xbf]|\xf0[\x90-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]?)\Z"
)
_DRAWING = rb"\x1b\[(?:[0-9:;]{0,200}m|[0-9]{0,5}(?:;[0-9]{0,5})?[@A-ILMPSXZ`abdef]|[0-9]{0,5}T|[0-2]?[JK]|[su])"
"""Pattern of control sequences that only draw in the window."""
# No possessive quantifier behind a group: before Python 3.11.5 it may count what did not match (gh-106052); Debian 12 has 3.11.2.
_PLAIN = re.compile(rb"(?:[\x07-\x0d\x20-\x7e]++|" + _UTF8 + rb"|" + _DRAWING + rb")+")
_PLAIN_ASCII = re.compile(rb"(?:[\x07-\x0d\x20-\x7e]++|" + _DRAWING + rb")+")
_TEXT_ONLY = re.compile(rb"[\x07-\x0d\x20-\x7e]*+")

_SEQUENCE = re.compile(rb"\x1b\[([\x20-\x3f]*+)([\x40-\x7e])")
_SEQUENCE_BEGUN = re.compile(rb"\x1b\[[\x20-\x3f]*+")
_STRICT = re.compile(rb"([<=>?]?)([0-9:;]*)([ -/]*)")
_ESCAPE_BEGUN = re.compile(rb"\x1b[\x20-\x2f]*+")
_END_OF_OSC = re.compile(rb"[\x07\x18\x1a\x1b]")
_NUMBERS = re.compile(rb"[0-9]{1,5}(?:;[0-9]{1,5})*")
_COLOR_QUERY = re.compile(rb"(?:4(?:;[0-9]{1,3};\?){1,256}|1[012];\?)")
_PROGRESS = re.compile(rb"9;4;[0-4](?:;[0-9]{0,3})?")
_TITLE = re.compile(rb"([012]);(.*)", re.DOTALL)
_LINK = re.compile(
    rb"8;(?:id=[A-Za-z0-9_.:/-]{0,250})?;"
    rb"(?:https?://[A-Za-z0-9.:\[\]_-]{1,255}(?:[/?#][\x21-\x7e]{0,2083})?)?"
)
_MAX_LINK: Final = 2083
"""Maximum number of bytes of a link's address, the same as in VTE."""

# Where dropped sequences end: patterns for the first byte that no longer belongs to each kind.
_END_OF_STRING = re.compile(rb"[\x18\x1a\x1b]")
_END_OF_SEQUENCE = re.compile(rb"[^\x20-\x3f]")
_END_OF_ESCAPE = re.compile(rb"[^\x20-\x2f]")

_ESCAPES = frozenset(b"78DEM=>")
_CHARACTER_SETS = frozenset({b"(0", b"(B", b")0", b")B"})
_STRINGS = frozenset(b"PX^_k")
_ALTERNATE = (1049, 1047, 47)
_SYNCHRONIZED = 2026


_REPORTING: Final = frozenset({9, 1000, 1002, 1003, 1004, 2031, 2048})
"""Modes in which a terminal sends reports without being queried: about the mouse, focus, colors and size."""


class TerminalFilter:
    """The filter of one stream of terminal output, with a record of the modes that the output has turned on."""

    def __init__(self, *, is_utf8: bool = True) -> None:
        self.questions = 0
        """Number of sequences that passed and make the terminal send something: queries, and modes with reports."""
        self._plain = _PLAIN if is_utf8 else _PLAIN_ASCII
        self._is_utf8 = is_utf8
        self._kept = b""
        self._skipping: re.Pattern[bytes] | None = None
        self._forget()

    def _forget(self) -> None:
        """Reset the record of everything that the output changed in the terminal: modes, titles, keyboard states and others."""
        self._modes: dict[int, bool] = {}
        self._keyboards: dict[bool, list[bytes]] = {False: [], True: []}  # key: True for the alternate screen
        self._titles = 0
        self._title: bytes | None = None  # the agent's, while the person's is pushed below it
        self._region: bytes | None = None
        self._cursor: bytes | None = None
        self._other_keys: bytes | None = None
        self._is_keypad_on = self._is_inserting = self._is_linked = self._has_escaped = False
        self._progress: bytes | None = None
        self._sets: dict[bytes, bytes] = {}
        self._is_shifted = False

    def feed(self, data: bytes) -> bytes:
        """Accept more output of the cell, and return the bytes that can be written to the person's terminal now."""
        if not self._kept and self._skipping is None and _TEXT_ONLY.fullmatch(data):
            return data
        data = self._kept + data
        self._kept = b""
        out: list[bytes] = []
        at = 0
        while at < len(data):
            at = self._skip(data, at) if self._skipping is not None else self._step(data, at, out)
        return b"".join(out)

    def finish(self) -> bytes:
        """Return the bytes that revert the output's changes to the terminal, and reset the filter. An unfinished
        sequence is dropped.
        """
        undone = self.pause()
        self._kept = b""
        self._skipping = None
        self._forget()
        return undone

    def pause(self) -> bytes:
        """Return the bytes that revert the output's changes to the terminal until `resume`. An open link ends permanently."""
        modes = {number for number, is_on in self._modes.items() if is_on != MODES[number]}
        is_alternate = self._is_alternate
        out = [_mode(_SYNCHRONIZED, False)] if _SYNCHRONIZED in modes else []
        out += [b"\x1b]8;;\x1b\\"] if self._is_linked else []
        out += [b"\x1b]9;4;0\x1b\\"] if self._progress is not None else []
        out += [_pops(self._keyboards[True])] if is_alternate else []
        out += [_mode(number, False) for number in _ALTERNATE if number in modes]
        out += [_pops(self._keyboards[False])]
        out += [_mode(number, MODES[number]) for number in sorted(modes - {_SYNCHRONIZED, 1048, *_ALTERNATE})]
        out += [b"\x1b[>4m"] if self._other_keys is not None else []
        out += [b"\x1b[0 q"] if self._cursor is not None else []
        out += [b"\x1b>"] if self._is_keypad_on else []
        out += [b"\x1b[4l"] if self._is_inserting else []
        out += [b"\x1b7\x1b[r\x1b8"] if self._region is not None else []  # setting a region moves the cursor
        out += [b"\x0f"] if self._is_shifted else []
        out += [b"\x1b" + which + b"B" for which, name in sorted(self._sets.items()) if name != b"B"]
        out += [b"\x1b[0m"] if self._has_escaped else []
        out += [b"\x1b[23;0t"] * (self._titles + (self._title is not None))
        self._is_linked = False
        return b"".join(out)

    def resume(self) -> bytes:
        """Return the bytes that turn the modes on again that `pause` turned off. The agent redraws the screen itself."""
        modes = {number: is_on for number, is_on in self._modes.items() if is_on != MODES[number]}
        out = [b"\x1b[22;0t" + self._title] if self._title is not None else []
        out += [b"\x1b[22;0t"] * self._titles
        out += [_pushes(self._keyboards[False])]
        out += [_mode(number, True) for number in reversed(_ALTERNATE) if number in modes]
        out += [_pushes(self._keyboards[True])] if self._is_alternate else []
        out += [_mode(number, is_on) for number, is_on in sorted(modes.items()) if number not in (1048, *_ALTERNATE)]
        out += [given for given in (self._other_keys, self._cursor, self._region, self._progress) if given is not None]
        out += [b"\x1b="] if self._is_keypad_on else []
        out += [b"\x1b[4h"] if self._is_inserting else []
        out += [b"\x1b" + which + name for which, name in sorted(self._sets.items())]
        out += [b"\x0e"] if self._is_shifted else []
        return b"".join(out)

    @property
    def _is_alternate(self) -> bool:
        return any(self._modes.get(number) for number in _ALTERNATE)

    # Reading

    def _skip(self, data: bytes, at: int) -> int:
        """Skip the rest of a dropped escape sequence in `data`. Return the position after it, or the end of the data if
        the sequence continues.
        """
        assert self._skipping is not None
        end = self._skipping.search(data, at)
        if end is None:
            return len(data)
        is_last = b"0" <= end[0] <= b"~" or (end[0] == b"\a" and self._skipping is _END_OF_OSC)
        self._skipping = None
        return end.start() + is_last

    def _step(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Filter the plain text or the escape sequence that begins at `at`, and add what passes to `out`. Return the
        position after it.
        """
        run = self._plain.match(data, at)
        if run is not None:
            text = run[0]
            self._has_escaped = self._has_escaped or b"\x1b" in text
            out.append(text)
            return run.end()
        first = data[at]
        if first == 0x1B:
            return self._escape(data, at, out)
        if first >= 0x80:
            return self._beyond_ascii(data, at, out)
        if first in (0x0E, 0x0F):
            self._is_shifted = first == 0x0E
            out.append(data[at : at + 1])
        return at + 1

    def _beyond_ascii(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Filter a byte above 0x7F that does not begin a complete UTF-8 character: drop an 8-bit control, store an
        incomplete character for the next call, and replace any other byte. Return the next position.
        """
        if not self._is_utf8:
            out.append(b"?")
            return at + 1
        if data[at] == 0xC2 and data[at + 1 : at + 2] and 0x80 <= data[at + 1] <= 0x9F:
            return at + 2
        if len(data) - at < 4 and _UTF8_BEGUN.match(data, at):
            return self._keep(data, at)
        out.append(b"\xef\xbf\xbd")
        return at + 1

    def _escape(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Filter an escape sequence that begins with ESC at `at`, and add what passes to `out`. Return the position
        after it.
        """
        if at + 1 == len(data):
            return self._keep(data, at)
        second = data[at + 1]
        if second == 0x5B:
            return self._control_sequence(data, at, out)
        if second == 0x5D:
            return self._command(data, at, out)
        if second in _STRINGS:
            self._skipping = _END_OF_STRING
            return at + 2
        if 0x20 <= second <= 0x2F:
            return self._designation(data, at, out)
        if second == 0x63:
            out += [self.finish(), b"\x1b[H\x1b[2J"]
        elif second in _ESCAPES:
            self._has_escaped = True
            if second in b"=>":
                self._is_keypad_on = second == 0x3D
            out.append(data[at : at + 2])
        return at + 2 if 0x30 <= second <= 0x7E else at + 1

    def _designation(self, data: bytes, at: int, out: list[bytes]) -> int:
        if at + 2 == len(data):
            return self._keep(data, at)
        if data[at + 1 : at + 3] in _CHARACTER_SETS:
            self._has_escaped = True
            self._sets[data[at + 1 : at + 2]] = data[at + 2 : at + 3]
            out.append(data[at : at + 3])
            return at + 3
        self._skipping = _END_OF_ESCAPE
        return at + 2

    def _control_sequence(self, data: bytes, at: int, out: list[bytes]) -> int:
        found = _SEQUENCE.match(data, at)
        if found is not None:
            if found.end() - at <= _MAX_CSI:
                out.append(self._controlled(found[1], found[2]))
            return found.end()
        begun = _SEQUENCE_BEGUN.match(data, at)
        assert begun is not None
        if begun.end() < len(data):  # a byte that cannot occur in a sequence ends it
            return begun.end()
        if begun.end() - at >= _MAX_CSI:
            self._skipping = _END_OF_SEQUENCE
            return len(data)
        return self._keep(data, at)

    def _command(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Filter an operating system command (OSC), which ends with BEL or ST, and add what passes to `out`. Return the
        position after it.
        """
        end = _END_OF_OSC.search(data, at + 2)
        if end is None or (end[0] == b"\x1b" and end.end() == len(data)):
            if (len(data) if end is None else end.start()) - at > MAX_KEPT:
                self._skipping = _END_OF_OSC
                return len(data) if end is None else end.start()
            return self._keep(data, at)
        if end[0] == b"\x1b" and data[end.end()] != 0x5C:  # another sequence begins, so this one is invalid
            return end.start()
        after = end.end() + (end[0] == b"\x1b")
        if end.start() - at <= MAX_KEPT and end[0] in (b"\a", b"\x1b"):
            out.append(self._commanded(data[at + 2 : end.start()], data[at:after]))
        return after

    def _keep(self, data: bytes, at: int) -> int:
        """Store the data from `at` on, which ends inside a sequence, until more arrives. Return the end of the data."""
        self._kept = data[at:]
        return len(data)

    # Deciding

    def _controlled(self, middle: bytes, final: bytes) -> bytes:
        """Return the bytes to write for one control sequence, given the bytes between `CSI` and its final byte; empty
        to drop it.
        """
        strict = _STRICT.fullmatch(middle)
        if strict is None:
            return b""
        private, parameters, between = strict.groups()
        passed = self._decided(private, parameters, between + final)
        self._has_escaped = self._has_escaped or bool(passed)
        return passed

    def _decided(self, private: bytes, parameters: bytes, final: bytes) -> bytes:
        whole = b"\x1b[" + private + parameters + final
        match (private, final):
            case (b"", b"m"):
                return whole
            case (b"?", b"h" | b"l"):
                return self._set_modes(parameters, is_on=final == b"h")
            case (b"", b"h" | b"l") if parameters == b"4":
                self._is_inserting = final == b"h"
                return whole
            case (b"", b"r") if parameters == b"" or _NUMBERS.fullmatch(parameters):
                self._region = whole if parameters else None
                return whole
            case (b"", b" q") if parameters in (b"", b"0", b"1", b"2", b"3", b"4", b"5", b"6"):
                self._cursor = whole if parameters not in (b"", b"0") else None
                return whole
            case (b"", b"!p") if not parameters:
                return whole
            case (b"?" | b">" | b"<" | b"=", b"u"):
                return self._keyboard(private, parameters, whole)
            case (b">", b"m") if parameters in (b"4", b"4;0", b"4;1", b"4;2"):
                self._other_keys = whole if parameters in (b"4;1", b"4;2") else None
                return whole
            case (b"", b"t"):
                return self._title_stack(parameters, whole)
        if _is_question(private, parameters, final):
            self.questions += 1
            return whole
        return b""

    def _set_modes(self, parameters: bytes, *, is_on: bool) -> bytes:
        """Return the sequence for those modes in `parameters` that MODES lists, and record them as on or off; empty if
        MODES lists none.
        """
        if not _NUMBERS.fullmatch(parameters):
            return b""
        numbers = [number for number in map(int, parameters.split(b";")) if number in MODES]
        if not numbers:
            return b""
        before = b""
        if not is_on and self._is_alternate and not set(numbers).isdisjoint(_ALTERNATE):
            before = _pops(self._keyboards[True])  # the next program would get what the agent pushed there
            self._keyboards[True].clear()
        self._modes.update(dict.fromkeys(numbers, is_on))
        if is_on and not _REPORTING.isdisjoint(numbers):
            self.questions += 1  # a report may still arrive after the agent has ended
        return before + b"\x1b[?%s%s" % (b";".join(b"%d" % mode for mode in numbers), b"h" if is_on else b"l")

    def _keyboard(self, private: bytes, parameters: bytes, whole: bytes) -> bytes:
        """Return the bytes to write for the sequence `whole`, which changes kitty's stack of keyboard states; empty to
        drop it. Each screen has its own stack.
        """
        stack = self._keyboards[self._is_alternate]
        if private == b"?" and not parameters:
            self.questions += 1
            return whole
        if private == b">" and re.fullmatch(rb"[0-9]{0,3}", parameters) and len(stack) < _MAX_STACK:
            stack.append(whole)
            return whole
        if private == b"=" and re.fullmatch(rb"[0-9]{0,3}(?:;[1-3])?", parameters) and stack:
            stack[-1] = (stack[-1] + whole)[-_MAX_CSI:] if len(stack[-1]) < _MAX_CSI // 2 else stack[-1]
            return whole
        if private == b"<" and re.fullmatch(rb"[0-9]{0,3}", parameters):
            count = min(int(parameters or b"1"), len(stack))
            del stack[len(stack) - count :]
            return b"\x1b[<%du" % count if count else b""
        return b""

    def _title_stack(self, parameters: bytes, whole: bytes) -> bytes:
        match = re.fullmatch(rb"(22|23)(?:;[012])?", parameters)
        if match is None:
            return b""
        if match[1] == b"22" and self._titles < _MAX_STACK:
            self._titles += 1
            return whole
        if match[1] == b"23" and self._titles:
            self._titles -= 1
            return whole
        return b""

    def _commanded(self, text: bytes, whole: bytes) -> bytes:
        """Return the bytes to write for the operating system command `whole`, whose content is `text`; empty to drop it."""
        passed = b""
        if _COLOR_QUERY.fullmatch(text):
            self.questions += text.count(b"?")
            passed = whole
        elif _PROGRESS.fullmatch(text):
            self._progress = None if text.startswith(b"9;4;0") else whole
            passed = whole
        elif _LINK.fullmatch(text) and len(address := text.split(b";", 2)[2]) <= _MAX_LINK:
            self._is_linked = bool(address)
            passed = whole
        elif (title := _TITLE.fullmatch(text)) is not None:
            passed = self._titled(title[1], title[2])
        self._has_escaped = self._has_escaped or bool(passed)
        return passed

    def _titled(self, which: bytes, text: bytes) -> bytes:
        """Return the bytes that set a title of printable characters. Before the first title, they make the terminal
        save its present title.
        """
        printable = "".join(letter for letter in text.decode("utf-8", "replace") if letter.isprintable())[:_MAX_TITLE]
        shown = printable if self._is_utf8 else printable.encode("ascii", "replace").decode()
        set_title = b"\x1b]%s;%s\x1b\\" % (which, shown.encode())
        before = b"\x1b[22;0t" if self._title is None else b""
        self._title = set_title
        return before + set_title


def _is_question(private: bytes, parameters: bytes, final: bytes) -> bool:
    """Return whether the sequence is a query that the terminal answers with numbers, or with its own name."""
    match (private, final):
        case (b"" | b">", b"c") | (b">", b"q"):
            return parameters in (b"", b"0")
        case (b"", b"n"):
            return parameters == b"6"
        case (b"?", b"n"):
            return parameters in (b"6", b"996")
        case (b"" | b"?", b"$p"):
            return re.fullmatch(rb"[0-9]{1,5}", parameters) is not None
        case (b"?", b"m"):
            return parameters == b"4"
    return False


def _mode(number: int, is_on: bool) -> bytes:
    return b"\x1b[?%d%s" % (number, b"h" if is_on else b"l")


def _pops(stack: list[bytes]) -> bytes:
    return b"\x1b[<%du" % len(stack) if stack else b""


def _pushes(stack: list[bytes]) -> bytes:
    return b"".join(stack)
