"""Tests of which changed files can execute later: an example of each kind of the table, and what a file's contents decide."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from aileron.cell.executes import KINDS, Candidate, EntryKind, findings, matching
from aileron.cell.git_config import git_keys, is_plain
from aileron.cell.tree import MAX_CONTENT

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cell-changes.md").read_text(encoding="utf-8")


def found(path: str, content: bytes | None = b"", mode: int = 0o644, kind: EntryKind = "file") -> list[tuple[str, str]]:
    """Return the findings of a file with this path."""
    return [(kind, detail) for kind, detail in findings(Candidate(path, kind, mode, lambda: content))]


def test_the_cell_changes_page_lists_every_kind_of_file_that_can_execute() -> None:
    """Every kind is listed with its files and its reason, in the order in which they are shown."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## Files that execute")[2], re.MULTILINE
    )
    shown = {
        kind: (tuple(re.findall(r"`([^`]+)`", files)), reason) for kind, files, reason in rows[1:] if kind != "---"
    }

    assert list(shown) == list(KINDS)
    assert shown == {kind: (rule.files, rule.reason) for kind, rule in KINDS.items()}


@pytest.mark.abuse_case("CL2", "CL8")
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
        (".git/remotes/origin", "git elsewhere"),
        (".git/branches/a/b", "git elsewhere"),
        (".git/modules/m/remotes/o", "git elsewhere"),
        ("venv/bin/activate.fish", "python startup"),
        ("manage.py", "make"),
        (".pnp.cjs", "npm configuration"),
        (".mocharc.yml", "javascript configuration"),
        ("karma.conf.js", "javascript configuration"),
        (".Rprofile", "shell startup"),
        (".irbrc", "shell startup"),
        (".pryrc", "shell startup"),
        (".ghci", "shell startup"),
        (".screenrc", "shell startup"),
        ("_vimrc", "shell startup"),
        (".vimrc", "shell startup"),
        (".exrc", "shell startup"),
        ("config.ru", "other builds"),
        ("Guardfile", "other builds"),
        ("project.clj", "other builds"),
        ("ansible.cfg", "containers"),
        ("serverless.yml", "containers"),
        (".pylintrc", "python build"),
        ("mypy.ini", "python build"),
        ("Makefile.in", "make"),
        ("Makefile.am", "make"),
        ("build.ninja", "make"),
        (".envrc.local", "shell environment"),
        (".babelrc", "javascript configuration"),
        (".eslintrc.json", "javascript configuration"),
        ("packages/a/.prettierrc", "javascript configuration"),
        ("packages/a/nodemon.json", "javascript configuration"),
        (".flake8", "python build"),
        (".ycm_extra_conf.py", "shell startup"),
        (".dir-locals-2.el", "shell startup"),
        ("lefthook-local.yml", "commit checks"),
        ("cpanfile", "other builds"),
        (".formatter.exs", "other builds"),
        ("src/dune", "other builds"),
        ("tools/hooks/pre-push", "git hook"),
        ("docs/conf.py", "make"),
        ("nix/packages.nix", "shell environment"),
        ("build/rules.props", "other builds"),
        ("buildSrc/src/main/x.kt", "jvm"),
        (".hg/hgrc", "version control"),
        (".hg/store/hgrc", "version control"),
        ("vendor/x/.hg/sharedpath", "version control"),
        (".sl/config", "version control"),
        (".jj/repo/config.toml", "version control"),
        (".jj/repo/store/git_target", "version control"),
        (".svn/wc.db", "version control"),
        (".bzr/branch/branch.conf", "version control"),
        ("_darcs/prefs/defaults", "version control"),
        ("CVS/Root", "version control"),
        (".fslckout", "version control"),
        (".future/plugins/x.js", "settings"),
        ("src/.futurerc", "settings"),
        (".future", "settings"),
        ("packages/a/future.config.coffee", "settings"),
        ("src/future.conf", "settings"),
        ("bashrc", "settings"),
        ("ci/Futurefile", "settings"),
        ("src/FUTURE", "settings"),
        ("future.toml", "settings"),
        ("future.json", "settings"),
        ("future.yml", "settings"),
    ],
)
def test_a_path_decides_the_kind_of_a_file(path: str, kind: str) -> None:
    """The place in the project and the name of its folder do not matter."""
    assert found(path) == [(kind, "")]


def test_a_sample_hook_is_not_listed() -> None:
    """Only git's own sample hooks are exempt. The ending .sample elsewhere and a set-user-ID bit are checked."""
    assert found(".git/hooks/pre-commit.sample", mode=0o755) == []
    assert found(".husky/pre-commit.sample") == [("git hook", "")]
    assert found(".git/hooks/pre-commit.sample", mode=0o4755) != []


@pytest.mark.parametrize(
    "path",
    [
        "src/main.py",
        "xMakefile",
        "Makefile/notes",
        "git/hooks.md",
        "my.envrc",
        "README.md",
        "src/activate",
        "git/remotes/origin",
        "x.pnp.cjs",
        ".gitignore",
        "src/.gitkeep",
        ".git/HEAD",
        "sub/.git/refs/heads/main",
        ".mypy_cache/3.11/x.data.json",
        ".hg/store/data/x.i",
        ".hg/dirstate",
        ".jj/working_copy/tree_state",
        ".svn/pristine/00/x.svn-base",
        "LICENSE",
        "README",
        "main.c",
        "tests/data/x.json",
        "locale/de.yml",
        "notes",
    ],
)
def test_files_without_a_matching_rule_are_not_listed(path: str) -> None:
    """Some names only resemble one of the table."""
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
def test_a_package_json_is_listed_with_its_scripts(content: bytes | None, shown: list[tuple[str, str]]) -> None:
    """The names of the scripts are shown; a file that cannot be parsed is listed too."""
    assert found("package.json", content) == shown


@pytest.mark.abuse_case("CL2")
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
        ("\ufeff[core]\n\thooksPath = x\n", ["core.hooksPath"]),
        ("# \\\n[core]\n\thooksPath = x\n", ["core.hooksPath"]),
        ("[core]\n\tbare = false # \\\n\thooksPath = x\n", ["core.hooksPath"]),
        ("[user]\n\tname = a \\\n[core]\n\thooksPath = x\n", ["core.hooksPath"][:0]),
        ('[user]\n\tname = "a # b" \\\n c\n[core]\n\thooksPath = x\n', ["core.hooksPath"]),
        ('[remote "o"]\n\turl = "e"xt::sh\n', ["remote.o.url"]),
        ('[remote "o"]\n\turl = e\\\nxt::sh\n', ["remote.o.url"]),
        ('[branch "b"]\n\tremote = ext::sh\n\tpushRemote = ext::sh\n', ["branch.b.remote", "branch.b.pushRemote"]),
        ("[remote]\n\tpushDefault = ext::sh\n", ["remote.pushDefault"]),
        ("[gc]\n\trecentObjectsHook = x\n", ["gc.recentObjectsHook"]),
        ("[svn]\n\tauthorsProg = x\n", ["svn.authorsProg"]),
        ("[instaweb]\n\thttpd = x\n", ["instaweb.httpd"]),
        ("[http]\n\tproxy = x\n\tsslVerify = false\n", ["http.proxy", "http.sslVerify"]),
    ],
)
def test_a_git_configuration_is_listed_with_its_keys_that_execute_commands(content: str, keys: list[str]) -> None:
    """Any spelling that git reads is found; keys that only say where a branch comes from are not shown."""
    assert git_keys(content.encode()) == keys
    named = [("git configuration", ", ".join(keys))]
    assert found(".git/config", content.encode()) == (named if keys or not is_plain(content.encode()) else [])


FRESH = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
# a comment
[remote "origin"]
\turl = {url}
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "feature/1"]
\tremote = origin
\tmerge = refs/heads/feature/1
[user]
\tname = Zoë O'Neil
\temail = z@example.com
"""


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a/b.git", "ssh://git@example.com:22/a", "git@example.com:a/b.git", "/srv/a.git", "../a"],
)
def test_a_fresh_git_configuration_is_not_listed(url: str) -> None:
    """`git clone` and `git branch` write exactly this."""
    assert found(".git/config", FRESH.format(url=url).encode()) == []


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b"[core]\n\tfuture = x",
        b"[core]\n\tbare",
        b'[core]\n\tbare = "false"',
        b"[core]\n\tbare = false \\",
        b"# \\",
        b"[core]\n\tbare = false # x",
        b"[core] bare = false",
        b"[core]\r\n\tbare = false",
        b"[core]\n\tworktree = /x",
        b"[future]\n\tx = y",
        b'[remote "o"]\n\turl = ext::sh',
        b'[remote "o"]\n\turl = https://a::b',
        b'[remote "o"]\n\turl = -oProxyCommand=x',
        b'[remote "o"]\n\turl = ssh://-oProxyCommand=x/a',
        b'[remote "o"]\n\tpushurl = https://a/b',
        b'[remote "-x"]\n\turl = https://a/b',
        b"[remote.o]\n\turl = https://a/b",
        b'[branch "b"]\n\tremote = ext::sh',
        b'[branch "b"]\n\tremote = ../x',
        b'[branch "b"]\n\tpushRemote = origin',
    ],
)
def test_any_git_configuration_that_could_execute_is_listed(line: bytes) -> None:
    """Unknown keys, inexact syntax and a byte order mark count as possibly executing."""
    fresh = FRESH.format(url="https://a/b").encode()

    assert [kind for kind, _ in found(".git/config", fresh + line + b"\n")] == ["git configuration"]
    assert found(".git/config", fresh + b"[core]\n\tbare = false\n") == []
    assert found(".git/config", b"\xef\xbb\xbf" + fresh) == [("git configuration", "")]


@pytest.mark.parametrize(
    "unit", ["\n", "[", '[a "', '[a "\\', "\\\n", "a=\\\n", 'a="', "a=#;", "[a]", "#\n", " ", 'a="#']
)
def test_reading_any_git_configuration_takes_bounded_time(unit: str) -> None:
    """Each file is one MiB on which a careless parser would take quadratic time."""
    content = (unit * (MAX_CONTENT // len(unit))).encode()
    started = time.process_time()
    git_keys(content)
    is_plain(content)

    assert time.process_time() - started < 10


def test_gitattributes_are_listed_with_the_commands_that_they_name() -> None:
    """Several in one line are found; attributes that only describe a text are not shown."""
    assert found(".gitattributes", b"*.x text filter=lfs diff=lfs\n# *.y filter=no\n") == [
        ("git attributes", "filter=lfs, diff=lfs")
    ]
    assert found(".gitattributes", b"*.x text eol=lf\n") == []


def test_the_shown_details_of_a_file_are_bounded() -> None:
    """A file can have any number of keys, of any length."""
    many = (
        "".join(f"[alias]\n\ta{number} = !{'x' * 500}\n" for number in range(1000))
        + f'[filter "{"y" * 5000}"]\nclean = x'
    )
    ((_, detail),) = found(".git/config", many.encode())

    assert len(detail) < 1000
    assert detail.endswith("and 993 more")


def test_permission_bits_and_special_files_are_reported_whatever_the_files_name() -> None:
    """They are reported in addition to what the name says."""
    assert found("notes.txt", mode=0o755) == [("executable", "")]
    assert found("notes.txt", mode=0o2755) == [("executable", ""), ("set-user-ID", "")]
    assert found("notes", mode=0o755, kind="directory") == []
    assert found("x", kind="pipe") == [("special file", "pipe")]
    assert found("Makefile", mode=0o755) == [("make", ""), ("executable", "")]


def test_a_link_with_a_known_name_is_listed_as_the_kind_of_that_name() -> None:
    """A tool would read the link's target, which the check does not follow."""
    assert found(".git/config", None, kind="link") == [("git configuration", "")]


def test_globs_match_the_end_of_a_path() -> None:
    """`*` stays within a name; `**` crosses folders, and at the end matches at least one name."""
    pattern = matching(("a/*.b", "c/**", "d/**/e"))

    assert all(pattern.fullmatch(path) for path in ("a/x.b", "z/a/x.b", "c/x", "c/x/y", "d/e", "d/x/y/e"))
    assert not any(pattern.fullmatch(path) for path in ("a/x/y.b", "xa/x.b", "c", "xc/y", "a/xcb"))
