"""Which commands an `ssh` login may execute: those that match a pattern of the manifest.

    git-upload-pack 'team/*.git'          git-upload-pack 'team/website.git'
    subsystem sftp                        subsystem sftp        (a subsystem of the server, not a command of a shell)

A server gives a command to a shell. What a pattern spells out is the author's, and was shown to whoever granted it; what `*`
stands for is the connector's, and is nothing that a shell, a path or a program's options give a meaning to.

Rules
- `*` is one or more of the characters A-Z a-z 0-9 . _ / @ : + , = - and never the start of an option: where nothing of the
  pattern is before it in its word, it does not begin with `-`.
- Where a pattern has a `*`, no part of a path in the command is `..`.
- Everything else is itself. The program is spelled out: no `*` in the first word.
- A preview may execute what only reads: of all commands, those with which git sends what a repository has.

Pure. `check_command_pattern` is for who reads a manifest, `is_granted` for who opens a stream, before anything is connected.

Source: docs/reference/connector-manifest.md. Not here: executing one (aileron/logins/protocols/ssh.py).

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
"""Characters of a command or a pattern: a program and paths, of which Linux has none longer."""
SUBSYSTEM: Final = "subsystem "
"""What a command begins with that is the name of a subsystem (RFC 4254 section 6.5)."""
_MAX_STARS: Final = 8
_STANDS_FOR: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@:+,=-")
_SUBSYSTEM: Final = re.compile(r"subsystem ([A-Za-z0-9][A-Za-z0-9._@-]{0,63})")
_ONLY_READS: Final = re.compile(r"git-upload-(?:pack|archive) '[A-Za-z0-9._/@:+,=~][A-Za-z0-9._/@:+,=~-]*'")
"""gitprotocol-pack(5), git-upload-archive(1): no options, and a path that means nothing else to a shell."""
_PARENT: Final = re.compile(r"(?<![A-Za-z0-9._-])\.\.(?![A-Za-z0-9._-])")
"""`..` with nothing at either end that a name could have: after `=` and `:` a path may begin too."""


def check_command_pattern(pattern: str) -> None:
    """ValueError says what is wrong."""
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
    """Whether one of the patterns matches all of the command. Takes time in proportion to the command's length."""
    if not 1 <= len(command) <= MAX_COMMAND:
        return False
    return any(_matches(command, pattern) for pattern in patterns)


def only_reads(command: str) -> bool:
    """Whether a preview may execute it: it changes nothing at the server, whatever it is told.

    That it is granted is another question.

    >>> [only_reads(f"git-{verb}-pack 'team/website.git'") for verb in ("upload", "receive")]
    [True, False]
    """
    return len(command) <= MAX_COMMAND and _ONLY_READS.fullmatch(command) is not None


def subsystem_of(command: str) -> str | None:
    """The name of the subsystem that a command asks for; None where it is for a shell."""
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
    """Where a `*` can end that begins at one of `starts`."""
    ends: set[int] = set()
    for start in sorted(starts):
        if begins_word and command.startswith("-", start):
            continue
        for end in range(start + 1, len(command) + 1):
            if command[end - 1] not in _STANDS_FOR or end in ends:  # from there on they have been walked
                break
            ends.add(end)
    return ends
