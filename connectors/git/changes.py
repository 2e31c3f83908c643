"""Comparison of two trees: the changed files with their numbers of changed lines, and a unified diff. Both are bounded.

A rename appears as a deleted file and a new file. Attributes and settings in a repository do not affect the comparison.
An executable file is listed as executable and a link as a link, even if its content is not shown.

Source: git-diff(1). Not here: commits (commits.py).
"""

from __future__ import annotations

import stat
from difflib import SequenceMatcher
from typing import Any, Final

from dulwich.diff_tree import TreeChange, tree_changes
from dulwich.objects import S_ISGITLINK
from dulwich.patch import gen_diff_header, is_binary, unified_diff
from packs import Objects
from remote import TooLarge, said
from trees import kind_of, shown

__all__ = ["MAX_DIFF_CHARACTERS", "compared", "contents", "differences", "stat_lines"]

MAX_FILES: Final = 2000
"""Maximum number of changed files in one comparison. A comparison with more files fails."""
MAX_LISTED: Final = 300
"""Maximum number of changed files in a result. Only listed files are compared line by line."""
MAX_COMPARED_BYTES: Final = 256 << 10
"""Maximum number of differing bytes in one file that is compared line by line. MAX_COMPARED_LINES also applies. The
comparison takes quadratic time.
"""
MAX_COMPARED_LINES: Final = 4000
"""Maximum number of differing lines in one file, counting both sides. Comparing 4,000 lines takes about half a second."""
MAX_DIFF_CHARACTERS: Final = 200_000
"""Maximum number of characters of all diffs in a result. A result has less than 1 MiB."""


def differences(objects: Objects, old: bytes | None, new: bytes | None) -> list[TreeChange]:
    """Return the files that differ between two trees, where None is an empty tree. Raises TooLarge for more than MAX_FILES."""
    found: list[TreeChange] = []
    with said():
        for change in tree_changes(objects, old, new, change_type_same=True):  # type: ignore[arg-type]
            found.append(change)
            if len(found) > MAX_FILES:
                raise TooLarge("more files changed", str(MAX_FILES), "compare commits that are nearer to each other")
    return sorted(found, key=_path_of)


def contents(changes: list[TreeChange]) -> list[bytes]:
    """Return the object ids of the old and new contents of the files that will be compared."""
    sides = [side for change in changes[:MAX_LISTED] for side in (change.old, change.new)]
    return [bytes(side.sha) for side in sides if side is not None and side.sha and _is_file(side.mode)]


def compared(objects: Objects, changes: list[TreeChange], max_characters: int) -> dict[str, Any]:
    """Return the comparison of these changed files: `files` with their `change`, `added` and `deleted` lines, the sums
    of both, and a `diff` of at most `max_characters`.
    """
    files, texts, left = [], [], max_characters
    for change in changes[:MAX_LISTED]:
        file, text = _file(objects, change, wants_text=left >= 0)
        files.append(file)
        if text:
            texts.append(text if len(text) <= left else text[:left] + "\n[cut here]\n")
            left -= len(text)
    return {
        "files": files,
        "files_in_all": len(changes),
        "added": sum(entry["added"] or 0 for entry in files),
        "deleted": sum(entry["deleted"] or 0 for entry in files),
        "diff": "".join(texts),
        "diff_is_cut": left < 0 or len(changes) > MAX_LISTED,
    }


def stat_lines(found: dict[str, Any]) -> str:
    """Return one line for each file in a comparison (`compared`), such as `M path: +3 -1`, and a line with the sum."""
    lines = [f"{_SIGNS[file['change']]} {file['path']}: {_counted(file)}" for file in found["files"]]
    count = found["files_in_all"]
    if more := count - len(found["files"]):
        lines.append(f"… and {more} more")
    return "\n".join(
        [*lines, f"{count} {'file' if count == 1 else 'files'}, +{found['added']} -{found['deleted']} lines"]
    )


_SIGNS: Final = {"add": "A", "modify": "M", "delete": "D"}


def _counted(file: dict[str, Any]) -> str:
    counted = file["note"] or f"+{file['added']} -{file['deleted']}"
    return f"{counted}, {file['type']}" if "type" in file else counted


def _type(change: TreeChange) -> str:
    """Return the kind of a changed file, such as `file`, or `file → executable` if the kind changes."""
    kinds = [kind_of(side.mode) for side in (change.old, change.new) if side is not None and side.mode is not None]
    return " → ".join(dict.fromkeys(kinds))


def _file(objects: Objects, change: TreeChange, *, wants_text: bool) -> tuple[dict[str, Any], str]:
    old, new = _content(objects, change.old), _content(objects, change.new)
    file: dict[str, Any] = {
        "path": shown(_path_of(change)),
        "change": change.type,
        "added": None,
        "deleted": None,
        "note": "",
    }
    if (kind := _type(change)) != "file":
        file["type"] = kind
    if change.old is not None and change.new is not None and change.old.mode != change.new.mode:
        file["mode"] = f"{change.old.mode or 0:06o} → {change.new.mode or 0:06o}"
    if is_binary(old) or is_binary(new):
        return {**file, "note": f"binary, {len(old)} → {len(new)} bytes"}, ""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    start, end = _alike(before, after)
    differs = before[start : len(before) - end], after[start : len(after) - end]
    if sum(map(len, differs[0])) + sum(map(len, differs[1])) > MAX_COMPARED_BYTES or (
        all(differs) and sum(map(len, differs)) > MAX_COMPARED_LINES
    ):
        return {**file, "note": f"too large to compare, {len(old)} → {len(new)} bytes"}, ""
    file["added"], file["deleted"] = _counts(*differs)
    return file, _text(change, before, after) if wants_text else ""


def _alike(before: list[bytes], after: list[bytes]) -> tuple[int, int]:
    """Return the number of equal lines at the start of both lists, and, of the remaining lines, the number of equal
    lines at the end.
    """
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    left = shorter - start
    end = next((at for at in range(left) if before[-1 - at] != after[-1 - at]), left)
    return start, end


def _counts(before: list[bytes], after: list[bytes]) -> tuple[int, int]:
    same = sum(block.size for block in SequenceMatcher(None, before, after).get_matching_blocks())
    return len(after) - same, len(before) - same


def _text(change: TreeChange, before: list[bytes], after: list[bytes]) -> str:
    """Return the diff of a file in git's format, with three lines of context around each change."""
    start, end = _alike(before, after)
    skip = max(0, start - 3)
    stop_before, stop_after = (len(lines) - max(0, end - 3) for lines in (before, after))
    sides = [
        (None, None, None) if side is None else (side.path, side.mode, side.sha) for side in (change.old, change.new)
    ]
    (old_path, old_mode, old_id), (new_path, new_mode, new_id) = sides
    head = gen_diff_header((old_path, new_path), (old_mode, new_mode), (old_id, new_id))
    alike = [b"\0%d\n" % at for at in range(skip)]  # placeholders for equal lines, so that line numbers stay right
    body = unified_diff(
        alike + before[skip:stop_before],
        alike + after[skip:stop_after],
        fromfile=_named(b"a/", old_path),
        tofile=_named(b"b/", new_path),
        tree_encoding="latin-1",
        output_encoding="latin-1",
    )
    return b"".join([*head, *body]).decode("utf-8", "backslashreplace")


def _named(before: bytes, path: bytes | None) -> bytes:
    return b"/dev/null" if path is None else before + path


def _content(objects: Objects, side: Any) -> bytes:
    if side is None or not side.sha:
        return b""
    if S_ISGITLINK(side.mode or 0):
        return b"Subproject commit " + bytes(side.sha) + b"\n"
    return objects.blob(bytes(side.sha))


def _is_file(mode: int | None) -> bool:
    return mode is not None and not S_ISGITLINK(mode) and not stat.S_ISDIR(mode)


def _path_of(change: TreeChange) -> bytes:
    side = change.new if change.new is not None else change.old
    return bytes(side.path or b"") if side is not None else b""
