"""Tests that docs/reference/cell.md states what a cell is made from."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from aileron_sandbox import filters
from aileron_sandbox.cell import mounts
from aileron_sandbox.cell.policy import Bind, CellPolicy
from aileron_sandbox.cell.support import examine_cell

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cell.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the first two columns of the table below a heading."""
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| (.+?) \| (.+?) (?:\|.*)?\|$", section, re.MULTILINE)[1:]


def test_the_documented_refused_system_calls_are_those_of_the_compiled_filter() -> None:
    """The page lists each call with its answer and no other call; conditional calls are in the order of the code."""
    refused = {
        name: answer
        for answer, calls in rows("### Refused")
        for name in re.findall(r"`(\w+)`", calls)
        if answer[0] == "E"
    }
    conditional = [name.strip("`") for name, _ in rows("### Refused for some arguments") if name.startswith("`")]

    assert refused == {name: errno.errorcode[number] for name, number in filters.CELL_REFUSED.items()}
    assert conditional == list(filters.CELL_REFUSED_WHERE)
    assert f"({filters.NEWEST_CALL}, Linux" in PAGE


def test_the_documented_parts_of_proc_and_dev_match_the_cell() -> None:
    """The page lists the read-only paths, the empty paths and the devices."""
    read_only, empty = (tuple(block.split()) for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    devices = next(what for path, what in rows("## What is in the root") if path == "`/dev`")

    assert read_only == mounts.PROC_READ_ONLY
    assert empty == mounts.PROC_EMPTY
    assert tuple(re.findall(r"`(\w+)`", devices.partition(";")[0])) == mounts.DEVICES
    for path in mounts.WRITABLE:
        assert f"`{path}" in PAGE


def test_the_documented_limits_are_the_defaults() -> None:
    """The page states each number with its unit."""
    policy = CellPolicy(folder="/", home="/home/you", binds=(Bind("/usr", "/usr"),))
    published = dict(rows("## Limits"))

    assert published["memory of all processes and private files"] == f"{policy.memory_bytes >> 30} GiB"
    assert published["processes and threads"] == str(policy.processes)
    assert published["descriptors of a process"].startswith(f"{policy.open_files:,},")
    assert published["one file"] == f"{policy.file_bytes >> 30} GiB"
    assert f"{policy.scratch_bytes >> 30} GiB each" in PAGE


def test_every_layer_of_a_cell_is_documented() -> None:
    """The page names each layer by the part before the colon."""
    named = {name.partition(":")[0] for cell, _ in rows("## Layers") for name in re.findall(r"`([\w:-]+)`", cell)}

    assert {layer.partition(":")[0] for layer in examine_cell().layers} <= named
