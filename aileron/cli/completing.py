"""Completion of words that a running daemon knows: action names, `KEY=` for the inputs of an action, and ids.

Runs in the shell's completion before typer, whose import takes most of a completion's time; typer completes commands, options
and files. commands/completion.py prints the shells' scripts and gives typer the same words for options.

Rules
- It starts no daemon, waits at most `_ANSWER_S` for one, and prints only words.
- A shell takes the words as they are, and names may be hostile: only words that match `_PLAIN` are offered.

Source: the protocol between typer's scripts and the program (typer._completion_classes). Not here: the scripts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from aileron.client import Client, DaemonUnreachable, home_directory
from aileron.model.json_value import JSONObject, list_of

__all__ = ["COMPLETING", "KNOWS_MARK", "MARK", "TAKES", "answer", "input_words", "plain_words", "words_of"]

COMPLETING: Final = "_AILERON_COMPLETE"
"""Environment variable that the shell's script sets to `complete_SHELL` while words are completed."""
KNOWS_MARK: Final = "_AILERON_NO_FILES"
"""Environment variable that Aileron's completion script sets if it knows the mark that `_no_files` returns.

A script printed by an older version does not set it.
"""
MARK: Final = "\x01"
_ANSWER_S: Final = 1.0
"""Maximum seconds to wait for the daemon's response.

A running daemon responds within milliseconds, and the person waits for the next character.
"""
_LATEST_EVENTS: Final = 200
"""Number of the newest events from which run ids are offered; more do not fit on a screen."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=/:@-]*", re.ASCII)


class _Listing(NamedTuple):
    """A list that the daemon's API returns: its path, its field in the response, and the field of an entry that a
    person types.
    """

    path: str
    field: str
    word: str
    operator: bool = True


_LISTINGS: Final = {
    "action": _Listing("/v1/actions", "actions", "name", operator=False),
    "approval": _Listing("/v1/action-approvals", "approvals", "approval_id"),
    "run": _Listing(f"/v1/audit?limit={_LATEST_EVENTS}", "events", "audit_id"),
    "connector": _Listing("/v1/connectors", "connectors", "name"),
    "binding": _Listing("/v1/bindings", "bindings", "name"),
    "secret": _Listing("/v1/secrets", "secrets", "name"),
    "session": _Listing("/v1/sessions", "sessions", "id"),
    "grant": _Listing("/v1/grants", "grants", "id"),
}
TAKES: Final = {
    **dict.fromkeys(["run", "grant add"], "action"),
    **dict.fromkeys(
        [f"action {verb}" for verb in ("show", "update", "diff", "enable", "disable", "resume", "remove")], "action"
    ),
    **dict.fromkeys(
        ["approve", "deny", "approval show", "approval edit", "approval ask", "approval cancel"], "approval"
    ),
    "open approval": "approval",
    "audit show": "run",
    **dict.fromkeys(["connector show", "connector remove"], "connector"),
    **dict.fromkeys([f"binding {verb}" for verb in ("inspect", "rebind", "reauthorize", "revoke")], "binding"),
    **dict.fromkeys(["secret set", "secret remove"], "secret"),
    **dict.fromkeys(
        ["sessions show", "sessions end", *(f"sessions {verb}" for verb in ("changes", "apply", "discard"))], "session"
    ),
    "grant revoke": "grant",
}
"""Kind of name or id that the first argument of each command is. tests/cli/test_completion.py compares this with the commands."""
_SEVERAL: Final = frozenset({"approve", "deny"})
"""Commands whose further arguments are of the same kind as the first."""


def words_of(kind: str, incomplete: str) -> list[str]:
    """Return the names or ids of this kind that the daemon lists and that start with `incomplete`. If there are none,
    return `_no_files`.
    """
    listing = _LISTINGS[kind]
    words = plain_words(incomplete, (entry.get(listing.word) for entry in _listed(listing)))
    return words or _no_files(incomplete)


def _further(kind: str, given: list[str], incomplete: str) -> list[str]:
    """Return the words of `kind` for a further argument, without those in `given`, which are arguments already."""
    return [word for word in words_of(kind, incomplete) if word not in given] or _no_files(incomplete)


def input_words(action: str, given: Iterable[str], incomplete: str) -> list[str]:
    """Return `KEY=` for each input of the action that has no value among `given`, the words of the command line."""
    has_value = {word.partition("=")[0] for word in given}
    entries = [entry for entry in _listed(_LISTINGS["action"]) if entry.get("name") == action]
    inputs = [spec for entry in entries for spec in list_of(entry.get("inputs")) if isinstance(spec, dict)]
    keys = (spec.get("name") for spec in inputs if spec.get("name") not in has_value)
    return plain_words(incomplete, (f"{key}=" for key in keys)) or _no_files(incomplete)


def answer() -> tuple[str, int] | None:
    """Return the completions to print for the command line in the environment, and the exit code.

    None if typer must complete the line.
    """
    shell = os.environ[COMPLETING].removeprefix("complete_")
    typed = _typed(shell)
    words = None if typed is None else _words(*typed)
    if words is None:
        return None
    match shell:
        case "bash":
            return "\n".join(words), 0
        case "zsh":
            listed = "\n".join('"{}"'.format(word.replace(":", r"\\:")) for word in words)
            return (f"_arguments '*: :(({listed}))'" if words else "_files"), 0
        case "fish" if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            return "", 0 if words else 1
        case "fish":
            return "\n".join(words), 0
        case _:
            return None


def _typed(shell: str) -> tuple[list[str], str] | None:
    """Return the complete words after `aileron`, and the unfinished word, from the variables that the shell `shell`
    sets. None if an option is among the words.
    """
    if shell == "bash":
        words, number = _split(os.environ.get("COMP_WORDS", "")), int(os.environ.get("COMP_CWORD", "0"))
        before, incomplete = words[1:number], (words[number] if number < len(words) else "")
    else:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        before, incomplete = _split(line)[1:], ""
        if before and not line.endswith(" "):
            incomplete = before.pop()
    is_plain = not any(word.startswith("-") for word in (*before, incomplete))
    return (before, incomplete) if is_plain else None


def _words(before: list[str], incomplete: str) -> list[str] | None:
    for length in (1, 2):
        kind = TAKES.get(" ".join(before[:length]))
        if kind is None or len(before) < length:
            continue
        arguments = before[length:]
        if not arguments:
            return words_of(kind, incomplete)
        if before[0] in _SEVERAL:
            return _further(kind, arguments, incomplete)
        return input_words(arguments[0], arguments[1:], incomplete) if before[0] == "run" else None
    return None


def _split(line: str) -> list[str]:
    """Split a line as a shell would, but accept a quote that is still open."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _listed(listing: _Listing) -> list[JSONObject]:
    if listing.operator and os.environ.get("AILERON_URL"):
        return []  # a daemon elsewhere takes only what agents may ask
    client = Client(home_directory(), operator=listing.operator, answer_margin_s=_ANSWER_S)
    try:
        body = client.ask("GET", listing.path).body
    except (DaemonUnreachable, OSError, ValueError):
        return []
    found = body.get(listing.field) if isinstance(body, dict) else None
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _no_files(incomplete: str) -> list[str]:
    """Return a mark that means that there is no completion. Aileron's scripts never show the mark.

    Without any word, these scripts would offer file names. The result is empty for scripts that do not know the mark.
    """
    return [incomplete + MARK] if os.environ.get(KNOWS_MARK) else []


def plain_words(incomplete: str, words: Iterable[Any]) -> list[str]:
    """Return the distinct words that start with `incomplete` and are safe for a shell."""
    found = dict.fromkeys(word for word in words if isinstance(word, str))
    return [word for word in found if word.startswith(incomplete) and _PLAIN.fullmatch(word)]
