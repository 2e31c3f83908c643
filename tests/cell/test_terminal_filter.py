"""Tests of what reaches the person's terminal of a cell's output: row by row, at any split, and against an independent oracle."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cell.terminal_filter import MAX_KEPT, TerminalFilter
from aileron.cell.terminal_rules import MODES, RULES, Rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cell-terminal.md"


def fed(data: bytes) -> bytes:
    """Return what passes of data that comes at once."""
    return TerminalFilter().feed(data)


# Row by row


def test_the_terminal_filter_behaves_the_same_under_the_systems_python() -> None:
    """Regular expressions have had bugs in some Python releases, and the distribution's may differ."""
    python = "/usr/bin/python3"
    source = (
        "import sys; from aileron.cell.terminal_filter import TerminalFilter\n"
        "for line in sys.stdin: print(TerminalFilter().feed(bytes.fromhex(line)).hex())"
    )
    if not Path(python).exists() or subprocess.run([python, "-c", "import tomllib"], check=False).returncode:
        pytest.skip(f"{python} is not Python 3.11 or newer")
    given = [b"before " + rule.example + b" after" for rule in RULES]

    done = subprocess.run(
        [python, "-c", source],
        input="\n".join(data.hex() for data in given),
        capture_output=True,
        text=True,
        cwd=PAGE.parents[2],
        check=True,
    )

    assert done.stdout.split() == [fed(data).hex() for data in given]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.sequence} {rule.name}")
def test_each_example_in_the_filters_table_is_treated_as_the_table_says(rule: Rule) -> None:
    """Each example passes unchanged, is dropped whole, or is rewritten, between two words of text."""
    out = fed(b"before " + rule.example + b" after")

    match rule.decision:
        case "passes":
            assert out == b"before " + rule.example + b" after"
        case "dropped":
            assert out == b"before  after"
        case "rewritten":
            assert rule.example not in out
            assert len(out) > len(b"before  after")


def test_the_cell_terminal_page_lists_the_filters_rows_and_the_terminal_modes_that_pass() -> None:
    """The page has them word for word, in their order."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (passes|dropped|rewritten) \| (.*) \|$", text, re.MULTILINE)
    said = [tuple(part.replace("\\|", "|").strip("`") for part in row) for row in rows]

    assert said == [(rule.sequence, rule.name, rule.decision, rule.why) for rule in RULES]
    modes = re.search(r"^These modes pass: (.*?)\.", text, re.MULTILINE | re.DOTALL)
    assert modes is not None
    assert [int(number) for number in re.findall(r"\d+", modes[1])] == list(MODES)


# Arbitrary output

_NUMBERS = st.lists(st.integers(0, 99999), max_size=6).map(lambda numbers: ";".join(map(str, numbers)).encode())
_CSI = st.builds(
    lambda private, numbers, between, final: b"\x1b[" + private + numbers + between + final,
    st.sampled_from([b"", b"?", b">", b"<", b"="]),
    st.one_of(_NUMBERS, st.sampled_from([b"1049", b"25", b"1000;1006", b"22;0", b"23", b"4", b"6", b"3", b"996"])),
    st.sampled_from([b"", b"", b"", b"$", b" ", b"!", b'"', b"*", b"'"]),
    st.binary(min_size=1, max_size=1).map(lambda byte: bytes([0x40 + byte[0] % 63])),
)
_COMMANDS = st.builds(
    lambda kind, number, text, end: kind + number + text + end,
    st.sampled_from([b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b^", b"\x1bX", b"\x1bk"]),
    st.sampled_from(
        [b"0;", b"2;", b"8;;", b"8;id=1;https://a.example/", b"11;?", b"52;c;", b"9;4;1;5", b"1337;", b"$q"]
    ),
    st.one_of(st.binary(max_size=40), st.just(b"x" * (MAX_KEPT + 5)), st.just(b"\x9c"), st.just(b"")),
    st.sampled_from([b"\a", b"\x1b\\", b"\x18", b"", b"\x1b", b"\x9c"]),
)
_PIECES = st.one_of(
    st.sampled_from([rule.example for rule in RULES]),
    _CSI,
    _COMMANDS,
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
    st.sampled_from(
        [b"\x1b", b"\x1b(", b"\x1b[", b"\x1b]", b"\x1b[" + b"1;" * 200, b"\x1b(((((0", b"\xe2\x94", b"\xc2"]
    ),
)
OUTPUT = st.lists(_PIECES, max_size=14).map(b"".join)

# The oracle: all that may come out, as one regular expression, written from the page and not from the filter.
_MODES_ALLOWED = b"|".join(str(number).encode() for number in MODES)
_SAFE = re.compile(
    b"|".join(
        (
            rb"[\x07-\x0f\x20-\x7e]",
            rb"\x1b[78DEM=>]",
            rb"\x1b[()][0B]",
            rb"\x1b\[[0-9:;]*m",
            rb"\x1b\[[0-9;]*[@A-ILMPSTXZ`abdef]",
            rb"\x1b\[[012]?[JK]",
            rb"\x1b\[(?:[0-9;]*r|[su]|4[hl]|[0-6]? q|!p|>?0?c|>0?q|6n|\?6n|\?996n|\??[0-9]{1,5}\$p)",
            rb"\x1b\[(?:>[0-9]{0,3}u|<[0-9]{0,3}u|=[0-9]{0,3}(?:;[1-3])?u|\?u|>4(?:;[012])?m|\?4m|2[23](?:;[012])?t)",
            rb"\x1b\[\?(?:" + _MODES_ALLOWED + rb")(?:;(?:" + _MODES_ALLOWED + rb"))*[hl]",
            rb"\x1b\][012];[^\x00-\x1f\x7f]{0,480}\x1b\\",
            rb"\x1b\](?:4(?:;[0-9]{1,3};\?)+|1[012];\?)(?:\x07|\x1b\\)",
            rb"\x1b\]9;4;[0-4](?:;[0-9]{0,3})?(?:\x07|\x1b\\)",
            rb"\x1b\]8;(?:id=[\x21-\x7e]+)?;(?:https?://[^@\x00-\x20\x7f-\xff]+[\x21-\x7e]*)?(?:\x07|\x1b\\)",
        )
    )
)


def harm(data: bytes) -> str | None:
    """Return what is harmful in data, or None if it is UTF-8 without C1 controls and has only sequences that the page allows."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"no UTF-8: {error}"
    if (control := re.search("[\x80-\x9f]", text)) is not None:
        return f"an 8-bit control: {control[0]!r}"
    rest = _SAFE.sub(b"", data)  # what is ASCII and matched is gone
    at = re.search(rb"[\x00-\x7f]", rest)
    return None if at is None else f"unexpected: {rest[at.start() :][:40]!r}"


def test_the_independent_check_recognizes_the_tables_harmful_output() -> None:
    """The oracle is an independent check. It must agree with the table on which examples are harmful."""
    for rule in RULES:
        if rule.decision != "passes" and rule.sequence not in ("OSC 0, OSC 1, OSC 2", "ESC c"):
            assert harm(rule.example) is not None, rule.sequence
        elif rule.decision == "passes":
            assert harm(rule.example) is None, rule.sequence


@given(OUTPUT)
def test_no_harmful_output_passes_the_filter(data: bytes) -> None:
    """This holds for output while the agent runs, and for the sequences that restore the terminal."""
    filtered = TerminalFilter()
    out = filtered.feed(data)

    assert harm(out) is None
    assert harm(filtered.pause()) is None
    assert harm(filtered.resume()) is None
    assert harm(filtered.finish()) is None


@given(OUTPUT, st.data())
def test_any_split_of_the_output_gives_the_same_filtered_output(data: bytes, drawn: st.DataObject) -> None:
    """Output arrives in arbitrary pieces, or in ones that the agent chose."""
    cuts = sorted(drawn.draw(st.sets(st.integers(0, len(data)), max_size=20)))
    whole, pieces = TerminalFilter(), TerminalFilter()
    parts = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    assert b"".join(pieces.feed(part) for part in parts) == whole.feed(data)
    assert pieces.questions == whole.questions
    assert pieces.finish() == whole.finish()


@given(OUTPUT)
def test_filtering_the_output_byte_by_byte_gives_the_same_result(data: bytes) -> None:
    """This is the hardest split."""
    pieces = TerminalFilter()

    assert b"".join(pieces.feed(data[at : at + 1]) for at in range(len(data))) == fed(data)


@given(OUTPUT)
def test_filtering_output_a_second_time_changes_nothing(data: bytes) -> None:
    """The filter would change nothing in its own output, except for titles, of which it saves one."""
    once = re.sub(rb"\x1b\[2[23][^t]*t|\x1b\[[<=>?][0-9;]*u", b"", fed(data))
    again = re.sub(rb"\x1b\[22;0t", b"", fed(once))

    assert again == once


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs"))))
def test_text_of_all_scripts_passes_the_filter_byte_for_byte(text: str) -> None:
    """Text of all scripts is tried."""
    assert fed(text.encode()) == text.encode()


@given(OUTPUT)
def test_only_ascii_passes_the_filter_on_a_terminal_that_does_not_use_utf_8(data: bytes) -> None:
    """A byte of a UTF-8 letter can be a control character in such a terminal."""
    assert TerminalFilter(is_utf8=False).feed(data).isascii()


# Cases from experience


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        (b"\x1b]0;\x1b[21t\x07", b"\x07"),  # an escape ends a title, and what begins there is checked by itself
        (b"\x1b[?2026;2;25h", b"\x1b[?2026;25h"),
        (b"\x1b[?2h\x1b[?38h", b""),
        (b"\x1b[0?25h", b""),
        (b"\x1b[\x9b21t", b"\xef\xbf\xbd21t"),
        (b"\x9b21t", b"\xef\xbf\xbd21t"),
        (b"\xc2\x9b21t", b"21t"),
        (b"\xc2\x9d52;c;eA==\x07", b"52;c;eA==\x07"),
        (b"\x1b\x1b]52;c;eA==\x07", b""),
        (b"\x1b[<1u", b""),  # the person's own state of the keyboard
        (b"\x1b[=1u", b""),
        (b"\x1b[23;0t", b""),
        (b"\x1b]8;;https://you@evil.example/\x07x\x1b]8;;\x07", b"x\x1b]8;;\x07"),
        (b"\x1b]8;;HTTPS://a/\x07", b""),
        (b"\x1b]8;;https://a/" + b"x" * 2083 + b"\x07", b""),
        (b"\x1b]4;1;#fff;2;?\x07", b""),
        (b"\x1b[" + b"1;" * 130 + b"1m", b""),
        (b"\x1b]2;" + b"x" * MAX_KEPT + b"\x07after", b"after"),
        (b"\x1bPq" + b"~" * 100_000 + b"\x1b\\after", b"after"),
    ],
)
def test_nested_and_malformed_sequences_do_not_deceive_the_filter(data: bytes, passes: bytes) -> None:
    """Controls are nested, spelled in two ways, mixed in lists, or too long."""
    assert fed(data) == passes


def test_a_terminal_title_is_made_harmless_and_the_persons_title_is_restored() -> None:
    """The title is printable and short; the terminal saves the person's, and restores it."""
    filtered = TerminalFilter()
    out = filtered.feed("\x1b]0;a\tb\u202e\x7f\x85c".encode() + b"\xff" + b"d" * 300 + b"\x07")

    assert out == b"\x1b[22;0t\x1b]0;abc\xef\xbf\xbd" + b"d" * 116 + b"\x1b\\"
    assert filtered.feed(b"\x1b]2;more\x07") == b"\x1b]2;more\x1b\\"
    assert filtered.finish() == b"\x1b[0m\x1b[23;0t"


def test_an_unfinished_sequence_uses_bounded_memory() -> None:
    """A string sequence that never ends is discarded as it comes, in linear time."""
    filtered = TerminalFilter()
    began = time.process_time()
    for begin in (b"\x1b]2;", b"\x1bP", b"\x1b[", b"\x1b("):
        filtered.feed(begin)
        for _ in range(2000):
            assert filtered.feed(b"1" * 1000 if begin != b"\x1b(" else b"(" * 1000) == b""
        assert len(repr(vars(filtered))) < 4 * MAX_KEPT
        filtered.feed(b"\x18\x1b\\")

    assert filtered.feed(b"after") == b"after"
    assert time.process_time() - began < 20


# At the end


def test_only_terminal_modes_that_are_on_are_turned_off_at_the_end() -> None:
    """Every mode is tried; the alternate screen is left before the other modes are reset."""
    filtered = TerminalFilter()
    for part in (
        b"\x1b[>1u\x1b[?1049h\x1b[>3u\x1b[=5;1u\x1b[?25l\x1b[?1000;1006h\x1b[?2004h\x1b[?1004h\x1b[?1h\x1b=\x1b[?7l",
        b"\x1b[2;5r\x1b[4h\x1b[5 q\x1b[>4;2m\x0e\x1b(0\x1b[1m\x1b]8;;https://a.example/\x1b\\\x1b]9;4;3\x07\x1b[?2026h",
    ):
        assert filtered.feed(part) == part
    undone = filtered.finish()

    for part in (
        b"\x1b[?25h",
        b"\x1b[?1000l",
        b"\x1b[?1006l",
        b"\x1b[?2004l",
        b"\x1b[?1004l",
        b"\x1b[?1l",
        b"\x1b[?7h",
        b"\x1b>",
        b"\x1b7\x1b[r\x1b8",
        b"\x1b[4l",
        b"\x1b[0 q",
        b"\x1b[>4m",
        b"\x0f",
        b"\x1b(B",
        b"\x1b[0m",
        b"\x1b]8;;\x1b\\",
        b"\x1b]9;4;0\x1b\\",
    ):
        assert part in undone
    assert undone.startswith(b"\x1b[?2026l")
    assert undone.index(b"\x1b[<1u") < undone.index(b"\x1b[?1049l") < undone.rindex(b"\x1b[<1u")
    assert filtered.finish() == b""


def test_a_program_that_reset_its_terminal_modes_leaves_nothing_to_restore() -> None:
    """Only text attributes are reset, which is harmless; after plain text not even that."""
    tidy, plain = TerminalFilter(), TerminalFilter()
    tidy.feed(b"\x1b[?1049h\x1b[>1u\x1b[?25l\x1b[2;5r\x1b[r\x1b[?25h\x1b[<1u\x1b[?1049l")
    plain.feed(b"text\r\n")

    assert tidy.finish() == b"\x1b[0m"
    assert plain.finish() == b""


@given(OUTPUT)
def test_after_the_restoring_sequences_a_second_filter_has_nothing_to_restore(data: bytes) -> None:
    """A second filter behind the first reads its final output like any other, and finds everything turned off."""
    first, behind = TerminalFilter(), TerminalFilter()
    behind.feed(first.feed(data))
    behind.feed(first.finish())
    rest = re.sub(rb"\x1b\[0m|\x1b\[23;0t", b"", behind.finish())

    assert rest == b""


@given(OUTPUT)
def test_pausing_and_resuming_an_agent_restores_its_terminal_state(data: bytes) -> None:
    """Only an open hyperlink is lost. A second filter behind the first has as much to restore as without a pause."""
    first, behind, unpaused = TerminalFilter(), TerminalFilter(), TerminalFilter()
    unpaused.feed(first.feed(data))
    for part in (fed(data), first.pause(), first.resume()):
        behind.feed(part)
    ours = re.compile(rb"\x1b\[0m|\x1b\[23;0t|\x1b\]8;;\x1b\\")

    assert ours.sub(b"", behind.finish()) == ours.sub(b"", unpaused.finish())


def test_plain_text_passes_fast() -> None:
    """The bound is far below the required 50 MB/s, but would show a hundredfold slowdown."""
    data = b"line of an agent's output\r\n" * 2500
    filtered = TerminalFilter()
    began = time.process_time()
    for _ in range(100):
        filtered.feed(data)

    assert 100 * len(data) / (time.process_time() - began) > 10e6


def test_a_query_to_the_terminal_is_counted() -> None:
    """The end of a session waits for replies only if some are outstanding."""
    filtered = TerminalFilter()
    filtered.feed(b"text\x1b[1m")
    before = filtered.questions
    filtered.feed(b"\x1b[c\x1b[6n\x1b]11;?\x07\x1b[?u")

    assert (before, filtered.questions) == (0, 4)


@pytest.mark.parametrize("mode", [9, 1000, 1002, 1003, 1004, 2031, 2048])
def test_turning_on_a_terminals_reporting_mode_is_counted_as_a_query(mode: int) -> None:
    """The terminal may send a report after the agent's end; turning the mode off, or another one on, does not count."""
    filter_ = TerminalFilter()
    filter_.feed(b"\x1b[?25h\x1b[?%dl" % mode)
    assert filter_.questions == 0

    filter_.feed(b"\x1b[?%dh" % mode)
    assert filter_.questions == (1 if mode in MODES else 0)
