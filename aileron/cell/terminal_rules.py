r"""The rules for terminal output of a cell: which sequences pass and why, one row for each sequence or family, with
an example.

The filter (terminal_filter.py) passes the sequences that it knows and drops all others, so a sequence without a row
is dropped. The rows list the known sequences, and others that were considered. A test feeds each example to the
filter, and compares the rows with docs/reference/cell-terminal.md.

Criteria:
- The terminal's answers to queries arrive like typed keys, and late answers in the person's shell. A query passes if
  its answer consists of numbers, or is the terminal's own name. A query does not pass if its answer repeats text that
  the agent chose, or reads the screen.
- A mode passes if it can be turned off without knowing its previous state: each mode here has a known default state, and the
  filter restores it.
- A sequence with effects outside the window does not pass: clipboard, files, printers, notifications, programs, the
  folder of a new tab.

Pure. Source: ECMA-48 (1991); XTerm Control Sequences, patch 397, by Dickey et al.; kitty's, iTerm2's, ConEmu's and VS Code's own
documents on theirs. Not here: the state machine that reads the bytes.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["MODES", "RULES", "Decision", "Rule"]

Decision = Literal["passes", "dropped", "rewritten"]


class Rule(NamedTuple):
    """A rule of the terminal filter for one kind of escape sequence: a row of the table in
    docs/reference/cell-terminal.md. A test feeds `example` to the filter, and expects the output that the decision
    implies.
    """

    sequence: str
    name: str
    decision: Decision
    why: str
    example: bytes


MODES: Final[dict[int, bool]] = {
    1: False,
    5: False,
    7: True,
    9: False,
    12: False,
    25: True,
    47: False,
    66: False,
    1000: False,
    1002: False,
    1003: False,
    1004: False,
    1005: False,
    1006: False,
    1007: False,
    1015: False,
    1016: False,
    1047: False,
    1048: False,
    1049: False,
    2004: False,
    2026: False,
    2027: False,
    2031: False,
    2048: False,
}
"""DEC private modes that pass, and the default state of each in a terminal.

The modes are cursor keys, reverse video, wrapping, mouse, cursor blinking and visible, alternate screen, keypad,
focus, alternate scrolling, saved cursor, bracketed paste, synchronized output, grapheme clusters, reports of light or
dark and of the size in numbers.
"""

RULES: Final = (
    # Text and control characters.
    Rule("text", "UTF-8", "passes", "what the agent says; a byte that is no UTF-8 becomes U+FFFD", b"caf\xc3\xa9"),
    Rule("BEL BS HT LF VT FF CR SO SI", "control characters", "passes", "sound, movement, line drawing", b"\a\b\t\n"),
    Rule("ENQ", "enquiry", "dropped", "the terminal answers with a text that can be configured", b"\x05"),
    Rule(
        "NUL DLE XON XOFF CAN SUB DEL, …",
        "other control characters",
        "dropped",
        "stop output or start transfers",
        b"\x18",
    ),
    Rule("U+0080–U+009F", "8-bit controls", "dropped", "a second spelling of the controls below", b"\xc2\x9b"),
    # Two and three bytes.
    Rule("ESC 7, ESC 8", "DECSC, DECRC", "passes", "save and restore the cursor", b"\x1b7"),
    Rule("ESC D, ESC E, ESC M", "IND, NEL, RI", "passes", "move by a line", b"\x1bM"),
    Rule("ESC =, ESC >", "DECKPAM, DECKPNM", "passes", "what the keypad sends; put back at the end", b"\x1b="),
    Rule(
        "ESC ( 0, ESC ( B, ESC ) 0, ESC ) B", "SCS", "passes", "line drawing and ASCII; put back at the end", b"\x1b(0"
    ),
    Rule(
        "ESC c",
        "RIS",
        "rewritten",
        "a reset deletes the scrollback: what the agent changed is put back, the screen is cleared",
        b"\x1bc",
    ),
    Rule("ESC H, CSI g", "HTS, TBC", "dropped", "tab stops stay after the session", b"\x1bH"),
    Rule("ESC Z", "DECID", "dropped", "an old spelling of CSI c", b"\x1bZ"),
    Rule("ESC % @, ESC % G", "DOCS", "dropped", "turns UTF-8 off, and bytes of text become controls", b"\x1b%@"),
    Rule("ESC SP F, ESC SP G", "S7C1T, S8C1T", "dropped", "answers in 8-bit controls", b"\x1b G"),
    Rule("ESC # 3, ESC # 8, …", "DECDHL, DECALN", "dropped", "no agent needs it", b"\x1b#8"),
    Rule(
        "ESC N, ESC O, ESC n, ESC | , …",
        "SS2, SS3, LS2, LS3R",
        "dropped",
        "character sets that nothing puts back",
        b"\x1bn",
    ),
    # CSI.
    Rule("CSI m", "SGR", "passes", "colors and attributes; put back at the end", b"\x1b[1;38:2::1:2:3m"),
    Rule("CSI @ A–I L M P S T X Z ` a b d e f", "cursor and editing", "passes", "draws in the window", b"\x1b[2;3H"),
    Rule("CSI J, CSI K", "ED, EL", "passes", "clears the screen or a line", b"\x1b[2J"),
    Rule(
        "CSI 3 J", "ED 3", "dropped", "deletes the scrollback, with what stood there before the agent began", b"\x1b[3J"
    ),
    Rule("CSI r", "DECSTBM", "passes", "scroll region; put back at the end", b"\x1b[2;10r"),
    Rule("CSI s, CSI u", "SCOSC, SCORC", "passes", "save and restore the cursor", b"\x1b[s"),
    Rule("CSI s with parameters", "DECSLRM", "dropped", "side margins; no agent needs them", b"\x1b[2;10s"),
    Rule("CSI 4 h, CSI 4 l", "IRM", "passes", "insert mode; put back at the end", b"\x1b[4h"),
    Rule(
        "CSI 2 h, CSI 12 l, CSI 20 h",
        "KAM, SRM, LNM",
        "dropped",
        "locks the keyboard, echoes, changes Enter",
        b"\x1b[2h",
    ),
    Rule(
        "CSI ? … h, CSI ? … l, listed modes",
        "DECSET, DECRST",
        "passes",
        "the modes listed below; put back at the end",
        b"\x1b[?1049h",
    ),
    Rule(
        "CSI ? … h, CSI ? … l, other modes",
        "DECSET, DECRST",
        "dropped",
        "VT52, 132 columns, sixel, keyboards: nothing puts them back",
        b"\x1b[?2l",
    ),
    Rule("CSI ? s, CSI ? r", "XTSAVE, XTRESTORE", "dropped", "modes would change without being named", b"\x1b[?1s"),
    Rule("CSI ! p", "DECSTR", "passes", "soft reset", b"\x1b[!p"),
    Rule("CSI SP q", "DECSCUSR", "passes", "shape of the cursor; put back at the end", b"\x1b[5 q"),
    Rule("CSI c, CSI > c", "DA1, DA2", "passes", "answer: numbers", b"\x1b[c"),
    Rule("CSI = c", "DA3", "dropped", "the terminal's serial number", b"\x1b[=c"),
    Rule("CSI > q", "XTVERSION", "passes", "answer: the terminal's own name and version", b"\x1b[>q"),
    Rule("CSI 6 n, CSI ? 6 n", "DSR, DECXCPR", "passes", "answer: where the cursor is, in numbers", b"\x1b[6n"),
    Rule("CSI ? 996 n", "color scheme", "passes", "answer: light or dark, as a number", b"\x1b[?996n"),
    Rule("CSI 5 n", "DSR", "dropped", "ours: its answer says that no other is on its way", b"\x1b[5n"),
    Rule(
        "CSI ? 15 n, CSI ? 63 n, …", "other DSR", "dropped", "printer, keys, locator, checksum of memory", b"\x1b[?15n"
    ),
    Rule("CSI $ p, CSI ? $ p", "DECRQM", "passes", "answer: whether a mode is set, in numbers", b"\x1b[?2026$p"),
    Rule(
        "CSI > … u, CSI < u, CSI ? u",
        "kitty keyboard",
        "passes",
        "at most 8 deep, only what the agent pushed is popped; answer: a number",
        b"\x1b[>1u",
    ),
    Rule(
        "CSI = … u", "kitty keyboard, set", "passes", "only above a state that the agent pushed", b"\x1b[>1u\x1b[=5;1u"
    ),
    Rule(
        "CSI > 4 m, CSI ? 4 m",
        "modifyOtherKeys",
        "passes",
        "what keys with modifiers send; put back at the end; answer: a number",
        b"\x1b[>4;2m",
    ),
    Rule(
        "CSI > m of other resources, CSI > n, CSI > p",
        "XTMODKEYS, pointer",
        "dropped",
        "nothing puts them back",
        b"\x1b[>1;2m",
    ),
    Rule(
        "CSI 22 t, CSI 23 t",
        "title stack",
        "passes",
        "at most 8 deep, only what the agent pushed is popped",
        b"\x1b[22;0t",
    ),
    Rule("CSI 20 t, CSI 21 t", "report titles", "dropped", "the answer is text that the agent chose", b"\x1b[21t"),
    Rule("CSI t, other", "XTWINOPS", "dropped", "moves, resizes, minimizes and measures the window", b"\x1b[3;0;0t"),
    Rule("CSI * y", "DECRQCRA", "dropped", "the answer tells what is on the screen", b"\x1b[1;1;1;1;1;1*y"),
    Rule(
        "CSI $ r, CSI $ v, CSI $ w, …",
        "rectangles and reports",
        "dropped",
        "copy, change and report the screen",
        b"\x1b[1$w",
    ),
    Rule("CSI i, CSI ? i", "MC", "dropped", "prints the screen", b"\x1b[5i"),
    Rule("CSI x, CSI y", "DECREQTPARM, DECTST", "dropped", "reports and self-tests", b"\x1b[x"),
    Rule(
        'CSI " p, CSI " q, CSI q',
        "DECSCL, DECSCA, DECLL",
        "dropped",
        "terminal's level, protection, lamps",
        b'\x1b[61"p',
    ),
    Rule("CSI with anything else", "", "dropped", "unknown", b"\x1b[1;2z"),
    # OSC.
    Rule(
        "OSC 0, OSC 1, OSC 2",
        "title",
        "rewritten",
        "printable characters, at most 120; the title before comes back at the end",
        b"\x1b]2;wo\trk\x1b\\",
    ),
    Rule(
        "OSC 4, 10, 11, 12 with ?", "colors, query", "passes", "answer: numbers, for light and dark", b"\x1b]11;?\x1b\\"
    ),
    Rule(
        "OSC 4, 10–19, 104, 110–119",
        "colors, set and reset",
        "dropped",
        "stay after the session, and nothing knows what was there",
        b"\x1b]11;#000000\a",
    ),
    Rule(
        "OSC 8, http and https",
        "hyperlink",
        "passes",
        "at most 2083 bytes, ASCII, without user name",
        b"\x1b]8;;https://example.com/\x1b\\",
    ),
    Rule(
        "OSC 8, other",
        "hyperlink",
        "dropped",
        "a click would open a file or start a program",
        b"\x1b]8;;file:///etc/passwd\x1b\\",
    ),
    Rule("OSC 9;4", "progress", "passes", "a number beside the title; put back at the end", b"\x1b]9;4;1;50\x1b\\"),
    Rule(
        "OSC 9, 99, 777",
        "notifications",
        "dropped",
        "text of the agent on the desktop; ConEmu's start programs",
        b"\x1b]9;approve\a",
    ),
    Rule("OSC 52", "clipboard", "dropped", "reads and writes the clipboard", b"\x1b]52;c;cm0gLXJm\a"),
    Rule("OSC 50", "font", "dropped", "the answer is text that the agent chose", b"\x1b]50;?\a"),
    Rule("OSC 51", "editor", "dropped", "calls functions of Vim and Emacs", b"\x1b]51;Eeval\x1b\\"),
    Rule("OSC 7", "folder", "dropped", "where a new tab opens: a folder of the cell", b"\x1b]7;file:///tmp\a"),
    Rule(
        "OSC 133, 633",
        "shell integration",
        "dropped",
        "marks of the shell's, with commands to run again",
        b"\x1b]633;E;rm\a",
    ),
    Rule("OSC 1337", "iTerm2", "dropped", "files, clipboard, profiles, variables", b"\x1b]1337;CopyToClipboard=\a"),
    Rule("OSC with anything else", "", "dropped", "unknown", b"\x1b]5522;x\x1b\\"),
    # Other strings.
    Rule("DCS $ q", "DECRQSS", "dropped", "answers have repeated what was asked (CVE-2008-2383)", b"\x1bP$qm\x1b\\"),
    Rule("DCS + q", "XTGETTCAP", "dropped", "the answer repeats what was asked", b"\x1bP+q544e\x1b\\"),
    Rule("DCS |, DCS ! z", "DECUDK, DECDMAC", "dropped", "text that a key types, macros", b"\x1bP1;1|17/41\x1b\\"),
    Rule("DCS q", "sixel", "dropped", "pictures; decoders of terminals have had holes", b"\x1bPq#0~\x1b\\"),
    Rule(
        "DCS tmux;", "tmux passthrough", "dropped", "everything else, wrapped", b"\x1bPtmux;\x1b\x1b]52;c;eA==\a\x1b\\"
    ),
    Rule("DCS 1000 p", "tmux control mode", "dropped", "iTerm2 takes commands", b"\x1bP1000p%begin\x1b\\"),
    Rule("DCS @kitty-cmd", "kitty remote control", "dropped", "starts programs", b"\x1bP@kitty-cmd{}\x1b\\"),
    Rule("DCS with anything else", "", "dropped", "unknown", b"\x1bP=1s\x1b\\"),
    Rule("APC G", "kitty graphics", "dropped", "reads files, answers", b"\x1b_Gt=f;L2V0Yw==\x1b\\"),
    Rule(
        "APC, PM, SOS, ESC k",
        "other strings",
        "dropped",
        "messages to programs around the terminal; screen's title",
        b"\x1bktitle\x1b\\",
    ),
)
"""All rules, in the order of docs/reference/cell-terminal.md."""
