"""Check that a command matches one of the manifest's patterns for commands that an `ssh` login can execute.

    git-upload-pack 'team/*.git'          git-upload-pack 'team/website.git'
    subsystem sftp                        subsystem sftp        (a subsystem of the server, not a command of a shell)

A server passes a command to a shell. The literal part of a pattern comes from the manifest's author, and was shown to the person
who granted it. The part that `*` matches comes from the connector, and has no special meaning in a shell, a path or an option.

Rules
- `*` is one or more of the characters A-Z a-z 0-9 . _ / @ : + , = - and never the start of an option: if it begins a word of
  the pattern, it does not begin with `-`.
- If a pattern has a `*`, no part of a path in the command is `..`.
- Everything else is literal. The program is literal: the first word has no `*`.
- A preview can execute only commands that read: those with which git sends the contents of a repository.

Pure. The reader of a manifest calls `check_command_pattern`; the opener of a stream calls `is_granted`, before it connects.

Source: docs/reference/connector-manifest.md. Not here: executing a command (aileron/logins/protocols/ssh.py).

>>> is_granted("git-upload-pack 'team/website.git'", ["git-upload-pack 'team/*.git'"])
True
>>> is_granted("git-upload-pack 'team/../other.git'", ["git-upload-pack 'team/*.git'"])
False
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_COMMAND", "SUBSYSTEM", "check_command_pattern", "is_granted", "only_reads", "subsystem_of"]

MAX_COMMAND: Final = 4096
"""Maximum number of characters of a command or a pattern: a program and paths. No path on Linux is longer."""
SUBSYSTEM: Final = "subsystem "
"""Beginning of a command that is the name of a subsystem (RFC 4254 section 6.5)."""
_MAX_STARS: Final = 8
_STANDS_FOR: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@:+,=-")
_SUBSYSTEM: Final = re.compile(r"subsystem ([A-Za-z0-9][A-Za-z0-9._@-]{0,63})")
_ONLY_READS: Final = re.compile(r"git-upload-(?:pack|archive) '[A-Za-z0-9._/@:+,=~][A-Za-z0-9._/@:+,=~-]*'")
"""Pattern of commands that only read, from gitprotocol-pack(5) and git-upload-archive(1):
no options, and a path without any meaning to a shell.
"""
_PARENT: Final = re.compile(r"(?<![A-Za-z0-9._-])\.\.(?![A-Za-z0-9._-])")
"""Pattern of `..` with no name character next to it; a path can also begin after `=` and `:`."""


def check_command_pattern(pattern: str) -> None:
    """Raise ValueError, saying what is wrong, if `pattern` is not a valid pattern of commands."""
    if not 1 <= len(pattern) <= MAX_COMMAND:
        raise ValueError(f"a command has 1 to {MAX_COMMAND} characters")
    if not pattern.isprintable() or pattern != pattern.strip():
        raise ValueError(f"{pattern[:80]!a} begins or ends with a blank, or has a control character")
    if "*" in pattern.split(" ")[0]:
        raise ValueError(f"{pattern[:80]!a} leaves the program open; spell out the first word")
    if "**" in pattern or pattern.count("*") > _MAX_STARS:
        raise ValueError(f"{pattern[:80]!a} has `**`, or more than {_MAX_STARS} `*`")
    if pattern.startswith(SUBSYSTEM) and subsystem_of(pattern) is None:
        raise ValueError(f"{pattern[:80]!a} is not `subsystem NAME`, with a name such as sftp")


def is_granted(command: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches the whole of `command`. Takes time in proportion to the command's length."""
    if not 1 <= len(command) <= MAX_COMMAND:
        return False
    return any(_matches(command, pattern) for pattern in patterns)


def only_reads(command: str) -> bool:
    """Return whether a preview can execute the command: that is, the command changes nothing at the server, whatever its
    arguments.

    The caller must also check the command with `is_granted`.

    >>> [only_reads(f"git-{verb}-pack 'team/website.git'") for verb in ("upload", "receive")]
    [True, False]
    """
    return len(command) <= MAX_COMMAND and _ONLY_READS.fullmatch(command) is not None


def subsystem_of(command: str) -> str | None:
    """Return the name of the subsystem that a command requests; None if the command is for a shell."""
    found = _SUBSYSTEM.fullmatch(command)
    return None if found is None else found[1]


def _matches(command: str, pattern: str) -> bool:
    first, *others = pattern.split("*")
    if not others:
        return command == pattern
    if not command.startswith(first) or _PARENT.search(command):
        return False
    ends = {len(first)}
    before = first
    for literal in others:
        ends = _after_star(command, ends, begins_word=before[-1:] not in _STANDS_FOR)
        ends = {end + len(literal) for end in ends if command.startswith(literal, end)}
        before = literal
    return len(command) in ends


def _after_star(command: str, starts: set[int], *, begins_word: bool) -> set[int]:
    """Return the indexes in `command` at which a match of a pattern's `*` can end, given that it begins at one of
    `starts`. If `begins_word`, the `*` begins a word of the pattern, and its match cannot begin with `-`.
    """
    ends: set[int] = set()
    for start in sorted(starts):
        if begins_word and command.startswith("-", start):
            continue
        for end in range(start + 1, len(command) + 1):
            if command[end - 1] not in _STANDS_FOR or end in ends:  # an earlier start has covered the rest
                break
            ends.add(end)
    return ends
