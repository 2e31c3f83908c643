"""Which changed files execute something later: each of the table by an example, and what a file's contents decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aileron.cell.executes import KINDS, Candidate, EntryKind, findings, git_keys, matching

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cell-changes.md").read_text(encoding="utf-8")


def found(path: str, content: bytes | None = b"", mode: int = 0o644, kind: EntryKind = "file") -> list[tuple[str, str]]:
    """What is found in a file of this path."""
    return [tuple(one) for one in findings(Candidate(path, kind, mode, lambda: content))]


def test_the_page_has_the_table() -> None:
    """Every kind with its files and its reason, in the order in which they are shown."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## Files that execute")[2], re.MULTILINE
    )
    shown = {
        kind: (tuple(re.findall(r"`([^`]+)`", files)), reason) for kind, files, reason in rows[1:] if kind != "---"
    }

    assert list(shown) == list(KINDS)
    assert shown == {kind: (rule.files, rule.reason) for kind, rule in KINDS.items()}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (".git/hooks/pre-commit", "git hook"),
        (".git/modules/a/b/hooks/post-checkout", "git hook"),
        (".husky/pre-push", "git hook"),
        (".gitmodules", "git submodules"),
        (".git/rebase-merge/git-rebase-todo", "git in progress"),
        ("vendor/lib/.git", "git elsewhere"),
        (".pre-commit-config.yaml", "commit checks"),
        ("sub/.envrc", "shell environment"),
        (".tool-versions", "shell environment"),
        (".env.local", "variables"),
        ("Makefile", "make"),
        ("a/b/justfile", "make"),
        (".npmrc", "npm configuration"),
        ("vite.config.ts", "javascript configuration"),
        ("pyproject.toml", "python build"),
        ("tests/conftest.py", "python startup"),
        ("venv/lib/python3/site-packages/x.pth", "python startup"),
        ("crates/a/build.rs", "rust"),
        (".cargo/config.toml", "rust"),
        ("gradle/wrapper/gradle-wrapper.properties", "jvm"),
        (".github/workflows/ci.yml", "automation"),
        ("Dockerfile", "containers"),
        (".devcontainer/devcontainer.json", "containers"),
        (".vscode/tasks.json", "editor"),
        (".mcp.json", "agents"),
        ("CLAUDE.md", "agents"),
        (".claude/settings.local.json", "agents"),
        (".codex/config.toml", "agents"),
        ("a\nb/.cursor/rules/x", "agents"),
    ],
)
def test_a_file_is_of_its_kind_by_its_path(path: str, kind: str) -> None:
    """Wherever it lies in the project, and whatever its folder is called."""
    assert found(path) == [(kind, "")]


def test_a_sample_of_a_hook_is_none() -> None:
    """Of git's own, executable or not; what has that ending elsewhere, or a set-user-ID bit, is looked at as any."""
    assert found(".git/hooks/pre-commit.sample", mode=0o755) == []
    assert found(".husky/pre-commit.sample") == [("git hook", "")]
    assert found(".git/hooks/pre-commit.sample", mode=0o4755) != []


@pytest.mark.parametrize(
    "path", ["src/main.py", "xMakefile", "Makefile/notes", "git/hooks.md", "my.envrc", "README.md"]
)
def test_other_files_are_of_no_interest(path: str) -> None:
    """A name that only resembles one."""
    assert found(path) == []


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b'{"scripts": {"test": "x", "postinstall": "y"}}', [("npm", "scripts: test, postinstall")]),
        (b'{"name": "x", "dependencies": {}}', []),
        (b'{"bin": "x.js"}', [("npm", "bin")]),
        (b"{", [("npm", "cannot be read")]),
        (b"[" * 100_000, [("npm", "cannot be read")]),
        (b"[]", [("npm", "cannot be read")]),
        (None, [("npm", "cannot be read")]),
    ],
)
def test_a_package_shows_its_scripts(content: bytes | None, shown: list[tuple[str, str]]) -> None:
    """By name; what cannot be understood counts."""
    assert found("package.json", content) == shown


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("[core]\n\thooksPath = x\n", ["core.hooksPath"]),
        ("[CORE]\n\tHOOKSPATH=x\n", ["CORE.HOOKSPATH"]),
        ("[core] hooksPath = x\n", ["core.hooksPath"]),
        ("[core]\n\tfsmonitor = ./x\n", ["core.fsmonitor"]),
        ("[core]\n\tfsmonitor = true\n", []),
        ("[core]\n\tsshCommand = \\\nx\n", ["core.sshCommand"]),
        ('[alias]\n\ta = log\n\tb = !sh\n\tc = "!sh"\n', ["alias.b", "alias.c"]),
        ('[filter "l]f\\"s"]\n\tclean = x\n', ['filter.l]f"s.clean']),
        ('[diff "x"]\n\ttextconv = x\n[merge "y"]\n\tdriver = x\n', ["diff.x.textconv", "merge.y.driver"]),
        ("[credential]\n\thelper = x\n", ["credential.helper"]),
        ('[credential "https://a.b"]\n\thelper = x\n', ["credential.https://a.b.helper"]),
        ('[url "https://evil/"]\n\tinsteadOf = https://good/\n', ["url.https://evil/.insteadOf"]),
        ('[remote "o"]\n\turl = https://x/y\n', []),
        ('[remote "o"]\n\turl = ext::sh -c x\n', ["remote.o.url"]),
        ("[include]\n\tpath = ../x\n", ["include.path"]),
        ('[includeIf "gitdir:x"]\n\tpath = ../x\n', ["includeIf.gitdir:x.path"]),
        ("[core]\n\tbare = false\n# hooksPath = x\n; hooksPath = x\n", []),
        ('[branch "main"]\n\tremote = o\n\tmerge = refs/heads/main\n', []),
    ],
)
def test_a_git_configuration_shows_the_keys_that_execute(content: str, keys: list[str]) -> None:
    """In any spelling that git reads; not those that only say where a branch comes from."""
    assert git_keys(content.encode()) == keys
    assert found(".git/config", content.encode()) == ([("git configuration", ", ".join(keys))] if keys else [])


def test_attributes_show_the_commands_that_they_name() -> None:
    """Several in one line too; not what only says what a text is."""
    assert found(".gitattributes", b"*.x text filter=lfs diff=lfs\n# *.y filter=no\n") == [
        ("git attributes", "filter=lfs, diff=lfs")
    ]
    assert found(".gitattributes", b"*.x text eol=lf\n") == []


def test_what_is_shown_of_a_file_is_bounded() -> None:
    """A file has as many keys as it likes, as long as it likes."""
    many = (
        "".join(f"[alias]\n\ta{number} = !{'x' * 500}\n" for number in range(1000))
        + f'[filter "{"y" * 5000}"]\nclean = x'
    )
    ((_, detail),) = found(".git/config", many.encode())

    assert len(detail) < 1000
    assert detail.endswith("and 993 more")


def test_bits_and_special_files_are_of_interest_whatever_their_name() -> None:
    """Beside what the name says."""
    assert found("notes.txt", mode=0o755) == [("executable", "")]
    assert found("notes.txt", mode=0o2755) == [("executable", ""), ("set-user-ID", "")]
    assert found("notes", mode=0o755, kind="directory") == []
    assert found("x", kind="pipe") == [("special file", "pipe")]
    assert found("Makefile", mode=0o755) == [("make", ""), ("executable", "")]


def test_a_link_in_the_place_of_a_file_is_of_its_kind() -> None:
    """What is behind it is what a tool reads; it is not read here."""
    assert found(".git/config", None, kind="link") == [("git configuration", "")]


def test_globs_match_the_end_of_a_path() -> None:
    """`*` stays within a name; `**` crosses folders, and at the end stands for something."""
    pattern = matching(("a/*.b", "c/**", "d/**/e"))

    assert all(pattern.fullmatch(path) for path in ("a/x.b", "z/a/x.b", "c/x", "c/x/y", "d/e", "d/x/y/e"))
    assert not any(pattern.fullmatch(path) for path in ("a/x/y.b", "xa/x.b", "c", "xc/y", "a/xcb"))
