"""Changes to `config.toml` by its owner: the file is read as text, changed in one place, and written as a whole.

Runs in commands, without a daemon. The daemon's own reader (config.py) checks the complete new text before the file is changed,
so an unknown setting, or one that needs another setting that is missing, is never written.

Rules
- Everything else stays as it is: comments, order, blank lines (tomlkit).
- The new text is parsed again. It is written only if it has the old settings and the change, and nothing else.
- A file that another program changed meanwhile is not overwritten. Commands and the daemon never write the file at the same
  time.

Source: docs/reference/configuration.md. Not here: the commands (commands/config.py), what a setting means (config.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from aileron import files
from aileron.cli.problem import Problem
from aileron.config import FIELDS, LOCK_S, MAX_CONFIG_BYTES, Settings, parse_settings, written_settings
from aileron.model.document import Kind
from aileron.model.json_value import JSON, list_of

__all__ = [
    "ABSENT",
    "Words",
    "changed",
    "entries_of",
    "is_list",
    "kind_of",
    "list_in_force",
    "read_text",
    "value_of",
    "write_text",
]

Words = Literal["true or false", "a number", "a list, separated by commas", "text"]
_WORDS: Final[dict[Kind, Words]] = {
    Kind.BOOLEAN: "true or false",
    Kind.INTEGER: "a number",
    Kind.STRINGS: "a list, separated by commas",
    Kind.STRING: "text",
}
ABSENT: Final = None
"""Value in a change that removes the setting from the file, so that its default applies."""


def kind_of(key: str) -> Words:
    """Return the type of the values of the setting `key`, in words for a person."""
    return _WORDS[FIELDS[key].kind]


def value_of(key: str, word: str) -> Any:
    """Convert a word of the command line to a value of the setting `key`.

    Raises Problem if the word has the wrong form. The value itself is checked later, by the reader of the settings (config.py).
    """
    kind = kind_of(key)
    match kind:
        case "true or false":
            if word not in ("true", "false"):
                raise _wrong(key, word, kind)
            return word == "true"
        case "a number":
            if not (word.isascii() and word.isdigit() and len(word) <= 9):
                raise _wrong(key, word, kind)
            return int(word)
        case "a list, separated by commas":
            return [part.strip() for part in word.split(",") if part.strip()]
        case "text":
            return word


def is_list(key: str) -> bool:
    """Return whether the setting is a list of words."""
    return kind_of(key) == "a list, separated by commas"


def entries_of(key: str, words: Sequence[str]) -> list[str]:
    """Return the distinct entries of the list setting `key` that the words name. Raises Problem if the setting is not
    a list or there is no entry.
    """
    if not is_list(key):
        raise Problem.usage(f"{key} is not a list", why=f"it is {kind_of(key)}", fix=f"aileron config set {key} VALUE")
    entries = list(dict.fromkeys(entry for word in words for entry in value_of(key, word)))
    if not entries:
        raise Problem.usage("give a VALUE", fix=f"aileron config get {key}")
    return entries


def list_in_force(key: str, text: str, path: Path) -> list[str]:
    """Return the entries that the list setting `key` has in `text`, the text of config.toml, or its default entries if
    the text does not set it.

    Raises AileronError if the text is invalid.
    """
    read = parse_settings(text, path).values()  # first, because it refuses a text in place of a list
    written = written_settings(text, path)
    return [str(entry) for entry in list_of(written[key] if key in written else read[key])]


def _wrong(key: str, word: str, kind: Words) -> Problem:
    return Problem.usage(f"{key} must be {kind}, not {word[:60]!r}", fix=f"aileron config get {key}")


def read_text(path: Path) -> str:
    """Return the file's text; empty if there is no file.

    Raises AileronError if the file or its directory is not safe to read, Problem if the text is not UTF-8.
    """
    try:
        with files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory:
            return files.read(directory, path, MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise Problem.usage(f"{path} is not valid UTF-8 (byte {error.start})") from None


def write_text(path: Path, before: str, text: str) -> Settings:
    """Replace the file's text `before` with `text` atomically, and return the new settings.

    Raises AileronError if `text` is invalid or the file cannot be used, Problem if `text` is too large or the file has changed
    meanwhile.
    """
    settings = parse_settings(text, path)
    if len(text.encode()) > MAX_CONFIG_BYTES:
        raise Problem.usage(f"{path} would be larger than {MAX_CONFIG_BYTES} bytes")
    files.make_directory(path.parent)
    with files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory, files.locked(directory, path, LOCK_S):
        if read_text(path) != before:
            raise Problem.usage(f"{path} was changed by another program; nothing was written, try again")
        files.replace(directory, path, text.encode())
    return settings


def changed(text: str, changes: Mapping[str, JSON], path: Path) -> str:
    """Return the text of config.toml with only these settings changed.

    Raises AileronError if `text` is not TOML, Problem if the change is impossible.
    """
    from tomlkit.exceptions import TOMLKitError

    before = written_settings(text, path)
    wanted = {key: value for key, value in {**before, **changes}.items() if value is not ABSENT}
    try:
        found = _edited(text, changes)
    except (TOMLKitError, KeyError, TypeError, AttributeError):  # the file has something else in a table's place
        found = ""
    if written_settings(found, path) != wanted:
        raise Problem.usage(f"the layout of {path} does not allow this change", fix="aileron config edit")
    return found


def _edited(text: str, changes: Mapping[str, JSON]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    for key, value in changes.items():
        *tables, name = key.split(".")
        place: Any = document
        for table in tables:
            if table not in place and value is ABSENT:
                break
            place = place.setdefault(table, tomlkit.table(is_super_table=table != tables[-1]))
        else:
            if value is not ABSENT:
                _put(place, name, value)
            elif name in place:
                del place[name]
    return tomlkit.dumps(document)


def _put(place: Any, name: str, value: Any) -> None:
    """Set a value in a table of a TOML document.

    An existing list is edited instead of replaced, so that the remaining entries keep their layout and their
    comments.
    """
    there = place.get(name)
    if isinstance(value, list) and isinstance(there, list):
        staying = [entry for entry in there if entry in value]
        if value[: len(staying)] == staying:
            for gone in [entry for entry in there if entry not in value]:
                there.remove(gone)
            there.extend(value[len(staying) :])
            return
    place[name] = value
