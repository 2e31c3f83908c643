"""The git connector against git itself: what it reads, what it pushes, and what it refuses. No login and no jail.

Not here: a server that logs in by a key, approvals, the jail (tests/e2e/test_git_in_the_jail.py); packs (test_git_packs.py).
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.manifest import Effect
from tests.support.git_host import GitHost, git, program_of
from tests.support.plain_host import ROOT

DATE = "2026-03-02T09:30:00+01:00"
BOT = {"author_name": "Bot", "author_email": "bot@example.com", "date": DATE}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the connector as it is packed."""
    return program_of(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a server's repositories: `site.git` with five commits and a tag, and an empty one."""
    folder = tmp_path_factory.mktemp("repositories")
    git("init", "-q", "--bare", "-b", "main", "site.git", at=folder)
    git("init", "-q", "--bare", "-b", "main", "empty.git", at=folder)
    work = clone(folder / "site.git", tmp_path_factory.mktemp("author"))
    (work / "docs").mkdir()
    (work / "docs" / "logo.bin").write_bytes(bytes(range(256)))
    (work / "link").symlink_to("readme.txt")
    for number in range(1, 6):
        (work / "readme.txt").write_text("".join(f"line {line}\n" for line in range(number)))
        commit(work, f"number {number}\n\nand why", day=number)
    git("tag", "-a", "v1", "-m", "first", at=work)
    git("push", "-q", "origin", "main", "v1", at=work)
    return folder


@pytest.fixture
def repositories(origin: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may push to."""
    return Path(shutil.copytree(origin, tmp_path / "repositories", symlinks=True))


@pytest.fixture
def host(program: Path, repositories: Path) -> GitHost:
    """Return a host of a server that speaks the first version of the protocol, as most do behind OpenSSH."""
    return GitHost(program, repositories)


def clone(repository: Path, into: Path) -> Path:
    """Clone the repository; return the working copy."""
    git("clone", "-q", str(repository), "work", at=into)
    return into / "work"


def commit(work: Path, message: str, day: int = 9) -> str:
    """Commit every change; return the id."""
    git("add", "-A", at=work)
    moment = f"2026-03-{day:02}T10:00:00+01:00"
    git("commit", "-q", "-m", message, at=work, GIT_AUTHOR_DATE=moment, GIT_COMMITTER_DATE=moment)
    return git("rev-parse", "HEAD", at=work)


def tip(repositories: Path, ref: str = "refs/heads/main", repository: str = "site.git") -> str:
    """Return the commit that a ref is at."""
    return git("rev-parse", ref, at=repositories / repository)


def bundle(work: Path, *revisions: str) -> str:
    """Return the bundle that `git bundle create` makes, as an argument."""
    git("bundle", "create", "-q", "new.bundle", *revisions, at=work)
    return base64.b64encode((work / "new.bundle").read_bytes()).decode()


def change(repositories: Path, **other: Any) -> dict[str, Any]:
    """Return arguments of a commit that changes a file, adds one in a new folder, and deletes one."""
    changes = [
        {"path": "readme.txt", "text": "line 0\nnew\n"},
        {"path": "src/run", "text": "#!/bin/sh\n", "executable": True},
        {"path": "docs/logo.bin", "delete": True},
    ]
    usual = {"repository": "site.git", "branch": "main", "base": tip(repositories), "message": "a change", **BOT}
    return {**usual, "changes": changes, **other}


# Reading


@pytest.mark.parametrize("version", [0, 2])
def test_refs_files_and_commits_are_read(program: Path, origin: Path, version: int) -> None:
    """They are as git has them, with either version of the protocol; a tag stands for its commit."""
    git("config", "uploadpack.allowFilter", "true" if version == 2 else "false", at=origin / "site.git")
    host, here = GitHost(program, origin, version=version), {"repository": "site.git"}
    refs = host.call("list_refs", **here, prefix="refs/").output
    files = host.call("list_files", **here, ref="v1", recursive=True).output
    shown = host.call("read_file", **here, path="readme.txt", start=7, max_bytes=7).output
    log = host.call("log_commits", **here, limit=2, skip=1).output

    assert refs["head"] == "refs/heads/main"
    assert [(ref["name"], ref.get("commit", ref["id"])) for ref in refs["refs"]] == [
        ("refs/heads/main", tip(origin)),
        ("refs/tags/v1", tip(origin)),
    ]
    assert [(entry["path"], entry["type"]) for entry in files["entries"]] == [
        ("docs", "folder"),
        ("docs/logo.bin", "file"),
        ("link", "symlink"),
        ("readme.txt", "file"),
    ]
    assert (shown["text"], shown["size"], shown["next_start"]) == ("line 1\n", 35, 14)
    assert [(revision["subject"], revision["date"]) for revision in log["commits"]] == [
        ("number 4", "2026-03-04T10:00:00+01:00"),
        ("number 3", "2026-03-03T10:00:00+01:00"),
    ]
    assert log["more"]
    assert set(host.commands) == {"git-upload-pack 'site.git'"}


def test_symbolic_links_and_binary_files_are_returned_as_data(program: Path, origin: Path) -> None:
    """A link's target is returned and not followed; a file that is not text is base64."""
    host = GitHost(program, origin)
    link = host.call("read_file", repository="site.git", path="link").output
    logo = host.call("read_file", repository="site.git", path="docs/logo.bin").output

    assert (link["type"], link["text"]) == ("symlink", "readme.txt")
    assert base64.b64decode(logo["base64"]) == bytes(range(256))


@pytest.mark.parametrize("version", [0, 2])
def test_a_commit_and_a_comparison_show_gits_diff(program: Path, origin: Path, version: int) -> None:
    """The commit may have no ref; the diff is the one that git prints."""
    third, fifth = tip(origin, "main~2"), tip(origin)
    host = GitHost(program, origin, version=version)
    shown = host.call("show_commit", repository="site.git", commit=third).output
    compared = host.call("diff", repository="site.git", old=third, new="main").output

    assert (shown["commit"]["id"], shown["commit"]["message"]) == (third, "number 3\n\nand why\n")
    assert shown["diff"] == git("show", "--format=", third, at=origin / "site.git") + "\n"
    assert compared["diff"] == git("diff", third, fifth, at=origin / "site.git") + "\n"
    assert compared["files"] == [{"path": "readme.txt", "change": "modify", "added": 2, "deleted": 0, "note": ""}]


@pytest.mark.parametrize("version", [0, 2])
def test_a_bundle_has_only_the_commits_that_the_caller_lacks(
    program: Path, origin: Path, tmp_path: Path, version: int
) -> None:
    """git clones from a whole bundle, and fetches from a partial one. A commit that the server lacks
    is an error.
    """
    host, third = GitHost(program, origin, version=version), tip(origin, "main~2")
    whole = host.call("fetch_bundle", repository="site.git").output
    newer = host.call("fetch_bundle", repository="site.git", ref="main", known=[third]).output
    unknown = host.call("fetch_bundle", repository="site.git", known=["1" * 40]).failure
    (tmp_path / "whole").write_bytes(base64.b64decode(whole["bundle"]))
    (tmp_path / "newer").write_bytes(base64.b64decode(newer["bundle"]))
    git("clone", "-q", "-b", "main", "whole", "copy", at=tmp_path)
    git("init", "-q", "old", at=tmp_path)
    git("fetch", "-q", str(origin / "site.git"), third, at=tmp_path / "old")
    git("fetch", "-q", "../newer", "main", at=tmp_path / "old")

    assert git("rev-parse", "HEAD", at=tmp_path / "copy") == tip(origin)
    assert git("rev-parse", "FETCH_HEAD", at=tmp_path / "old") == tip(origin)
    assert newer["bytes"] < whole["bytes"]
    assert unknown.message == f"the server does not have {'1' * 40}; leave it out of known"


@pytest.mark.abuse_case("LG5")
def test_a_missing_repository_ref_or_file_is_reported(host: GitHost) -> None:
    """An empty repository and a folder in place of a file are among the cases."""
    asked = [
        ("list_refs", {"repository": "nothing.git"}, "the server ended the connection"),
        ("log_commits", {"repository": "site.git", "ref": "nothing"}, "there is no ref 'nothing'"),
        ("read_file", {"repository": "site.git", "path": "docs/../readme.txt"}, "there is no docs/.."),
        ("read_file", {"repository": "site.git", "path": "docs"}, "'docs' is a folder, not a file"),
        ("read_file", {"repository": "site.git", "path": "link/etc/passwd"}, "link is not a folder"),
        ("list_files", {"repository": "empty.git"}, "the repository is empty"),
        ("show_commit", {"repository": "site.git", "commit": "1" * 40}, "the server does not give 1111"),
        ("list_refs", {"repository": "team/../../etc"}, "repository is not a path"),
        ("list_refs", {"repository": "x'; rm -rf '"}, "repository is not a path"),
    ]
    for op, arguments, words in asked:
        assert words in host.call(op, **arguments).failure.message


# Pushing a commit


def test_the_previewed_commit_is_the_one_that_is_pushed(host: GitHost, repositories: Path) -> None:
    """The preview reads only, and has the id, the files and the diff; git finds nothing wrong with what arrives."""
    before = tip(repositories)
    shown = host.call("preview_commit", **change(repositories)).output
    only_read = set(host.commands)
    untouched = tip(repositories)
    pushed = host.call("push_commit", **change(repositories)).output
    git("fsck", "--strict", at=repositories / "site.git")

    assert only_read == {"git-upload-pack 'site.git'"}
    assert untouched == before
    assert pushed == {"branch": "main", "from": before, "to": shown["to"]}
    assert tip(repositories) == shown["to"]
    assert shown["stat"].splitlines() == [
        "D docs/logo.bin: binary, 256 → 0 bytes",
        "M readme.txt: +1 -4",
        "A src/run: +1 -0, executable",
        "3 files, +2 -4 lines",
    ]
    assert git("log", "-1", "--format=%an <%ae> %cI %P %B", at=repositories / "site.git").strip() == (
        f"Bot <bot@example.com> {DATE} {before} a change"
    )
    assert "100755 blob" in git("ls-tree", "-r", "main", "src/run", at=repositories / "site.git")


def test_a_branch_that_is_not_at_the_expected_commit_is_not_changed(
    host: GitHost, repositories: Path, tmp_path: Path
) -> None:
    """The push is refused, and the error says where the branch is."""
    asked = change(repositories)
    work = clone(repositories / "site.git", tmp_path)
    (work / "other").write_text("of somebody else")
    theirs = commit(work, "theirs")
    git("push", "-q", "origin", "main", at=work)
    refused = host.call("push_commit", **asked).failure

    assert refused.failure_class == "bad_input"
    assert refused.message == (
        f"main is at {theirs}, not at {asked['base']}; it was moved meanwhile, and nothing was pushed"
    )
    assert tip(repositories) == theirs


def test_new_branches_and_first_commits_need_the_argument_new_branch(host: GitHost, repositories: Path) -> None:
    """An existing branch is an error with `new_branch`, and a missing one without it."""
    made = host.call("push_commit", **change(repositories, branch="feature/x", new_branch=True)).output
    again = host.call("push_commit", **change(repositories, branch="feature/x", new_branch=True, message="b")).failure
    missing = host.call("push_commit", **change(repositories, branch="feature/y")).failure
    first = {"repository": "empty.git", "branch": "main", "new_branch": True, "message": "first", **BOT}
    begun = host.call("push_commit", **first, changes=[{"path": "a", "base64": "AP8="}]).output

    assert tip(repositories, "refs/heads/feature/x") == made["to"]
    assert "feature/x exists already" in again.message
    assert "feature/y does not exist" in missing.message
    assert tip(repositories, repository="empty.git") == begun["to"]


@pytest.mark.abuse_case("LG5")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([{"path": "../x", "text": ""}], "has a name that git does not allow"),
        ([{"path": ".GIT/config", "text": ""}], "has a name that git does not allow"),
        ([{"path": "a/git~1", "text": ""}], "has a name that git does not allow"),
        ([{"path": ".g\u200cit/hooks/x", "text": ""}], "has a name that git does not allow"),
        ([{"path": "/etc/x", "text": ""}], "has a name that git does not allow"),
        ([{"path": "a\nb", "text": ""}], "has a name that git does not allow"),
        ([{"path": "a", "text": ""}, {"path": "a/b", "text": ""}], "is changed twice"),
        ([{"path": "readme.txt/x", "text": ""}], "readme.txt is a file, not a folder"),
        ([{"path": "docs", "text": ""}], "docs is a folder, not a file"),
        ([{"path": "nothing", "delete": True}], "there is no nothing to delete"),
        ([{"path": "a", "text": "", "delete": True}], "has not exactly one of text, base64 and delete"),
        ([{"path": "link", "text": "readme.txt", "mode": "x"}], "unknown field"),
        ([{"path": "readme.txt", "text": "".join(f"line {line}\n" for line in range(5))}], "nothing changes"),
    ],
)
def test_files_that_cannot_be_committed_are_refused(
    host: GitHost, repositories: Path, changes: list[dict[str, Any]], words: str
) -> None:
    """They are refused before anything is pushed: no name may lead out of a working copy or into its `.git`."""
    refused = host.call("push_commit", **change(repositories, changes=changes)).failure

    assert refused.failure_class == "bad_input"
    assert words in refused.message
    assert not [command for command in host.commands if "receive" in command]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"branch": "a..b"}, "is not a name that git allows"),
        ({"branch": "refs/heads/main"}, "is not a name that git allows"),
        ({"base": "main"}, "is not the id of a commit"),
        ({"author_name": "x> <y"}, "author_name is empty, or has"),
        ({"author_email": "nobody"}, "is not a mail address"),
        ({"date": "2026-03-01"}, "date is not RFC 3339"),
        ({"message": " "}, "message is empty"),
    ],
)
def test_a_commit_that_git_would_refuse_is_refused(
    host: GitHost, repositories: Path, wrong: dict[str, Any], words: str
) -> None:
    """The cases are invalid names, dates and messages."""
    assert words in host.call("push_commit", **change(repositories, **wrong)).failure.message


def test_a_servers_refusal_is_reported_with_its_reason(host: GitHost, repositories: Path) -> None:
    """A hook of the server refuses; its reason is passed on, and the branch stays."""
    before = tip(repositories)
    hook = repositories / "site.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    refused = host.call("push_commit", **change(repositories)).failure

    assert refused.failure_class == "external_api_error"
    assert refused.message == "the server refused to move refs/heads/main: hook declined"
    assert tip(repositories) == before


def test_a_server_that_ends_after_the_push_leaves_the_result_unknown(host: GitHost, repositories: Path) -> None:
    """The branch has moved, but the server did not report it: the failure says where to look, and not that the push failed."""
    before = tip(repositories)
    hook = repositories / "site.git" / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
    hook.chmod(0o755)
    lost = host.call("push_commit", **change(repositories)).failure

    assert tip(repositories) != before
    assert "whether refs/heads/main was moved is not known: look with list_refs" in lost.message


# Pushing a bundle


def test_commits_of_a_working_copy_are_pushed_as_a_bundle(host: GitHost, repositories: Path, tmp_path: Path) -> None:
    """They keep their ids; the preview lists them. A bundle's deltas are against what the server has."""
    work = clone(repositories / "site.git", tmp_path)
    lines = "".join(f"{line} of many\n" for line in range(500))
    for number in (1, 2):
        (work / "readme.txt").write_text(lines + f"and {number}\n")
        commit(work, f"local {number}")
    asked = {"repository": "site.git", "branch": "main", "expected": tip(repositories)}
    asked["bundle"] = bundle(work, "origin/main..main")
    shown = host.call("preview_bundle", **asked).output
    pushed = host.call("push_bundle", **asked).output

    assert [line.split(" (")[0][13:] for line in shown["commits"].splitlines()] == ["local 2", "local 1"]
    assert (shown["fast_forward"], shown["lost"]) == ("yes", None)
    assert shown["stat"].splitlines()[-1] == "1 file, +501 -5 lines"
    assert pushed["to"] == shown["to"] == git("rev-parse", "main", at=work) == tip(repositories)
    git("fsck", "--strict", at=repositories / "site.git")


def test_a_repository_cannot_influence_how_its_diffs_are_shown(
    host: GitHost, repositories: Path, tmp_path: Path
) -> None:
    """The attempts are attributes, the zone and encoding of a commit, and a mode that changes where no diff is shown."""
    work = clone(repositories / "site.git", tmp_path)
    (work / ".gitattributes").write_text("*.txt -diff\nreadme.txt diff=none linguist-generated\n")
    (work / "readme.txt").write_text("changed\n")
    (work / "docs" / "logo.bin").chmod(0o755)
    git("add", "-A", at=work)
    git("config", "i18n.commitEncoding", "UTF-7", at=work)
    moment = "2026-03-02T00:30:00+14:00"
    git("commit", "-q", "-m", "+AGEAYg-", at=work, GIT_AUTHOR_DATE=moment, GIT_COMMITTER_DATE=moment)
    asked = {"repository": "site.git", "branch": "main", "expected": tip(repositories)}
    shown = host.call("preview_bundle", **asked, bundle=bundle(work, "origin/main..main")).output

    assert shown["commits"].endswith("2026-03-02T00:30+14:00, other programs read it as 'UTF-7')")
    assert shown["stat"].splitlines() == [
        "A .gitattributes: +2 -0",
        "M docs/logo.bin: binary, 256 → 256 bytes, file → executable",
        "M readme.txt: +1 -5",
        "3 files, +3 -5 lines",
    ]
    assert "+changed" in shown["diff"]


@pytest.mark.abuse_case("LG2")
def test_commits_of_the_branch_are_replaced_only_by_force(host: GitHost, repositories: Path, tmp_path: Path) -> None:
    """The preview lists the lost commits. Without force nothing is pushed; with it, only if the branch is as expected."""
    work = clone(repositories / "site.git", tmp_path)
    before = tip(repositories)
    git("reset", "-q", "--hard", "HEAD~2", at=work)
    (work / "readme.txt").write_text("rewritten\n")
    rewritten = commit(work, "rewritten")
    asked = {"repository": "site.git", "branch": "main", "expected": before}
    asked["bundle"] = bundle(work, "main~1..main")
    shown = host.call("preview_bundle", **asked, force=True).output
    refused = host.call("push_bundle", **asked).failure
    unmoved = tip(repositories)
    stale = host.call("push_bundle", **{**asked, "expected": tip(repositories, "main~1")}, force=True).failure
    kept = tip(repositories)
    forced = host.call("push_bundle", **asked, force=True).output

    assert shown["fast_forward"].startswith("no")
    assert [line[13:].split(" (")[0] for line in shown["lost"].splitlines()[1:]] == ["number 5", "number 4"]
    assert f"does not build on main at {before}" in refused.message
    assert "it was moved meanwhile, and nothing was pushed" in stale.message
    assert (unmoved, kept) == (before, before)
    assert forced["to"] == rewritten == tip(repositories)


@pytest.mark.abuse_case("LG5")
def test_a_bundle_with_a_dangerous_tree_is_refused(host: GitHost, repositories: Path, tmp_path: Path) -> None:
    """A folder contains `.git`, which git would not check out and a careless client would."""
    work = clone(repositories / "site.git", tmp_path)
    blob = git("hash-object", "-w", "--stdin", at=work, data=b"[core]")
    inner = b"100644 config\0" + bytes.fromhex(blob)
    config = git("hash-object", "-t", "tree", "--literally", "-w", "--stdin", at=work, data=inner)
    outer = b"40000 .git\0" + bytes.fromhex(config)
    tree = git("hash-object", "-t", "tree", "--literally", "-w", "--stdin", at=work, data=outer)
    made = git("commit-tree", tree, "-p", "HEAD", "-m", "bad", at=work)
    git("update-ref", "refs/heads/bad", made, at=work)
    asked = {"repository": "site.git", "branch": "bad", "bundle": bundle(work, "origin/main..bad")}

    assert "'.git' has a name that git does not allow" in host.call("push_bundle", **asked).failure.message


# Refs


def test_branches_and_tags_are_created_once_and_deleted_only_at_the_expected_commit(
    host: GitHost, repositories: Path
) -> None:
    """A tag is never moved, and a branch is deleted only where it is expected to be."""
    at = {"repository": "site.git", "at": tip(repositories, "main~1")}
    made = host.call("create_branch", **at, branch="old").output, host.call("create_tag", **at, tag="v0").output
    moved = host.call("create_tag", **{**at, "at": tip(repositories)}, tag="v0").failure
    absent = host.call("create_branch", **{**at, "at": "1" * 40}, branch="new").failure
    shown = host.call("preview_branch", repository="site.git", branch="old").output
    wrong = host.call("delete_branch", repository="site.git", branch="old", expected=tip(repositories)).failure
    still = tip(repositories, "refs/heads/old")
    gone = host.call("delete_branch", repository="site.git", branch="old", expected=at["at"]).output

    assert made == ({"branch": "old", "at": at["at"]}, {"tag": "v0", "at": at["at"]})
    assert gone == {"branch": "old", "was_at": at["at"]}
    assert tip(repositories, "refs/tags/v0") == at["at"] == still == shown["at"]
    assert "tags/v0 exists already" in moved.message
    assert "the server refused" in absent.message
    assert shown["also_at"] == "tags/v0"
    assert "it was moved meanwhile" in wrong.message
    with pytest.raises(subprocess.CalledProcessError):
        tip(repositories, "refs/heads/old")


# A server that lies


def answers(data: bytes, into: Path, *, listens: bool = False) -> Callable[[str], list[str]]:
    """Return a server that sends this, whatever it is told. One that listens ends when its client does, and not before."""
    (into / "said").write_bytes(data)
    then = "; cat > /dev/null" if listens else ""
    return lambda _command: ["sh", "-c", f"cat {into / 'said'}{then}"]


def lines(*packets: bytes) -> bytes:
    """Return pkt-lines, and a flush."""
    return b"".join(b"%04x%s" % (len(packet) + 4, packet) for packet in packets) + b"0000"


@pytest.mark.abuse_case("LG7")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "the server ended the connection"),
        (b"SSH-2.0-nothing\r\n", "the server"),
        (b"zzzz", "the server"),
        (b"0003", "the server"),
        (lines(b"ERR \x1b[2Jno such thing\n"), "the server says: [2Jno such thing"),
        (lines(b"ERR Repository not found.\n"), "not found.; check the name of the repository, and that the key has"),
        (lines(b"nothing"), "the server sent what git does not send"),
        (lines(b"2" * 40 + b" HEAD\0shallow", b"shallow\xff"), "the server sent what git does not send"),
    ],
)
def test_a_server_that_does_not_speak_git_is_reported_without_its_control_characters(
    program: Path, tmp_path: Path, said: bytes, words: str
) -> None:
    """The failure has no traceback and no control character of the server's."""
    host = GitHost(program, tmp_path, serve=answers(said, tmp_path))
    failed = host.call("log_commits", repository="site.git").failure

    assert failed.failure_class == "external_api_error"
    assert words in failed.message
    assert failed.message.isprintable()


@pytest.mark.abuse_case("LG7")
def test_refs_with_unprintable_names_are_left_out(program: Path, tmp_path: Path) -> None:
    """Names with control characters or without UTF-8 and invalid ids are left out; the other refs are there."""
    said = lines(
        b"2" * 40 + b" refs/heads/good\0symref=HEAD:refs/heads/\x1b",
        b"2" * 40 + b" refs/heads/\x1b[2J",
        b"2" * 40 + b" refs/heads/\xff",
        b"x" * 40 + b" refs/heads/id",
    )
    host = GitHost(program, tmp_path, serve=answers(said, tmp_path, listens=True))
    found = host.call("list_refs", repository="site.git").output

    assert found == {"head": None, "refs": [{"name": "refs/heads/good", "id": "2" * 40}], "left_out": 0}


@pytest.mark.abuse_case("LG6")
def test_an_endless_list_of_refs_is_refused_as_too_large(program: Path, tmp_path: Path) -> None:
    """The server sends refs without end."""
    ref = "2" * 40 + " refs/heads/main"
    host = GitHost(program, tmp_path, serve=lambda _command: ["yes", f"{len(ref) + 5:04x}{ref}"])
    failed = host.call("list_refs", repository="site.git").failure

    assert failed.message.startswith("too large: the server sends more")


# Its actions


@pytest.mark.abuse_case("LG2")
def test_only_reads_run_without_approval() -> None:
    """Each push has a read-only preview, and only one action file allows `force`."""
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (ROOT / "connectors" / "git" / "actions").glob("*/action.md")
    }
    gated = {name for name, action in actions.items() if action.approval.required}
    forced = {name for name, action in actions.items() if "force" in action.steps[0].inputs}

    assert gated == {
        "git-push-commit",
        "git-push-bundle",
        "git-force-push",
        "git-create-branch",
        "git-create-tag",
        "git-delete-branch",
    }
    assert forced == {"git-force-push"}
    assert not any(spec.name == "force" for action in actions.values() for spec in action.inputs)
    assert actions["git-force-push"].steps[0].effect is Effect.DELETE
    assert all(action.steps[0].idempotent is (name not in gated) for name, action in actions.items())
    for name in ("git-push-commit", "git-push-bundle", "git-force-push", "git-delete-branch"):
        preview = actions[name].preview
        assert preview is not None
        assert preview.op.startswith("preview_")
