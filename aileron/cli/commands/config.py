"""`aileron config`: the settings in the file, and the settings in force.

These commands need no daemon and start none. A running daemon reports which settings it has read, and which changes wait for a
person.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from aileron.cli import output
from aileron.cli.commands.completion import list_entries, list_names, setting_names
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import Problem, local_work
from aileron.cli.prompts import NO, YES, can_ask, choose, edit_text
from aileron.cli.settings import ABSENT, changed, entries_of, list_in_force, read_text, value_of, write_text
from aileron.cli.supervisor import Supervisor
from aileron.config import CONSENTED, SETTINGS, parse_settings, written_settings
from aileron.home import Home
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.api.daemon import Status

__all__ = ["add", "edit", "get", "remove", "set_"]

_TEMPLATE = "# The settings: docs/reference/configuration.md, or `aileron config get`.\n"

Key = Annotated[
    str,
    Argument(metavar="KEY", help="Name of the setting, such as notify.desktop.", autocompletion=setting_names),
]
ListKey = Annotated[
    str,
    Argument(
        metavar="KEY", help="Name of a setting that is a list, such as egress.private.", autocompletion=list_names
    ),
]


def get(
    key: Annotated[
        str | None,
        Argument(metavar="[KEY]", help="Setting to show. Default: all settings.", autocompletion=setting_names),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show settings, their values, and where each is set."""
    if key is not None:
        _check_known(key)
    path = Home.from_environment().config
    with local_work():
        found = _entries(path, SETTINGS if key is None else (key,))
    if as_json:
        output.print_json(
            {"file": str(path), "settings": found}
            if key is None
            else {**msgspec.to_builtins(found[0]), "file": str(path)}
        )
        return
    if key is None:
        rows = [(entry.key, entry.value, entry.origin) for entry in found]
        output.print_table(("SETTING", "VALUE", "FROM"), rows, empty="")
    else:
        output.write(visible(_shown(found[0].value)))
        output.note(f"from {'the file' if found[0].origin == 'file' else 'the default'}: {visible(str(path))}")
    for waiting in dict.fromkeys(entry.waiting for entry in found if entry.waiting):
        keys = [entry.key for entry in found if entry.waiting == waiting]
        named = ", ".join(keys) if len(keys) <= _MAX_NAMED else f"{len(keys)} settings"
        output.note(f"{named}: {_WAITING[waiting]}")


def set_(
    key: Key,
    value: Annotated[
        str | None, Argument(metavar="VALUE", help="New value. Separate the values of a list with commas.")
    ] = None,
    also: Annotated[
        list[str] | None,
        Option("--also", metavar="KEY=VALUE", help="Change another setting in the same step. Repeatable."),
    ] = None,
    default: Annotated[bool, Option("--default", help="Remove the setting from the file.")] = False,
) -> None:
    """Change a setting in config.toml.

    A list is replaced as a whole; to change single entries, use add and remove. Comments and other settings stay as they are. The
    file is written only if it is valid as a whole, so change settings that depend on each other in one step.
    """
    if (value is None) is not default:
        raise Problem.usage("give a VALUE, or --default", fix="aileron config set --help")
    changes = _changes(key, value, also or [])
    path = Home.from_environment().config
    with local_work():
        before = read_text(path)
        text = changed(before, changes, path)
        write_text(path, before, text)
    _tell_changed(path, before, text, list(changes))
    _tell_dropped(before, changes, path)


def add(
    key: ListKey,
    values: Annotated[
        list[str],
        Argument(metavar="VALUE...", help="Entries to add. Separate them with spaces or commas."),
    ],
) -> None:
    """Add entries to a setting that is a list.

    The entries in the list stay, and none is added twice. As with set, the file is written only if
    it is valid as a whole.
    """
    _change_list(key, values, lambda there, given: [*there, *(entry for entry in given if entry not in there)])


def remove(
    key: ListKey,
    values: Annotated[
        list[str],
        Argument(
            metavar="VALUE...",
            help="Entries to remove. Separate them with spaces or commas.",
            autocompletion=list_entries,
        ),
    ],
) -> None:
    """Remove entries from a setting that is a list.

    The other entries stay. Nothing changes if the entry is not in the list.
    """
    _change_list(key, values, lambda there, given: [entry for entry in there if entry not in given])


def _change_list(key: str, words: list[str], change: Callable[[list[str], list[str]], list[str]]) -> None:
    _check_known(key)
    given = entries_of(key, words)
    path = Home.from_environment().config
    with local_work():
        before = read_text(path)
        there = list_in_force(key, before, path)
        wanted = change(there, given)
        text = before if wanted == there else changed(before, {key: [*wanted]}, path)
        if text != before:
            write_text(path, before, text)
    _tell_changed(path, before, text, [key], f"{key}: {visible(', '.join(wanted)) or 'an empty list'}")


def _tell_changed(path: Path, before: str, text: str, keys: list[str], *now: str) -> None:
    output.note("\n".join([f"{'nothing changed in' if text == before else 'changed'} {visible(str(path))}", *now]))
    if text != before:
        _tell_what_is_needed(keys)


def _tell_dropped(before: str, changes: JSONObject, path: Path) -> None:
    """Print a note with the entries that a new list no longer has, so that a person who meant to add an entry sees that the
    others were removed.
    """
    written = written_settings(before, path)
    for key, value in changes.items():
        there = written.get(key)
        if not (isinstance(value, list) and isinstance(there, list)):
            continue
        if gone := [str(entry) for entry in there if entry not in value]:
            output.note(f"no longer in {key}: {visible(' '.join(gone))}{_undo(key, gone)}")


def _undo(key: str, gone: list[str]) -> str:
    """Return the command that adds the removed entries again, quoted for a shell; empty for entries that a command line cannot
    express.
    """
    if any(value_of(key, entry) != [entry] or visible(entry) != entry or entry.startswith("-") for entry in gone):
        return ""
    return f"\n  undo: aileron config add {key} {shlex.join(gone)}"


def edit() -> None:
    """Edit config.toml in $VISUAL or $EDITOR.

    You edit a copy, which replaces the file once it is valid. If it is not, you can edit it again.
    """
    path = Home.from_environment().config
    with local_work():
        before = read_text(path)
    text = before or _TEMPLATE
    while True:
        text = edit_text(text, suffix=".toml", instead="aileron config set KEY VALUE")
        if text in (before, _TEMPLATE):
            output.note("nothing changed")
            return
        problem = _maybe_written(path, before, text)
        if problem is None:
            break
        for line in problem.lines():
            output.note(line)
        if not can_ask() or choose("Edit it again? [Y/n] ", YES + NO) not in ("", *YES):
            raise Problem.usage(f"{path} was not changed", fix="aileron config edit")
    output.note(f"changed {visible(str(path))}")
    _tell_what_is_needed(_different(before, text, path))


def _maybe_written(path: Path, before: str, text: str) -> Problem | None:
    try:
        with local_work():
            write_text(path, before, text)
    except Problem as problem:
        return problem
    return None


def _different(before: str, text: str, path: Path) -> list[str]:
    now = written_settings(text, path)
    try:
        then = written_settings(before, path)
    except AileronError:  # the old text was broken
        return list(now)
    return [key for key in {**then, **now} if then.get(key) != now.get(key)]


def _check_known(key: str) -> None:
    if key not in SETTINGS:
        from aileron.cli.near import did_you_mean

        why, fix = did_you_mean(key, SETTINGS) or (None, None)
        raise Problem.usage(f"unknown setting {key[:60]!r}", why=why, fix=fix or "aileron config get")


def _changes(key: str, value: str | None, also: list[str]) -> JSONObject:
    _check_known(key)
    found = {key: ABSENT if value is None else value_of(key, value)}
    for pair in also:
        other, separator, word = pair.partition("=")
        if not separator:
            raise Problem.usage(f"--also {pair[:60]!r} is not KEY=VALUE", fix="aileron config set --help")
        _check_known(other)
        if other in found:
            raise Problem.usage(f"{other} is given twice")
        found[other] = value_of(other, word)
    return found


class _Setting(msgspec.Struct):
    """A setting for printing and for `--json`. `origin` is `file` or `default`; `waiting` says why it is not in force yet."""

    key: str
    value: Any
    origin: str = msgspec.field(name="from")
    waiting: str | None


def _entries(path: Path, keys: tuple[str, ...]) -> list[_Setting]:
    text = read_text(path)
    written, read = written_settings(text, path), parse_settings(text, path).values()
    running = _Running.find()
    return [
        _Setting(key, written.get(key, read[key]), "file" if key in written else "default", running.waits(key))
        for key in keys
    ]


_MAX_NAMED = 3
"""Maximum number of settings that a note lists; further settings are only counted."""
_WAITING = {
    "consent": "not in effect, needs your approval: aileron approval list",
    "restart": "takes effect when the daemon restarts: aileron daemon restart",
    "problem": "config.toml cannot be read, so it is not in effect: aileron config edit",
}


class _Running(NamedTuple):
    """The daemon's report on the settings that are not in force yet, and why. It is empty if no daemon runs."""

    unapproved: frozenset[str] = frozenset()
    at_start: frozenset[str] = frozenset()
    has_problem: bool = False

    @classmethod
    def find(cls) -> _Running:
        status = _maybe_status()
        if status is None:
            return cls()
        waiting, at_start = frozenset(status.settings_waiting), frozenset(status.settings_at_start)
        return cls(waiting, at_start, bool(status.settings_problem))

    def waits(self, key: str) -> str | None:
        if self.has_problem:
            return "problem"
        if key in self.unapproved:
            return "consent"
        return "restart" if key in self.at_start else None


def _maybe_status() -> Status | None:
    """Return a running daemon's status.

    None if no daemon runs or the request fails, because a setting can be fixed without a daemon.
    """
    from aileron.api.daemon import Status

    try:
        return Supervisor().maybe_fetch(Status, "/v1/status")
    except Problem:
        return None


def _tell_what_is_needed(keys: list[str]) -> None:
    """Print which of the changed settings are in effect, and what the others need for that.

    A running daemon reads the file when it is asked.
    """
    if _maybe_status() is None:
        output.note("takes effect when the daemon starts")
        if asked := [key for key in keys if key in CONSENTED]:
            output.note(
                f"if decisions are signed, {', '.join(asked)} will need the approver's signature: aileron approval list"
            )
        return
    running = _Running.find()
    waiting = {key: running.waits(key) for key in keys}
    if now := [key for key, why in waiting.items() if why is None]:
        output.note(f"in effect: {', '.join(now)}")
    for why in dict.fromkeys(found for found in waiting.values() if found is not None):
        output.note(f"{', '.join(key for key in keys if waiting[key] == why)}: {_WAITING[why]}")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(map(str, value))
        case _:
            return str(value)
