"""What git needs in a cell: who commits, without what logs in or runs anything; and where a repository is, if not in the project.

Runs in the command that starts the cell. It asks git itself for the person's settings, because no other reader of that syntax
agrees with it in all cases, and reads two small files of a repository.

Source: git-config(1), gitrepository-layout(5), git-worktree(1). Not here: hooks and settings of the project (aileron/cell).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

from aileron.launch.places import is_within
from aileron.launch.ways import read_regular

__all__ = ["Outside", "cleaned_settings", "outside_of_project", "person_settings"]

_HARMLESS: Final = frozenset(
    {
        "user.name", "user.email", "init.defaultbranch", "core.autocrlf", "core.eol", "core.quotepath", "pull.rebase", "pull.ff",
        "push.default", "push.autosetupremote", "merge.conflictstyle", "diff.algorithm", "diff.renames", "diff.colormoved",
        "rebase.autostash", "rebase.autosquash", "fetch.prune", "color.ui", "commit.verbose", "column.ui", "branch.sort",
        "tag.sort", "rerere.enabled", "log.date", "blame.date",
    }
)  # fmt: skip
"""Of these none names a program, a file, an address or a credential."""
_WHERE: Final = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
"""Where git is looked for: not in PATH, in which a project can be that an agent has written to. It runs outside of the cell."""
_ANSWER_S: Final = 5.0
"""git reads two files: 3 ms."""
_MAX_FILE: Final = 4096
"""Of a file that names a directory: PATH_MAX, limits.h."""
_MAX_UP: Final = 64
_WORKTREE: Final = re.compile(r"^\s*worktree\s*=(.*)$", re.MULTILINE)


def person_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The person's own settings of git by their names; none where there is no git, or no answer."""
    git = shutil.which("git", path=_WHERE)
    if git is None:
        return {}
    words = [git, "config", "--global", "--includes", "--null", "--list"]
    kept = {name: value for name, value in environment.items() if name in ("HOME", "XDG_CONFIG_HOME")}
    try:
        said = subprocess.run(
            words, env=kept, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    entries = said.stdout.decode("utf-8", "replace").split("\0")
    return {name: value for name, separator, value in (one.partition("\n") for one in entries) if separator}


def cleaned_settings(settings: Mapping[str, str]) -> bytes:
    r"""A configuration with what is harmless of it, in git's own syntax.

    >>> cleaned_settings({"user.name": 'Mira "M" \\', "credential.helper": "store"})
    b'[user]\n\tname = "Mira \\"M\\" \\\\"\n'
    """
    lines: list[str] = []
    for name, value in settings.items():
        if name in _HARMLESS and len(value) <= _MAX_FILE:
            section, _, key = name.partition(".")
            lines.append(f"[{section}]\n\t{key} = {_quoted(value)}\n")
    return "".join(lines).encode()


def _quoted(value: str) -> str:
    escaped = re.sub(r'["\\]', r"\\\g<0>", value).replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


class Outside(NamedTuple):
    """What of a folder's repository lies outside of it.

    `leads_back`: it says so itself. Else only a file in the folder says that it belongs to it, which an agent may have written.
    """

    path: str
    why: str
    leads_back: bool


def outside_of_project(folder: str) -> Outside | None:
    """Where the folder is a worktree or a submodule, or below the top of a repository."""
    above = folder
    for _ in range(_MAX_UP):
        found = f"{above}/.git"
        if os.path.isfile(found):
            own = _named_in(found, above)
            directory = _common_directory(own)
            if directory and not is_within(directory, folder):
                return Outside(directory, "the git repository of this folder is elsewhere", _leads_back(own, above))
        if os.path.isdir(found) or os.path.isfile(found):
            return None if above == folder else Outside(above, "this folder is a part of a git repository", True)
        if above == "/":
            break
        above = os.path.dirname(above)
    return None


def _named_in(file: str, relative_to: str) -> str:
    """The directory that a `.git` file names, resolved; empty if it names none."""
    text = _read(file)
    named = text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
    return os.path.realpath(os.path.join(relative_to, named)) if named else ""


def _common_directory(directory: str) -> str:
    """Of a worktree, the repository that it belongs to."""
    common = _read(f"{directory}/commondir").strip() if directory else ""
    return os.path.realpath(os.path.join(directory, common)) if common else directory


def _leads_back(directory: str, folder: str) -> bool:
    """Whether a repository names this folder: that of a worktree in its `gitdir`, that of a submodule in its configuration."""
    worktree = _WORKTREE.search(_read(f"{directory}/config"))
    named = (_read(f"{directory}/gitdir").strip().removesuffix("/.git"), worktree[1].strip() if worktree else "")
    return any(one and os.path.realpath(os.path.join(directory, one)) == os.path.realpath(folder) for one in named)


def _read(file: str) -> str:
    return (read_regular(file, _MAX_FILE) or b"").decode("utf-8", "replace")
