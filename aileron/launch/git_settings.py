"""The settings that git needs in a cell, such as the committer's name and ignore patterns, but no settings that log
in or run a program; and the part of a repository that is outside the project.

Runs in the command that starts the cell. It asks git itself for the person's settings, because no other reader of that syntax
agrees with it in all cases, and reads two small files of a repository.

Source: git-config(1), gitrepository-layout(5), git-worktree(1). Not here: hooks and settings of the project (aileron/cell).
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aileron.launch.credential_places import is_within
from aileron.launch.ways import read_regular

__all__ = [
    "Outside",
    "PatternFile",
    "PersonSettings",
    "cleaned_settings",
    "outside_of_project",
    "pattern_files",
    "person_settings",
]

_HARMLESS: Final = frozenset(
    {
        "user.name", "user.email", "init.defaultbranch", "core.autocrlf", "core.eol", "core.quotepath", "pull.rebase", "pull.ff",
        "push.default", "push.autosetupremote", "merge.conflictstyle", "diff.algorithm", "diff.renames", "diff.colormoved",
        "rebase.autostash", "rebase.autosquash", "fetch.prune", "color.ui", "commit.verbose", "column.ui", "branch.sort",
        "tag.sort", "rerere.enabled", "log.date", "blame.date",
    }
)  # fmt: skip
"""Settings that a cell shows. None contains a program, a file, an address or a credential."""
_WHERE: Final = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
"""Directories in which git is searched. PATH is not used, because it may contain a project that an agent wrote to,
and git runs outside the cell.
"""
_ANSWER_S: Final = 5.0
"""Seconds to wait for git, which reads two files in 3 ms."""
_MAX_FILE: Final = 4096
"""Maximum number of bytes that are read from a file that contains a directory's path: PATH_MAX, limits.h."""
_MAX_PATTERNS: Final = 1 << 16
"""Maximum size of a pattern file, 64 KiB, the bound of any file that is made in a cell
(aileron_sandbox/cell/policy.py). A person's patterns are a page.
"""
_MAX_INCLUDED: Final = 8
"""Maximum number of files included for one folder, each of which takes 3 ms. People usually have one, for their work."""
_GITDIR: Final = re.compile(r"includeif\.gitdir(/i)?:(.*)\.path", re.DOTALL)
_MAX_UP: Final = 64
_DRIVER: Final = re.compile(rb"(?<=\s)(?:filter|diff|merge)=\S*")
"""Pattern of attributes that refer to a command in a configuration that is not in the cell."""
_WORKTREE: Final = re.compile(r"^\s*worktree\s*=(.*)$", re.MULTILINE)


class PersonSettings(NamedTuple):
    """Git's settings of one person, by name: each setting's value, and the configuration file that sets it."""

    values: Mapping[str, str] = {}
    files: Mapping[str, str] = {}


def person_settings(environment: Mapping[str, str], folder: str = "") -> PersonSettings:
    """Return the person's settings, including included files, and files included only for repositories at `folder`.
    Empty if git is not installed.

    git is not run in the folder, because an agent controls the settings there. Of the conditions of includes, only
    those on the path are evaluated.
    """
    git = shutil.which("git", path=_WHERE)
    if git is None or not _has_settings(environment):
        return PersonSettings()
    found = _asked([git, "config", "--global"], environment)
    home = environment.get("HOME", "")
    for file in itertools.islice(_included_for(folder, found, home) if folder else (), _MAX_INCLUDED):
        more = _asked([git, "config", "--file", file], environment)
        found = PersonSettings({**found.values, **more.values}, {**found.files, **more.files})
    return found


def _has_settings(environment: Mapping[str, str]) -> bool:
    """Return whether a settings file exists that git would read, git-config(1). Asking git itself would take 3 ms."""
    if said := environment.get("GIT_CONFIG_GLOBAL"):
        return os.path.exists(said)
    home, configuration = environment.get("HOME", ""), environment.get("XDG_CONFIG_HOME", "")
    places = (f"{home}/.gitconfig", f"{configuration or f'{home}/.config'}/git/config")
    return any(map(os.path.exists, places))


def _asked(words: list[str], environment: Mapping[str, str]) -> PersonSettings:
    kept = {name: environment[name] for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL") if name in environment}
    words = [*words, "--includes", "--show-origin", "--null", "--list"]
    try:
        said = subprocess.run(
            words, env=kept, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return PersonSettings()
    parts = said.stdout.decode("utf-8", "replace").split("\0")
    entries = [(origin, *setting.partition("\n")) for origin, setting in zip(parts[::2], parts[1::2], strict=False)]
    return PersonSettings(
        {name: value for _, name, separator, value in entries if separator},
        {name: origin.removeprefix("file:") for origin, name, _, _ in entries},
    )


def _included_for(folder: str, settings: PersonSettings, home: str) -> Iterator[str]:
    """Yield the files that the settings include for a repository in `folder`, git-config(1) on conditional includes."""
    for name, value in settings.values.items():
        condition = _GITDIR.fullmatch(name)
        if condition is None:
            continue
        above = os.path.dirname(settings.files.get(name, ""))
        pattern = _at_home(condition[2], home, above)
        if not pattern.startswith("/"):
            pattern = f"**/{pattern}"
        glob = pattern + "**" * pattern.endswith("/")
        flags = re.IGNORECASE if condition[1] else 0
        if re.fullmatch(_regular(glob), f"{folder}/.git", flags | re.DOTALL):
            yield os.path.join(above, _at_home(value, home, above))


def _at_home(path: str, home: str, above: str) -> str:
    """Return the path in a git setting, expanded as git does: `~/` is the directory `home`, and `./` is `above`, the
    folder of the file that contains the setting.
    """
    if path.startswith("~/"):
        return home + path[1:]
    return f"{above}/{path[2:]}" if path.startswith("./") else path


def _regular(glob: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(signs.get(part) or re.escape(part) for part in parts)


class PatternFile(NamedTuple):
    """The person's global file of ignore patterns or attributes, which git obeys in every repository."""

    key: str
    path: str
    said_in: str
    """Path of the configuration file that specifies this file; empty if the file is at git's default path."""

    def content(self) -> bytes | None:
        """Return the file's content for a cell, without attributes that run commands; None if there is no such file, or
        it is longer than 64 KiB.
        """
        content = read_regular(self.path, _MAX_PATTERNS + 1)
        if content is None or len(content) > _MAX_PATTERNS:
            return None
        return _DRIVER.sub(b"", content) if self.key == "core.attributesfile" else content


def pattern_files(settings: PersonSettings, home: str, configuration: str) -> Iterator[PatternFile]:
    """Yield the files of global ignore patterns and of global attributes. `configuration` is XDG_CONFIG_HOME or its default."""
    for key, name in (("core.excludesfile", "ignore"), ("core.attributesfile", "attributes")):
        said = settings.values.get(key)
        path = f"{configuration}/git/{name}" if said is None else said
        if path.startswith("~/"):
            path = home + path[1:]
        if path.startswith("/") and os.path.isfile(path):
            yield PatternFile(key, os.path.normpath(path), settings.files.get(key, "") if said is not None else "")


def cleaned_settings(settings: Mapping[str, str], files: Mapping[str, str] | None = None) -> bytes:
    r"""Return a git configuration file with the harmless settings among `settings`, and with those in `files`, which
    have the paths of files as values.

    >>> cleaned_settings({"user.name": 'Mira "M" \\', "credential.helper": "store"})
    b'[user]\n\tname = "Mira \\"M\\" \\\\"\n'
    """
    lines: list[str] = []
    kept = {name: value for name, value in settings.items() if name in _HARMLESS and len(value) <= _MAX_FILE}
    for name, value in (*kept.items(), *(files or {}).items()):
        section, _, key = name.partition(".")
        lines.append(f"[{section}]\n\t{key} = {_quoted(value)}\n")
    return "".join(lines).encode()


def _quoted(value: str) -> str:
    escaped = re.sub(r'["\\]', r"\\\g<0>", value).replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


class Outside(NamedTuple):
    """The part of a folder's repository that is outside the folder.

    `leads_back` is True if the repository itself names the folder. Otherwise only a file in the folder says that they
    belong together, and an agent may have written that file.
    """

    path: str
    why: str
    leads_back: bool


def outside_of_project(folder: str) -> Outside | None:
    """Return the part of the repository outside `folder` if the folder is a worktree or a submodule, or below the top
    of a repository; else None.
    """
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
    """Return the resolved path of the directory that a `.git` file names; empty if it names none."""
    text = _read(file)
    named = text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else ""
    return os.path.realpath(os.path.join(relative_to, named)) if named else ""


def _common_directory(directory: str) -> str:
    """Return the git directory of the repository to which a worktree's git directory belongs. Any other directory is
    returned unchanged.
    """
    common = _read(f"{directory}/commondir").strip() if directory else ""
    return os.path.realpath(os.path.join(directory, common)) if common else directory


def _leads_back(directory: str, folder: str) -> bool:
    """Return whether the git directory `directory` names `folder` as its working tree: a worktree's in its `gitdir`, a
    submodule's in its configuration.
    """
    worktree = _WORKTREE.search(_read(f"{directory}/config"))
    named = (_read(f"{directory}/gitdir").strip().removesuffix("/.git"), worktree[1].strip() if worktree else "")
    return any(path and os.path.realpath(os.path.join(directory, path)) == os.path.realpath(folder) for path in named)


def _read(file: str) -> str:
    return (read_regular(file, _MAX_FILE) or b"").decode("utf-8", "replace")
