"""Attacks that put other bytes in the place of the pinned ones between check and use, as often as a disk allows."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from aileron.registry.connector_build import build
from aileron.registry.tarball import unpack
from tests.attacks.hostile import kind_of
from tests.attacks.tally import Attack
from tests.support.home import DaemonHome, daemon_home

pytestmark = pytest.mark.jail

GOOD = "from aileron_connector import op, run\n@op\ndef go():\n    return 'good'\nrun()\n"
EVIL = GOOD.replace("good", "evil")
MANIFEST = '[connector]\nname = "github://aileron-tests/swapped"\nversion = "1.0.0"\n'
ACTION = """+++
name = "swapped"
version = "1.0.0"
[[requires.connectors]]
name = "github://aileron-tests/swapped"
version = "1.0.0"
hash = "sha256:bound-at-release"
capabilities = ["go"]
[match]
intent = "see which bytes run"
[[execute]]
id = "step"
connector = "github://aileron-tests/swapped"
op = "go"
+++

# A test
"""
RUNS = 30
SWAPS = 100_000


@pytest.mark.abuse_case("F6")
def test_only_verified_bytes_run_while_the_file_is_being_replaced(attack: Attack, tmp_path: Path) -> None:
    """The file is replaced and restored a hundred thousand times: each run executes the pinned program or fails with
    hash_mismatch.

    The hashed bytes are copied and sealed; no path is read again.
    """
    with daemon_home() as home:
        program = _installed(home, tmp_path)
        folder, good, evil = program.parent, program.read_bytes(), _program(tmp_path / "evil", EVIL)
        for name, data in (("good", good), ("evil", evil)):
            (tmp_path / name).mkdir(exist_ok=True)
            (folder / f".{name}").write_bytes(data)
        over, swaps = threading.Event(), [0]

        def swap() -> None:
            while swaps[0] < SWAPS and not over.is_set():
                for name in (".evil", ".good"):
                    os.link(folder / name, folder / ".next")
                    os.replace(folder / ".next", program)
                swaps[0] += 2

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            outcomes: list[Any] = []
            while swapping.is_alive() or len(outcomes) < RUNS:
                outcomes.append(_ran(home))
        finally:
            over.set()
            swapping.join()
        for outcome in outcomes:
            attack.denied("the other bytes", {"good", "hash_mismatch"}, outcome)
        assert swaps[0] >= SWAPS
        attack.control("left alone it runs", "good", _ran(home))
        os.replace(folder / ".evil", program)
        attack.denied("the other bytes for good", "hash_mismatch", _ran(home))


@pytest.mark.abuse_case("F9")
def test_a_link_that_replaces_a_pinned_file_is_refused(attack: Attack, tmp_path: Path) -> None:
    """The link replaces the file or its folder, and leads to identical bytes."""
    with daemon_home() as home:
        program = _installed(home, tmp_path)
        attack.control("as it was installed", "good", _ran(home))
        elsewhere = tmp_path / "elsewhere"
        os.rename(program, elsewhere)
        program.symlink_to(elsewhere)
        attack.denied("a link to the file", True, _ran(home) != "good")
        program.unlink()
        os.rename(elsewhere, program)
        folder, moved = program.parent, tmp_path / "moved"
        os.rename(folder, moved)
        folder.symlink_to(moved)
        attack.denied("a link to its folder", True, _ran(home) != "good")


def _program(folder: Path, source: str) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "connector.py").write_text(source, encoding="utf-8")
    (folder / "manifest.toml").write_text(MANIFEST, encoding="utf-8")
    return unpack(build(folder, []).archive)["connector"]


def _installed(home: DaemonHome, tmp_path: Path) -> Path:
    """Install a connector that returns `good`, and return its pinned file."""
    home.ask("GET", "/healthz")
    _program(tmp_path / "source", GOOD)
    installed = home.install(tmp_path / "source")
    home.must("POST", "/v1/actions", {"text": ACTION, "file": "a test"})
    digest = str(installed["hash"]).removeprefix("sha256:")
    return home.path / "store" / "connectors" / "sha256" / digest / "connector"


def _ran(home: DaemonHome) -> Any:
    answer = home.run("swapped")
    return answer.body["result"] if answer.status == 200 else kind_of(answer)
