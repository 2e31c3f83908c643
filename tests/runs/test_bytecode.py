"""Connectors run from bytecode that a jail made: the same program, never another's, and source where there is none."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from aileron.executor import precompile
from aileron.executor.jails import Jails
from aileron_sandbox.ending import Ending, Exited, JailUnavailable
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime

pytestmark = pytest.mark.jail
DEADLINE_S = 30.0
ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
MAIN = """
import json, os, sys
import part, pack.inner
from importlib import resources
said = {"value": part.VALUE, "main": __file__, "part": part.__file__, "inner": pack.inner.__file__,
        "line": part.fail.__code__.co_filename, "data": resources.files("pack").joinpath("data.txt").read_text(),
        "argv": sys.argv, "name": __name__}
os.write(4, json.dumps(said).encode())
"""
Outcome = tuple[dict[str, Any] | None, Ending, str]
Run = Callable[..., list[Outcome]]


def archive(value: str, **files: str) -> bytes:
    """A connector of three modules and a file."""
    named = {
        "__main__.py": MAIN,
        "part.py": f"VALUE = {value}\ndef fail(): raise ValueError(VALUE)\n",
        "pack/__init__.py": "",
        "pack/inner.py": "",
        "pack/data.txt": "data",
        **{name.replace("__py", ".py"): text for name, text in files.items()},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, text in named.items():
            target.writestr(name, text)
    return packed.getvalue()


@pytest.fixture
def run() -> Iterator[Run]:
    """Run programs one after the other under one daemon's jails: (pin, bytes) each."""
    try:
        jails = Jails(PythonRuntime.of_this_interpreter(preload=("json",)))
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")
    yield lambda *programs: anyio.run(partial(_run_all, jails, programs))
    jails.close()


async def _run_all(jails: Jails, programs: tuple[tuple[str | None, bytes], ...]) -> list[Outcome]:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(jails.serve)
            outcomes = [await _run_one(jails, pin_hash, data) for pin_hash, data in programs]
            tasks.cancel_scope.cancel()
    return outcomes


async def _run_one(jails: Jails, pin_hash: str | None, data: bytes) -> Outcome:
    program = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        os.write(program, data)
        async with jails.open(program, Policy(), pin_hash) as jailed:
            ending = await jailed.wait_ended()
            said, log = (os.read(fd, 1 << 16) for fd in (jailed.child.frames_out, jailed.child.log))
    finally:
        os.close(program)
    return (json.loads(said) if said else None), ending, log.decode()


def test_it_is_the_same_program_with_less_to_do(run: Run) -> None:
    """Twice by its pin and once without: the same but for the names of the files that were read; its data is beside it."""
    (first, _, _), (second, _, _), (source, ending, _) = run(
        (ONE, archive("1")), (ONE, archive("1")), (None, archive("1"))
    )

    assert first is not None
    assert source is not None
    assert first == second
    assert [first[name] for name in ("part", "inner")] == ["/app/connector/part.pyc", "/app/connector/pack/inner.pyc"]
    assert [source[name] for name in ("part", "inner")] == ["/app/connector/part.py", "/app/connector/pack/inner.py"]
    files = ("part", "inner")
    assert {**first, **dict.fromkeys(files)} == {**source, **dict.fromkeys(files)}
    assert isinstance(ending, Exited)


def test_what_was_compiled_runs_for_its_own_pin_only(run: Run) -> None:
    """Two connectors with the same modules, in turn."""
    outcomes = run((ONE, archive("1")), (OTHER, archive("2")), (ONE, archive("1")), (OTHER, archive("2")))

    assert [said and said["value"] for said, _, _ in outcomes] == [1, 2, 1, 2]


def test_a_traceback_still_names_the_source(run: Run) -> None:
    """File, line and text of the line, from bytecode."""
    *_, (_, ending, log) = run(*[(ONE, archive("1", __main____py="import part\npart.fail()\n"))] * 2)

    assert isinstance(ending, Exited)
    assert ending.code == 1
    assert 'File "/app/connector/part.py", line 2, in fail' in log
    assert "raise ValueError(VALUE)" in log


def test_a_module_that_is_no_python_fails_where_it_is_imported(run: Run) -> None:
    """And nowhere else: it is left as source, the others are compiled."""
    broken = archive("1", broken__py="def (:\n")
    ((said, _, _),) = run((ONE, broken))
    importing = archive("1", broken__py="def (:\n", __main____py="import part, broken\n")
    ((_, ending, log),) = run((OTHER, importing))

    assert said is not None
    assert said["part"].endswith(".pyc")
    assert isinstance(ending, Exited)
    assert ending.code == 1
    assert "SyntaxError" in log


def test_a_program_its_jail_cannot_compile_runs_from_source(run: Run) -> None:
    """The compiler runs out of memory on a module that is never imported: no outcome is kept, and the program works."""
    hungry = archive("1", hungry__py="x = [" + "{}, " * 900_000 + "]\n")

    (first, _, _), (second, _, _) = run((ONE, hungry), (ONE, hungry))

    assert first is not None
    assert first["part"].endswith(".py")
    assert second == first


def test_a_program_too_large_to_compile_runs_from_source(run: Run) -> None:
    """By its data, say."""
    ((said, _, _),) = run((ONE, archive("1", data="x" * (5 << 20))))

    assert said is not None
    assert said["part"].endswith(".py")


def test_bytecode_of_its_own_is_left_alone(run: Run) -> None:
    """An archive that brings a `.pyc` for another interpreter: the import system goes on to the source, as without us."""
    named = zipfile.ZipFile(io.BytesIO(archive("1")))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name in named.namelist():
            target.writestr(name, named.read(name))
        target.writestr("part.pyc", b"\0" * 32)

    outcomes = run((ONE, packed.getvalue()), (None, packed.getvalue()))

    assert [said and said["part"] for said, _, _ in outcomes] == ["/app/connector/part.py"] * 2


def test_what_is_kept_is_bounded_and_given_back(run: Run) -> None:
    """Forty connectors, of which 32 are kept; none when the jails are closed. What was put out is made again."""
    before = _kept()
    outcomes = run(*[(f"sha256:{number:064x}", archive(str(number))) for number in (*range(40), 0)])
    kept = _kept()

    assert [said and said["value"] for said, _, _ in outcomes] == [*range(40), 0]
    assert all(said and said["part"].endswith(".pyc") for said, _, _ in outcomes)
    assert kept - before == 32


def test_the_program_that_compiles_needs_nothing_but_the_standard_library() -> None:
    """It is sent into a jail as text: what it imports must be there."""
    with open(precompile.__file__, encoding="utf-8") as file:
        text = file.read()

    assert "import aileron" not in text
    assert "from aileron" not in text


def _kept() -> int:
    """Memory files of ours that this process holds."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # the listing's own
    return sum("connector with bytecode" in link for link in links)
