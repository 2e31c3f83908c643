"""Analysis of git configurations: the keys that make git run a program, and a check that a configuration has no such key.

    is_plain(content)  →  True only for what `git init`, `git clone` and `git branch` write
    git_keys(content)  →  ["core.hooksPath", "alias.st"]: keys that are known to execute, to be shown

Runs in the command. The contents are hostile. Rules
- Git has hundreds of keys, and each version adds more. So a configuration counts as harmless only if all its keys are
  on a list, with values of a narrow form, and a strict parser accepts it. The person sees the other keys.
- `git_keys` is only for display: a configuration in which it finds nothing is not proven harmless.

Pure. Source: git-config(1). Not here: which files are configurations (executes.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["git_keys", "is_plain"]

_BOOLEAN: Final = r"true|false"
_PLAIN_TEXT: Final = r"[\w .,'@+()-]*"
_PLAIN_URL: Final = r"(?!.*::)(?:(?:https|ssh|git)://[A-Za-z0-9][\w@:/.~%+-]*|[A-Za-z0-9][\w.+-]*@[A-Za-z0-9][\w.-]*:[\w./~+-]+|[/.~][\w./~+-]*)"
"""Pattern of a repository's URL, or path, that git handles without running a helper: no `ext::`, and no text that
starts with `-`.
"""
_PLAIN_REMOTE: Final = re.compile(r"[A-Za-z0-9_][\w./-]*")
_HARMLESS: Final = {
    "core.repositoryformatversion": re.compile("[01]"),
    **{
        f"core.{name}": re.compile(_BOOLEAN)
        for name in ("filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks")
    },
    "user.name": re.compile(_PLAIN_TEXT),
    "user.email": re.compile(_PLAIN_TEXT),
    "remote.*.url": re.compile(_PLAIN_URL, re.ASCII),
    "remote.*.fetch": re.compile(r"\+?refs/[\w./*+-]+:refs/[\w./*+-]+", re.ASCII),
    "branch.*.remote": re.compile(r"\.|[A-Za-z0-9_][\w.-]*", re.ASCII),
    "branch.*.merge": re.compile(r"refs/[\w./@+-]+"),
}
"""Harmless keys of a git configuration, each with a pattern of values with which it runs nothing. `*` stands for a name
in quotes.
"""
_PLAIN_SECTION: Final = re.compile(r'[ \t]*\[([A-Za-z]+)(?: "([^"\\]*)")?\][ \t]*')
_PLAIN_KEY: Final = re.compile(r'[ \t]*([A-Za-z]+)[ \t]*=[ \t]*([^"\\#;]*)')
_PLAIN_OTHER: Final = re.compile(r"[ \t]*(?:[#;][^\\]*)?")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u0085\u2028\u2029\ufeff]")


def is_plain(content: bytes) -> bool:
    """Return whether a git configuration is known to run nothing: it has only harmless keys, each on its own line, and
    values without quotes, escapes or continuations.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    if _CONTROL.search(text):
        return False
    section = ""
    for line in text.split("\n"):
        if match := _PLAIN_SECTION.fullmatch(line):
            section = match[1].lower()
            if match[2] is not None:
                if section == "remote" and not _PLAIN_REMOTE.fullmatch(match[2]):
                    return False
                section += ".*"
        elif match := _PLAIN_KEY.fullmatch(line):
            value = _HARMLESS.get(f"{section}.{match[1].lower()}")
            if value is None or not value.fullmatch(match[2].rstrip(" \t")):
                return False
        elif not _PLAIN_OTHER.fullmatch(line):
            return False
    return True


_SPACE: Final = re.compile(r"\s*")
_SECTION: Final = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?[ \t]*\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_LINE: Final = re.compile(r"[^\n]*")
_PART: Final = re.compile(r'\\\n|\\.|["\n\\]|[#;][^\n]*|[^\\"#;\n]+', re.DOTALL)
"""Pattern of one part of a value: an escape, a quote, the end, a comment, or other text."""
_EXECUTE: Final = re.compile(
    r"""core\.(fsmonitor|hookspath|sshcommand|gitproxy|editor|pager|askpass|attributesfile|worktree|alternaterefscommand)
    |(sequence|commit)\.editor|pager\..+|interactive\.difffilter|init\.templatedir|protocol(\..+)?\.allow
    |filter\..+\.(clean|smudge|process)|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver
    |(mergetool|difftool|guitool|browser|man)\..+\.(cmd|path)|credential\.(.+\.)?helper|url\..+\.(insteadof|pushinsteadof)
    |remote\..+\.(uploadpack|receivepack|vcs|proxy)|gpg\.(.+\.)?(program|defaultkeycommand)|include\.path|includeif\..+\.path
    |uploadpack\.packobjectshook|web\.browser|sendemail\.(.+\.)?(smtpserver|sendmailcmd|tocmd|cccmd|headercmd)
    |trailer\..+\.(command|cmd)|tar\..+\.command|hook\..+\.command|lfs\..*customtransfer\..+\.path|imap\.tunnel
    |gc\.recentobjectshook|svn\.(.+\.)?authorsprog|instaweb\.(httpd|browser|modulepath)|http\.(.+\.)?(proxy|sslverify|sslcainfo)""",
    re.VERBOSE | re.DOTALL,
)
_EXECUTE_BY_VALUE: Final = re.compile(
    r"(alias\..+|submodule\..+\.update)|remote\..+\.(?:url|pushurl)|branch\..+\.(?:remote|pushremote)|remote\.pushdefault",
    re.DOTALL,
)
_BOOLEANS: Final = frozenset({"false", "no", "off", "0", "", "true", "yes", "on", "1"})


def git_keys(content: bytes) -> list[str]:
    """Return the keys in a git configuration that are known to make git run a program, or fetch or use something other
    than what was requested.
    """
    found = []
    for key, value in _entries(content.decode("utf-8", "replace")):
        lowered = key.lower()
        if _EXECUTE.fullmatch(lowered):
            if lowered != "core.fsmonitor" or value.lower() not in _BOOLEANS:
                found.append(key)
        elif (match := _EXECUTE_BY_VALUE.fullmatch(lowered)) and (
            value.startswith("!") if match[1] else re.match(r"[A-Za-z0-9]+::", value)
        ):
            found.append(key)
    return found


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a git configuration as git reads them: a backslash at the end of a line continues a
    value, but not a comment.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while (at := _end(_SPACE, text, at)) < len(text):
        if match := _SECTION.match(text, at):
            section = match[1] + ("" if match[2] is None else "." + re.sub(r"\\(.)", r"\1", match[2]))
            at = match.end()
        elif match := _KEY.match(text, at):
            value, at = _value(text, match.end()) if match[2] else ("true", match.end())
            yield f"{section}.{match[1]}", value
        else:
            at = _end(_LINE, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the position after the match of `pattern` at `at`. The pattern must match."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value in a git configuration that begins at `at`, without quotes, and the position of its end."""
    parts: list[str] = []
    is_quoted = False
    while (match := _PART.match(text, at)) and match[0] != "\n":
        part = match[0]
        if is_quoted and part[0] in "#;":  # no comment; the closing quote may follow
            parts.append(part[0])
            at += 1
            continue
        at = match.end()
        if part == '"':
            is_quoted = not is_quoted
        elif part[0] == "\\":
            parts.append(part[1:].strip("\n"))
        elif part[0] not in "#;":
            parts.append(part)
    return "".join(parts).strip(), at
