"""The format of an export, and that its file is complete or missing."""

from __future__ import annotations

import csv
import io
import json
import stat
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.cli.export import COLUMNS, harmless, line, new_file, table
from aileron.ledger.chain import link, make_record
from tests.support.shaped import shaped

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ATTACKS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\x00=1",
    "\uff1d1",
    "\x1b]0;x\x07",
    'a";=1',
    "\u202e=1",
]


def read(text: str) -> list[dict[str, str]]:
    """Return the rows of a table as a spreadsheet reads them."""
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


@given(st.sampled_from(ATTACKS) | TEXT)
@example("=cmd|' /C calc'!A0")
def test_no_cell_of_an_exported_table_is_a_spreadsheet_formula(text: str) -> None:
    """Each cell starts with no character that a spreadsheet interprets, and contains no invisible one."""
    event = {
        "seq": 1,
        "at": text,
        "type": text,
        "run": text,
        "action": text,
        "connector": text,
        "note": text,
        "hash": text,
    }
    (row,) = read(table([shaped(event)], with_titles=True))

    assert tuple(row) == COLUMNS
    for cell in row.values():
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"))
        assert not [mark for mark in cell if unicodedata.category(mark) in ("Cc", "Zl", "Zp")]
    assert table([shaped(event)], with_titles=False).count("\n") == 1
    assert json.loads(row["facts"]) == {"note": text}


@pytest.mark.parametrize("text", ["plain", "1", "a=b", "it's", "{}", "grüße"])
def test_harmless_text_in_an_exported_table_is_unchanged(text: str) -> None:
    """Only dangerous text is changed."""
    assert harmless(text) == text


def test_an_empty_table_has_column_titles() -> None:
    """A program that parses the table finds its columns even without a row."""
    assert table([], with_titles=True) == ",".join(f'"{name}"' for name in COLUMNS) + "\n"


@given(st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=4), st.integers(0, 2**52))
@example({"a": [1, {"b": 2, "at": "x"}]}, 0)
def test_an_exported_line_contains_its_record_byte_for_byte(facts: dict[str, Any], at_us: int) -> None:
    """The record's exact bytes can be cut out of the line, so its hash can be recomputed whatever a fact contains."""
    at_us %= 253_402_300_800_000_000  # until the end of year 9999
    record = make_record(7, at_us, {**facts, "type": "note"})
    digest = link(bytes(32), record)
    written = line({"seq": 7, "record": record.decode(), "previous": bytes(32).hex(), "hash": digest.hex()}).encode()

    assert b"\n" not in written
    assert written[: written.rindex(b',"at":"')] + b"}" == record
    assert json.loads(written)["hash"] == digest.hex()


def test_a_new_export_file_is_private_and_replaces_the_old_file(tmp_path: Path) -> None:
    """The mode is 0600 even if the old file's was wider, and no temporary file is left."""
    target = tmp_path / "trail.jsonl"
    target.write_bytes(b"old")
    target.chmod(0o644)
    with new_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"

    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("end", [RuntimeError, KeyboardInterrupt, OSError])
def test_an_unfinished_export_file_does_not_replace_the_old_file(tmp_path: Path, end: type[BaseException]) -> None:
    """The old file stays, whatever ends the writing."""
    target = tmp_path / "trail.jsonl"
    target.write_bytes(b"old")

    def half() -> None:
        with new_file(target) as file:
            file.write(b"half")
            raise end

    with pytest.raises(end):
        half()

    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_export_replaces_only_a_regular_file(tmp_path: Path) -> None:
    """Devices, directories and links are refused, because another program may rely on them."""
    (tmp_path / "link").symlink_to("/dev/null")
    for taken in (Path("/dev/null"), tmp_path, tmp_path / "link"):
        with pytest.raises(FileExistsError), new_file(taken):
            pass
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "link").is_symlink()
