"""Connector for the repositories of one git server: read refs, files, commits and diffs; push commits.

Runs inside the jail; the server is fixed when the connector is built. The supervisor logs in with the key and has
`git-upload-pack` or `git-receive-pack` executed; the connector gets the stream and never the key. The contents of a
repository were written by others and are passed on as data. They are held in memory, and no file is checked out.

A push and its preview compute the same commit from the same arguments, so the id that was shown is the id that is pushed. A
branch that has moved since the caller saw it is not touched.

Not handled: https remotes, submodules, large file storage, signed commits, merges.
"""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import Any, Final

import msgspec
from bundles import read_bundle, write_bundle
from changes import MAX_DIFF_CHARACTERS, compared, contents, differences, stat_lines
from commits import described, line_of, made_commit, walked
from dulwich.objects import Blob, Commit, Tree
from dulwich.patch import is_binary
from packs import Objects
from remote import Remote, is_id
from repository import Repository, branch_ref, check_at, name_of, ref_named
from trees import EXECUTABLE, FILE, Change, changed_tree, check_names, find, kind_of, listed, shown, split_path

from aileron_connector import BadInput, ExternalApiError, log, op, run

MAX_REFS: Final = 2000
MAX_ENTRIES: Final = 2000
MAX_COMMITS: Final = 100
MAX_SKIPPED: Final = 1000
"""Maximum number of commits to skip. Skipped commits are fetched, too, because the server always sends the history from
a ref backwards.
"""
MAX_READ_BYTES: Final = 512 << 10
"""Maximum number of bytes of a file in one result; a result has less than 1 MiB."""
MAX_BUNDLE_BYTES: Final = 700_000
"""Maximum number of bytes of the pack that is fetched for a bundle. The result has the bundle in base64, which is a
third longer.
"""
MAX_CHANGES: Final = 200
MAX_KNOWN: Final = 16
MAX_PREVIEWED: Final = 50
"""Maximum number of commits that a preview lists."""
NONE_YET: Final = "nothing"
"""Text that a preview shows in place of a commit, for a new branch without history."""


class FileChange(msgspec.Struct, forbid_unknown_fields=True):
    """A changed file of a commit. It has the new `text` or `base64`, or has `delete` set."""

    path: str
    text: str | None = None
    base64: str | None = None
    delete: bool = False
    executable: bool | None = None


@op
def list_refs(repository: str, prefix: str = "", limit: int = 200) -> dict[str, Any]:
    """List branches, tags and other refs by name, and the ref of HEAD. Only refs that begin with `prefix`, such as
    `refs/heads/`, are listed.
    """
    check_range(limit, MAX_REFS, "limit")
    refs, head = Remote(repository).refs()
    names = sorted(name for name in refs if not name.endswith(b"^{}") and name.startswith(prefix.encode()))
    found = []
    for name in names[:limit]:
        peeled = refs.get(name + b"^{}")
        commit = {} if peeled is None else {"commit": peeled.decode()}
        found.append({"name": shown(name), "id": refs[name].decode(), **commit})
    return {"head": None if head is None else shown(head), "refs": found, "left_out": len(names) - len(found)}


@op
def list_files(
    repository: str, ref: str = "HEAD", path: str = "", recursive: bool = False, limit: int = 500
) -> dict[str, Any]:
    """List a folder at a ref: path, type and id of each entry, and the size if the server sent the files too."""
    check_range(limit, MAX_ENTRIES, "limit")
    names = split_path(path)
    source = Repository(repository)
    commit = source.objects.commit(source.fetch_commit(ref, depth=1, leave_out="blob:none"))
    mode, folder = find(source.objects, bytes(commit.tree), names)
    if kind_of(mode) != "folder":
        raise BadInput(f"{path[:200]!a} is a {kind_of(mode)}, not a folder; read it with read_file", argument="path")
    entries = list(islice(listed(source.objects, folder, names, recursive=recursive), limit + 1))
    return {"commit": commit.id.decode(), "entries": entries[:limit], "more": len(entries) > limit}


@op
def read_file(
    repository: str, path: str, ref: str = "HEAD", start: int = 0, max_bytes: int = 100_000
) -> dict[str, Any]:
    """Read a file at a ref from byte `start` on, as `text`, or as `base64` if it is not UTF-8. A symbolic link is read as
    its target.
    """
    check_range(max_bytes, MAX_READ_BYTES, "max_bytes")
    if start < 0:
        raise BadInput("start is below 0", argument="start")
    source = Repository(repository)
    commit = source.objects.commit(source.fetch_commit(ref, depth=1, leave_out="blob:none"))
    mode, sha = find(source.objects, bytes(commit.tree), split_path(path))
    if kind_of(mode) in {"folder", "submodule"}:
        raise BadInput(f"{path[:200]!a} is a {kind_of(mode)}, not a file", argument="path")
    source.need([sha])
    data = source.objects.blob(sha)
    piece, end = data[start : start + max_bytes], start + max_bytes
    return {
        "commit": commit.id.decode(),
        "path": path,
        "type": kind_of(mode),
        "id": sha.decode(),
        "size": len(data),
        **_as_text(piece, whole=not start and end >= len(data)),
        "next_start": None if end >= len(data) else end,
    }


@op
def log_commits(repository: str, ref: str = "HEAD", limit: int = 20, skip: int = 0) -> dict[str, Any]:
    """List the commits of a ref, newest first."""
    check_range(limit, MAX_COMMITS, "limit")
    if not 0 <= skip <= MAX_SKIPPED:
        raise BadInput(f"skip {skip} is not from 0 to {MAX_SKIPPED}", argument="skip")
    source = Repository(repository)
    tip = source.fetch_commit(ref, depth=skip + limit + 1, leave_out="tree:0")
    commits = list(islice(walked(source.objects, [tip]), skip, skip + limit + 1))
    return {"commits": [described(commit) for commit in commits[:limit]], "more": len(commits) > limit}


@op
def show_commit(repository: str, commit: str = "HEAD", max_characters: int = 50_000) -> dict[str, Any]:
    """Show a commit, its files with the numbers of changed lines, and its diff against its first parent."""
    check_range(max_characters, MAX_DIFF_CHARACTERS, "max_characters")
    source = Repository(repository)
    found = source.objects.commit(source.fetch_commit(commit, depth=2, leave_out="blob:none"))
    parent = bytes(found.parents[0]) if found.parents else None
    if parent is not None and parent not in source.objects:
        source.fetch_commits([parent], leave_out="blob:none")
    return {"commit": described(found), **_compared(source, parent, bytes(found.id), max_characters)}


@op
def diff(repository: str, old: str, new: str, max_characters: int = 50_000) -> dict[str, Any]:
    """Show what changed from one ref or commit to another."""
    check_range(max_characters, MAX_DIFF_CHARACTERS, "max_characters")
    source = Repository(repository)
    before = source.fetch_commit(old, depth=1, leave_out="blob:none")
    after = source.fetch_commit(new, depth=1, leave_out="blob:none")
    return {"old": before.decode(), "new": after.decode(), **_compared(source, before, after, max_characters)}


@op
def fetch_bundle(repository: str, ref: str = "HEAD", known: list[str] | None = None) -> dict[str, Any]:
    """Fetch a ref with its history as a git bundle in base64. The history of the `known` commits is left out."""
    ids = tuple(_id(commit_id, "known") for commit_id in known or ())
    if len(ids) > MAX_KNOWN:
        raise BadInput(f"more than {MAX_KNOWN} known commits", argument="known")
    remote = Remote(repository)
    chosen: dict[bytes, bytes] = {}

    def choose(refs: dict[bytes, bytes]) -> list[bytes]:
        chosen.update(_ref_of(refs, ref))
        if set(chosen.values()) <= set(ids):
            raise BadInput(
                f"{ref[:64]!a} is at {ids[0].decode()}, which you know: there is nothing new", argument="known"
            )
        return list(chosen.values())

    found = remote.fetch(choose, known=ids, limit_bytes=MAX_BUNDLE_BYTES)
    _check_shared(remote, [sha for sha in ids if sha not in found.shared])
    ((name, tip),) = chosen.items()
    name = found.head or name if name == b"HEAD" else name
    data = write_bundle({name: tip}, ids, found.pack)
    return {"ref": shown(name), "id": tip.decode(), "bundle": base64.b64encode(data).decode(), "bytes": len(data)}


@op
def preview_commit(
    repository: str,
    branch: str,
    message: str,
    author_name: str,
    author_email: str,
    date: str,
    changes: list[dict[str, Any]],
    base: str | None = None,
    new_branch: bool = False,
) -> dict[str, Any]:
    """Show what push_commit would push with the same arguments. Only reads from the server."""
    made = _made(repository, branch, message, author_name, author_email, date, changes, base, new_branch)
    found = _compared(made.source, made.base, bytes(made.commit.id), MAX_DIFF_CHARACTERS)
    return {
        "repository": repository,
        "branch": branch,
        "from": base or NONE_YET,
        "to": made.commit.id.decode(),
        "fast_forward": "yes",
        "commits": line_of(made.commit),
        "message": message,
        "stat": stat_lines(found),
        "diff": found["diff"],
    }


@op
def push_commit(
    repository: str,
    branch: str,
    message: str,
    author_name: str,
    author_email: str,
    date: str,
    changes: list[dict[str, Any]],
    base: str | None = None,
    new_branch: bool = False,
) -> dict[str, Any]:
    """Make one commit on `base` and push it. The branch has to be at `base`; with `new_branch`, the branch must not exist yet."""
    made = _made(repository, branch, message, author_name, author_email, date, changes, base, new_branch)
    to = bytes(made.commit.id)
    made.source.move(branch_ref(branch), None if new_branch else made.base, to, made.objects)
    log.info("commit pushed", id=to.decode(), files=len(changes))
    return {"branch": branch, "from": None if new_branch else base, "to": to.decode()}


@op
def preview_bundle(
    repository: str, branch: str, bundle: str, expected: str | None = None, force: bool = False
) -> dict[str, Any]:
    """Show what push_bundle would push with the same arguments, and which commits it would remove. Only reads from the server."""
    plan = _planned(repository, branch, bundle, expected)
    found = _compared(plan.source, plan.base, plan.tip, MAX_DIFF_CHARACTERS)
    commits = [line_of(commit) for commit in plan.commits[:MAX_PREVIEWED]]
    more = len(plan.commits) - len(commits)
    return {
        "repository": repository,
        "branch": branch,
        "from": expected or NONE_YET,
        "to": plan.tip.decode(),
        "fast_forward": "yes" if plan.is_fast_forward else "no: commits of the branch are replaced",
        "commits": "\n".join(commits + ([f"… and {more} more"] if more else [])),
        "lost": None if plan.is_fast_forward else _lost(plan, expected),
        "stat": stat_lines(found),
        "diff": found["diff"],
    }


@op
def push_bundle(
    repository: str, branch: str, bundle: str, expected: str | None = None, force: bool = False
) -> dict[str, Any]:
    """Push the commits of a bundle to a branch that is at `expected`, or that does not exist if `expected` is not given.

    `force` allows replacing commits of the branch. Only an action file can set it, not the caller of the action.
    """
    plan = _planned(repository, branch, bundle, expected)
    if not plan.is_fast_forward and not force:
        words = f"{plan.tip.decode()} does not build on {branch} at {expected}, whose commits it would replace; rebase or merge"
        raise BadInput(words, argument="bundle")
    objects = [plan.source.objects[sha] for sha in plan.ids]
    plan.source.move(branch_ref(branch), None if expected is None else expected.encode(), plan.tip, objects)
    log.info("bundle pushed", id=plan.tip.decode(), commits=len(plan.commits))
    return {
        "branch": branch,
        "from": expected,
        "to": plan.tip.decode(),
        "commits": [c.id.decode() for c in plan.commits],
    }


@op
def create_branch(repository: str, branch: str, at: str) -> dict[str, Any]:
    """Create a branch at a commit that the repository already has."""
    Repository(repository).move(branch_ref(branch), None, _id(at, "at"), [])
    return {"branch": branch, "at": at}


@op
def create_tag(repository: str, tag: str, at: str) -> dict[str, Any]:
    """Create a lightweight tag at a commit that the repository already has. An existing tag is never moved."""
    Repository(repository).move(ref_named("refs/tags/", tag, "tag"), None, _id(at, "at"), [])
    return {"tag": tag, "at": at}


@op
def preview_branch(repository: str, branch: str) -> dict[str, Any]:
    """Show where a branch is, its latest commits, and the other refs at the same commit. Only reads from the server."""
    source = Repository(repository)
    name = branch_ref(branch)
    tip = source.fetch_commit(name.decode(), depth=6, leave_out="tree:0")
    beside = [name_of(ref) for ref, at in source.refs.items() if at == tip and ref not in (name, b"HEAD")]
    return {
        "repository": repository,
        "branch": branch,
        "at": tip.decode(),
        "commits": "\n".join(line_of(commit) for commit in islice(walked(source.objects, [tip]), 5)),
        "also_at": ", ".join(sorted(beside)) or "nothing else",
    }


@op
def delete_branch(repository: str, branch: str, expected: str) -> dict[str, Any]:
    """Delete a branch if it is at `expected`."""
    Repository(repository).move(branch_ref(branch), _id(expected, "expected"), None, [])
    log.info("branch deleted")
    return {"branch": branch, "was_at": expected}


# A commit of files


class Made(msgspec.Struct):
    """A new commit that is not pushed yet, with all its new objects."""

    source: Repository
    base: bytes | None
    commit: Commit
    objects: list[Any]


def _made(
    repository: str,
    branch: str,
    message: str,
    author_name: str,
    author_email: str,
    date: str,
    changes: list[dict[str, Any]],
    base: str | None,
    new_branch: bool,
) -> Made:
    parent = None if base is None else _id(base, "base")
    if parent is None and not new_branch:
        raise BadInput("base is missing: the commit that the branch is at; list_refs says which", argument="base")
    source = Repository(repository)
    blobs, wanted = _blobs(source.objects, changes)
    name = branch_ref(branch)
    if parent is None:
        refs, _ = source.remote.refs()
        root = None
    else:
        source.fetch_commits([parent], leave_out="blob:none")
        refs, root = source.refs, bytes(source.objects.commit(parent).tree)
    check_at(refs, name, None if new_branch else parent)
    tree, trees = changed_tree(source.objects, root, wanted)
    if tree == root:
        raise BadInput("nothing changes: the files have this content already", argument="changes")
    commit = made_commit(tree, parent, message, author_name, author_email, date)
    source.objects.add(commit)
    return Made(source, parent, commit, [commit, *trees, *blobs])


def _blobs(objects: Objects, changes: list[dict[str, Any]]) -> tuple[list[Any], dict[tuple[bytes, ...], Change]]:
    """Return the blobs with the files' new contents, and the change to the commit's tree for each path."""
    if not 1 <= len(changes) <= MAX_CHANGES:
        raise BadInput(f"changes has {len(changes)} files; 1 to {MAX_CHANGES} are pushed at once", argument="changes")
    blobs: dict[bytes, Any] = {}
    wanted: dict[tuple[bytes, ...], Change] = {}
    for raw in changes:
        change = _file_change(raw)
        names = tuple(change.path.encode("utf-8", "surrogatepass").split(b"/"))
        check_names(names)
        if any(names[: len(other)] == other or other[: len(names)] == names for other in wanted):
            raise BadInput(f"{change.path[:200]!a} is changed twice, or is a folder of another", argument="changes")
        data = _data_of(change)
        if data is None:
            wanted[names] = None
            continue
        blob = Blob.from_string(data)
        blobs[bytes(blob.id)] = blob
        objects.add(blob)
        wanted[names] = (
            None if change.executable is None else EXECUTABLE if change.executable else FILE,
            bytes(blob.id),
        )
    return list(blobs.values()), wanted


def _file_change(raw: dict[str, Any]) -> FileChange:
    try:
        return msgspec.convert(raw, FileChange)
    except msgspec.ValidationError as error:
        raise BadInput(f"changes: {str(error)[:300]}", argument="changes") from error


def _data_of(change: FileChange) -> bytes | None:
    """Return the new content of the changed file, or None if the file is deleted."""
    if (change.text is not None) + (change.base64 is not None) + change.delete != 1:
        words = f"{change.path[:200]!a} has not exactly one of text, base64 and delete"
        raise BadInput(words, argument="changes")
    if change.base64 is not None:
        return _decoded(change.base64, "changes")
    return None if change.text is None else change.text.encode("utf-8", "surrogatepass")


# A bundle of commits


class Planned(msgspec.Struct):
    """The result of checking a bundle against its branch: its commits, decoded, and what pushing them would change."""

    source: Repository
    base: bytes | None
    """Commit against which the diff is made: the branch's commit, or the commit on which the bundle builds."""
    tip: bytes
    ids: list[bytes]
    commits: list[Commit]
    is_fast_forward: bool


def _planned(repository: str, branch: str, bundle: str, expected: str | None) -> Planned:
    name = branch_ref(branch)
    at = None if expected is None else _id(expected, "expected")
    read = read_bundle(_decoded(bundle, "bundle"))
    if len(set(read.refs.values())) != 1 or len(read.prerequisites) > MAX_KNOWN:
        raise BadInput("bundle does not have exactly one branch, or has too many prerequisites", argument="bundle")
    tip = next(iter(read.refs.values()))
    if tip == at:
        raise BadInput(f"{branch} is at {tip.decode()} already", argument="bundle")
    source = Repository(repository)
    bases = list(dict.fromkeys([*read.prerequisites, *([] if at is None else [at])]))
    source.fetch_commits(bases, leave_out="blob:none")
    refs = source.refs if bases else source.remote.refs()[0]
    check_at(refs, name, at)
    ids = source.add_thin_pack(read.pack)
    _check_trees(source.objects, ids)
    new = set(ids)
    commits = [commit for commit in walked(source.objects, [tip]) if commit.id in new]
    if tip not in new:
        raise BadInput("bundle does not have the commit that its branch is at", argument="bundle")
    reached = {bytes(parent) for commit in commits for parent in commit.parents}
    base = at or next(iter(read.prerequisites), None)
    return Planned(source, base, tip, ids, commits, at is None or at in reached)


def _check_trees(objects: Objects, ids: list[bytes]) -> None:
    """Raise BadInput if a pushed folder has a name that git does not allow."""
    for sha in ids:
        found = objects[sha]
        if isinstance(found, Tree):
            for entry in found.iteritems():
                check_names((entry.path,))


def _lost(plan: Planned, expected: str | None) -> str:
    """Return the commits that a forced push would remove from the branch, as lines. At most MAX_PREVIEWED of them are
    listed.
    """
    assert expected is not None
    source = plan.source
    source.fetch_commit(expected, depth=MAX_PREVIEWED, leave_out="tree:0")
    kept = {bytes(commit.id) for commit in walked(source.objects, [plan.tip])}
    lost = [commit for commit in walked(source.objects, [expected.encode()]) if commit.id not in kept]
    return "\n".join([f"{len(lost)} commits", *(line_of(commit) for commit in lost[:MAX_PREVIEWED])])


# Arguments and answers


def check_range(value: int, most: int, argument: str) -> None:
    """Raise BadInput if `value` is not from 1 to `most`."""
    if not 1 <= value <= most:
        raise BadInput(f"{argument} {value} is not from 1 to {most}", argument=argument)


def _id(text: str, argument: str) -> bytes:
    if not is_id(text):
        raise BadInput(f"{argument} {text[:64]!a} is not the id of a commit, 40 hexadecimal digits", argument=argument)
    return text.encode()


def _decoded(text: str, argument: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"{argument} is not base64", argument=argument) from error


def _as_text(data: bytes, *, whole: bool) -> dict[str, Any]:
    """Return bytes of a file as `text` if they are UTF-8 without a null byte, else as `base64`. If they are not the
    `whole` file, they may be cut back to the last complete character.
    """
    if not is_binary(data):
        for cut in range(1 if whole else 4):
            try:
                return {"text": data[: len(data) - cut].decode(), "bytes": len(data) - cut}
            except UnicodeDecodeError:
                continue
    return {"base64": base64.b64encode(data).decode(), "bytes": len(data)}


def _ref_of(refs: dict[bytes, bytes], ref: str) -> dict[bytes, bytes]:
    """Return the complete name and id of the ref called `ref`, as a dict with one item. A commit's id is not accepted,
    because a bundle needs a name.
    """
    name = ref.encode("utf-8", "replace")
    for candidate in (name, b"refs/heads/" + name, b"refs/tags/" + name):
        if candidate in refs and not candidate.endswith(b"^{}"):
            return {candidate: refs[candidate]}
    raise BadInput(f"there is no branch or tag {ref[:64]!a}", argument="ref")


def _check_shared(remote: Remote, ids: list[bytes]) -> None:
    """Raise BadInput if the server lacks one of these commits. With protocol version 2, the server does not report that
    when it sends a pack.
    """
    for sha in ids:
        words = f"the server does not have {sha.decode()}; leave it out of known"
        if not remote.gives_any_object:
            raise BadInput(words, argument="known")
        try:
            remote.fetch(lambda _refs, sha=sha: [sha], depth=1, leave_out="tree:0")  # type: ignore[misc]
        except ExternalApiError as error:
            raise BadInput(words, argument="known") from error


def _compared(source: Repository, old: bytes | None, new: bytes, max_characters: int) -> dict[str, Any]:
    trees = [None if sha is None else bytes(source.objects.commit(sha).tree) for sha in (old, new)]
    changes = differences(source.objects, trees[0], trees[1])
    source.need(contents(changes))
    return compared(source.objects, changes, max_characters)


if __name__ == "__main__":
    run()
