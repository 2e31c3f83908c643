"""Consistency of tests/seeded: each fault still applies, is in the table and on the page, and names existing tests."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

from tests.seeded.table import FOLDER, PAGE, ROOT, faults, table_in, table_of

OF_THEIR_OWN = {"cells": "cells", "logins": "logins", "signing": "logins", "tls": "logins", "importing": "importing"}
"""Areas with ten faults each, by the name they are counted under; all other areas count as promises."""


def test_there_are_sixty_seeded_faults_over_all_areas() -> None:
    """Thirty break promises, and ten each are in the areas that read most of strangers' bytes."""
    counted = Counter(OF_THEIR_OWN.get(fault.area, "promises") for fault in faults())
    assert counted == {"promises": 30, "cells": 10, "logins": 10, "importing": 10}


def test_the_patch_of_each_seeded_fault_still_applies() -> None:
    """A patch that no longer applies proves nothing about the tests."""
    whole = subprocess.run(
        ["git", "apply", "--check", *sorted(map(str, FOLDER.glob("*.patch")))],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert whole.returncode == 0, f"see {PAGE.relative_to(ROOT)}: {whole.stderr}"


def _changed(patch: Path) -> list[tuple[int, int, str]]:
    """Return the lines that a patch adds and removes in each file, as git counts them."""
    told = subprocess.run(
        ["git", "apply", "--numstat", str(patch)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    counted = [line.split("\t") for line in told.stdout.splitlines()]
    return [(int(added), int(removed), path) for added, removed, path in counted]


def _is_product(path: str) -> bool:
    return path.startswith(("aileron/", "sandbox/", "connectors/")) and "tests" not in Path(path).parts


def test_each_seeded_fault_is_small_and_changes_only_the_product() -> None:
    """The limit is six lines removed or added, all in files of the product: a patch that changes a test too proves nothing."""
    for fault in faults():
        changed = _changed(FOLDER / f"{fault.id}.patch")
        added, removed = sum(file[0] for file in changed), sum(file[1] for file in changed)
        assert 1 <= max(removed, added) <= 6, fault.id
        assert [path for *_, path in changed if not _is_product(path)] == [], fault.id


def test_the_tests_that_catch_a_seeded_fault_exist() -> None:
    """Each is defined in the file that its id names."""
    for fault in faults():
        for test in fault.caught_by:
            file, _, name = test.partition("::")
            assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (
                test
            )


def test_the_page_about_seeded_faults_has_the_generated_table() -> None:
    """The page's table is exactly the one that `python -m tests.seeded.table` writes."""
    assert table_in(PAGE.read_text(encoding="utf-8")) == table_of(faults())
