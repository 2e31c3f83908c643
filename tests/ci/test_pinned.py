"""Groups of tests against pinned third parties: the inputs that a run depends on, and when a group is stamped as passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pinned import GROUPS, Tree

ROOT = Path(__file__).resolve().parents[2]
INPUTS = """
shared = ["aileron/model"]
[rooms]
agents = ["aileron/mcp"]
browser = []
conformance = []
documents = []
"""
FILES = {
    "pyproject.toml": "",
    "tests/pinned/inputs.toml": INPUTS,
    "tests/conftest.py": "",
    "tests/agents/pins/package.json": "{}",
    "tests/agents/test_agents.py": "from tests.support import home\nfrom aileron.model.names import tool_name\n",
    "tests/support/home.py": (
        "from pathlib import Path\n"
        "from tests.support.places import PROGRAM, ROOT\n"
        "PROBE = Path(__file__).resolve().parent / 'probe'\n"
        "START = ['-m', 'tests.support.server']\n"
        "def text(name): return (PROBE, ROOT / 'docs' / name, PROGRAM)\n"
    ),
    "tests/support/places.py": (
        "from pathlib import Path\nROOT = Path(__file__).parents[2]\nPROGRAM = Path(__file__).with_suffix('.mjs')\n"
        "OTHER = Path(__file__).parent / 'unused'\n"
    ),
    "tests/support/places.mjs": "1",
    "tests/support/probe/manifest.toml": "a = 1",
    "tests/support/server.py": "",
    "tests/support/unused/file": "",
    "tests/support/nobodys.py": "",
    "aileron/model/names.py": "import aileron.model.deeper\n",
    "aileron/model/deeper.py": "",
    "aileron/mcp/server.py": "",
    "aileron/mcp/page.html": "",
    "aileron/ledger/store.py": "",
    "docs/page.md": "",
}
DEPENDED_ON = {
    "pyproject.toml",
    "tests/conftest.py",
    "tests/agents/pins/package.json",
    "tests/agents/test_agents.py",
    "tests/support/home.py",
    "tests/support/places.py",
    "tests/support/places.mjs",
    "tests/support/probe/manifest.toml",
    "tests/support/server.py",
    "aileron/model/names.py",
    "aileron/mcp/server.py",
    "aileron/mcp/page.html",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a small repository."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Tree(tmp_path)


def test_a_test_groups_digest_depends_on_its_imports_and_packages_and_the_files_it_names(tree: Tree) -> None:
    """Other files do not count, neither deeper in the product nor in rooms of other groups."""
    assert {str(path.relative_to(tree.root)) for path in tree.inputs("agents")} == DEPENDED_ON


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_file_changes_the_digest_only_of_groups_that_depend_on_it(tree: Tree, name: str) -> None:
    """Each file is changed by a line."""
    before = tree.digest("agents")
    (tree.root / name).write_text(FILES[name] + "\n# changed\n")

    assert (tree.digest("agents") != before) == (name in DEPENDED_ON)


def test_a_new_or_removed_file_in_a_test_groups_package_changes_its_digest(tree: Tree) -> None:
    """A file is added, and then another one removed."""
    before = tree.digest("agents")
    (tree.root / "aileron/mcp/new.py").write_text("")
    added = tree.digest("agents")
    (tree.root / "aileron/mcp/server.py").unlink()

    assert len({before, added, tree.digest("agents")}) == 3


def test_another_python_version_changes_a_test_groups_digest(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch release changes the digest too."""
    before = tree.digest("agents")
    monkeypatch.setattr("platform.python_version", lambda: "3.11.99")

    assert tree.digest("agents") != before


def test_a_package_in_the_table_that_does_not_exist_is_an_error(tree: Tree) -> None:
    """Otherwise, after a room was renamed, the group would depend on less than the table says."""
    (tree.root / "tests/pinned/inputs.toml").write_text(INPUTS.replace("aileron/mcp", "aileron/gone"))

    with pytest.raises(FileNotFoundError, match="aileron/gone is in tests/pinned/inputs"):
        tree.inputs("agents")


@pytest.mark.parametrize(
    ("written", "is_unchanged"), [("{digest}", True), ("{digest}0", False), ("", False)], ids=["its", "another", "none"]
)
def test_a_test_group_is_skipped_only_if_its_stamp_has_the_current_inputs(
    tree: Tree, written: str, is_unchanged: bool
) -> None:
    """A stamp of other inputs, or an empty one, does not keep the group from running."""
    tree.stamp("agents").parent.mkdir(exist_ok=True)
    tree.stamp("agents").write_text(f'inputs = "{written.format(digest=tree.digest("agents"))}"\n')

    assert tree.is_unchanged("agents") is is_unchanged
    assert not tree.is_unchanged("browser")


@pytest.mark.parametrize("group", GROUPS)
def test_each_package_that_a_test_group_imports_from_is_in_its_table(group: str) -> None:
    """The whole room counts then, and not only the module. Of shared rooms, only the imported module counts."""
    tree = Tree(ROOT)
    table = tree.table()
    own = {path for path in tree.modules(group) if path.is_relative_to(ROOT / "tests" / group)}
    rooms = [ROOT / room for room in (*table["rooms"][group], *table["shared"])]
    imported = {module for path in own for module in tree.imported(path) if not module.is_relative_to(ROOT / "tests")}

    assert imported
    assert [str(module) for module in sorted(imported) if not any(map(module.is_relative_to, rooms))] == []


PASSING = "def test_passes(): pass\n"


@pytest.mark.parametrize(
    ("tests", "options", "is_stamped"),
    [
        (PASSING, (), True),
        (PASSING + "def test_fails(): assert False\n", (), False),
        (PASSING + "import pytest\n@pytest.mark.skip\ndef test_is_skipped(): pass\n", (), False),
        (PASSING + "def test_other(): pass\n", ("-k", "passes"), False),
        (
            PASSING + "from pathlib import Path\ndef test_writes(): Path(__file__).with_name('new').write_text('')\n",
            (),
            False,
        ),
    ],
    ids=[
        "all pass",
        "one fails",
        "one is skipped",
        "one is left out",
        "an input changes meanwhile",
    ],
)
def test_a_test_group_is_stamped_only_if_all_of_its_tests_passed(
    tree: Tree, tests: str, options: tuple[str, ...], is_stamped: bool
) -> None:
    """A failed, skipped or deselected test, or inputs that changed during the run, prevent the stamp."""
    (tree.root / "tests/agents/test_agents.py").write_text(tests)
    (tree.root / "tests/agents/test_more.py").write_text(PASSING)
    for name in ("pinned", "shards"):
        (tree.root / f"tests/support/{name}.py").write_bytes((ROOT / f"tests/support/{name}.py").read_bytes())
    plugins = ["-p", "tests.support.pinned", "-p", "tests.support.shards", "-p", "no:cacheprovider"]
    said = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir=.", *plugins),
            *("--shards=2", "--stamp=agents", *options, "tests/agents"),
        ],
        cwd=tree.root,
        env=os.environ | {"PYTHONPATH": str(tree.root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout

    assert tree.is_unchanged("agents") is is_stamped, said
    assert ("commit it" if is_stamped else "not stamped") in said
