"""A new connector's repository: the files in templates/, with their placeholders filled in.

Pure, except that it reads the files, which are part of the program. `templates/common` is for every repository,
`templates/python` and `templates/c` for one language each, `templates/imported` for a connector made from a document, and
`templates/releasing` has a part of the README. For each shape of an operation, `templates/operations` has the operation's
action and the parts that the operation adds to the program, its cases and its tests. The operation's name tells its shape.
`%%word%%` is a placeholder; if its value is empty and it stands alone on a line, the line is removed.

Source: docs/how-to/publish-a-connector.md, which is run as a test. Not here: keys and writing (new_repository.py), what a
name says (operation_names.py).
"""

from __future__ import annotations

import json
import keyword
import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aileron import __version__
from aileron.actions.operation_names import guessed_effect, words_of
from aileron.model.manifest import Effect
from aileron.model.names import OP_NAME, RESERVED_TOOLS, Fqn, HostPort

if TYPE_CHECKING:
    from aileron.importing.repository import Made
    from aileron.registry.signatures import PublicKey

__all__ = ["FIRST_OPERATIONS", "Language", "check_operation", "imported_repository", "repository"]

Language = Literal["python", "c"]
FIRST_OPERATIONS: Final[dict[Language, tuple[str, ...]]] = {
    "python": ("list_things", "add_thing"),
    "c": ("list_things",),
}
"""Operations of a new connector whose author specifies none."""

_Shape = Literal["list", "get", "add", "change", "delete"]
_PLACE: Final = re.compile(r"%%([a-z]+)%%")
_WORKFLOW: Final = ".github/workflows/release.yml"
_PROGRAMS: Final[dict[Language, str]] = {"python": "connector.py", "c": "connector.c"}
_TAKEN: Final = frozenset({"hosts", "http", "log", "msgspec", "op", "run", "int", "str", "dict"})
"""Names that no operation of a Python connector can have, because the generated program uses them for something else."""
_MAX_DOES: Final = 100
"""Maximum number of characters of a connector's description: a line that a person reads before they bind a credential."""
_LISTS: Final = frozenset({"count", "find", "list", "query", "search"})
_WORDS: Final[dict[Language, dict[str, str]]] = {
    "python": {"make": "", "unit": "$ python -m pytest", "compile": ""},
    "c": {"make": "$ make", "unit": "", "compile": "- run: make"},
}
"""Placeholder values by language, for the files that all languages share."""
_PREVIEW: Final = """\

[approval.preview]
op = "{op}"
inputs = {{ id = "${{args.id}}" }}
render = {{ "{label}" = "{key}.text" }}"""


class _Operation(NamedTuple):
    """An operation of the new connector, with what its name implies: its effect, the singular and plural of its
    object, and the shape of its requests.
    """

    name: str
    shape: _Shape
    effect: Effect | None
    singular: str
    plural: str

    @property
    def action(self) -> str:
        return self.name.replace("_", "-")

    @property
    def path(self) -> str:
        return (self.plural if "_" in self.name else self.name).replace(" ", "-")

    def words(self, preview: _Operation | None) -> dict[str, str]:
        """Return the values of the placeholders in the operation's files.

        `preview` is an operation that reads the same object.
        """
        title = words_of(self.name)
        label = "Text" if self.shape == "delete" else "Now"
        return {
            "op": self.name,
            "action": self.action,
            "verb": self.name.partition("_")[0],
            "words": title,
            "title": title.capitalize(),
            "one": self.singular,
            "many": self.plural,
            "onekey": self.singular.replace(" ", "_"),
            "manykey": self.plural.replace(" ", "_"),
            "path": self.path,
            "effect": "" if self.effect is None else f'effect = "{self.effect}"',
            "place": "text" if preview else "id",
            "reads": f', "{preview.name}"' if preview else "",
            "preview": (
                _PREVIEW.format(op=preview.name, label=label, key=preview.singular.replace(" ", "_")) if preview else ""
            ),
        }


def check_operation(name: str, language: Language) -> None:
    """Check that a connector in this language can have an operation with this name, and an agent an action with this name.

    Raises ValueError otherwise.
    """
    if not OP_NAME.fullmatch(name):
        raise ValueError(
            f"invalid operation {name!r}: use a lower-case letter, then lower-case letters, digits and '_', 64 "
            "characters at most"
        )
    if name in RESERVED_TOOLS:
        raise ValueError(f"{name!r} is the name of an Aileron tool")
    if language == "python" and (keyword.iskeyword(name) or name in _TAKEN):
        raise ValueError(f"{name!r} cannot be a function name; add a verb, as in {name}_thing")


def repository(
    name: Fqn, language: Language, key: PublicKey, key_file: str, *, operations: Sequence[str], host: HostPort
) -> dict[str, bytes]:
    """Return every file of the repository `name`, by its path; `key_file` is the file name of the private key.

    The connector has these operations, at least one, and sends requests to `host`. The caller has checked all operations. The
    repository gets a workflow only on GitHub, because no other forge would run it.
    """
    every = [_operation(op) for op in operations]
    does = ", ".join(words_of(operation.name) for operation in every)
    if len(does) > _MAX_DOES:
        does = f"use {name.path[-1]}"
    words = {
        **_every_words(name, language, key, key_file),
        "program": _PROGRAMS[language],
        "host": str(host),
        "origin": f"https://{str(host).removesuffix(':443')}",
        "does": does,
        "scope": f"{does[:1].upper()}{does[1:]}",
        "intents": ", ".join(json.dumps(operation.name) for operation in every),
        "actions": ", ".join(json.dumps(f"actions/{operation.action}") for operation in every),
        "firstaction": every[0].action,
    }
    found = {**_below("common"), **_below(language)}
    if name.scheme != "github":
        del found[_WORKFLOW]
    found |= _program(language, every) | _actions(every)
    made = {path: _filled(text, words).encode() for path, text in found.items()}
    return {**made, "keys/publisher.pub": key.to_pem().encode()}


def _every_words(name: Fqn, language: Language, key: PublicKey, key_file: str) -> dict[str, str]:
    """Return the values of the placeholders in the files of every repository."""
    return {
        **_WORDS[language],
        "releasing": _read(f"releasing/{name.scheme}.md"),
        "repository": "/".join(name.path),
        "name": str(name),
        "title": name.path[-1],
        "key": shlex.quote(key_file),
        "fingerprint": key.fingerprint,
        "aileron": __version__,
    }


def imported_repository(name: Fqn, made: Made, key: PublicKey, key_file: str) -> dict[str, bytes]:
    """Return every file of an imported connector's repository by its path: the files that the import made, and the
    files that every repository has.
    """
    actions = sorted({path.split("/")[1] for path in made.files if path.startswith("actions/")})
    words = {
        **_every_words(name, "python", key, key_file),
        "firstaction": actions[0],
        "document": made.title,
        "licence": f", whose licence is {made.license}" if made.license else "",
    }
    found = {**_below("python"), **_below("imported" if made.is_document else "imported-tools")}
    if name.scheme == "github":
        found[_WORKFLOW] = _read(f"common/{_WORKFLOW}")
    found |= _suites(name.path[-1], actions)
    shared = {path: _filled(text, words).encode() for path, text in found.items()}
    return {**shared, **made.files, "keys/publisher.pub": key.to_pem().encode()}


def _suites(title: str, actions: Sequence[str]) -> dict[str, str]:
    """Return the suite files that name all actions, by path: one file, or several if the actions do not fit into one."""
    from aileron.registry.suite import MAX_ENTRIES

    parts = [actions[at : at + MAX_ENTRIES] for at in range(0, len(actions), MAX_ENTRIES)]
    made = {}
    for number, part in enumerate(parts, 1):
        words = {"title": title, "actions": ", ".join(json.dumps(f"actions/{action}") for action in part)}
        path = "suite.toml" if len(parts) == 1 else f"suites/part-{number}.toml"
        made[path] = _filled(_read("common/suite.toml"), words)
    return made


def _operation(name: str) -> _Operation:
    verb, _, rest = name.strip("_").partition("_")
    effect = guessed_effect(name)
    noun = words_of(rest) or "result"
    singular, plural = _singular(noun), _plural(noun)
    shapes: dict[Effect | None, _Shape] = {Effect.CHANGE: "change", Effect.DELETE: "delete"}
    shape = shapes.get(effect, "add")
    if effect is Effect.READ:
        shape = "list" if verb in _LISTS or not rest or noun == plural else "get"
    return _Operation(name, shape, effect, singular, plural)


def _plural(noun: str) -> str:
    """Return a noun's plural by the usual English rules. The author sees a wrong plural at once."""
    if noun.endswith("s"):
        return noun
    return f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"


def _singular(noun: str) -> str:
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    return noun.removesuffix("s") if not noun.endswith("ss") else noun


def _program(language: Language, every: list[_Operation]) -> dict[str, str]:
    """Return the program, its test cases and, for Python, its unit tests, which run in an ordinary process."""
    sends = any(operation.shape in ("add", "change") for operation in every)
    logs = sends or any(operation.shape == "delete" for operation in every)
    names = [*(["BadInput"] if sends else []), "hosts", "http", *(["log"] if logs else []), "op", "run"]
    words = {
        "heading": "%%title%%: %%does%%.",
        "msgspec": "import msgspec\n" if sends else "",
        "imports": ", ".join(names),
        "table": ", ".join(f'{{"{operation.name}", do_{operation.name}}}' for operation in every),
        "known": ", ".join(operation.name for operation in every),
    }
    program = _PROGRAMS[language]
    return {
        program: _filled(_joined(language, "connector", every, between=3), words).lstrip("\n"),
        "tests/cases.toml": _read("operations/head.cases") + _joined(language, "cases", every, between=2),
        **({f"tests/test_{program}": _joined(language, "test", every, between=3)} if language == "python" else {}),
    }


def _joined(language: Language, kind: str, every: list[_Operation], *, between: int) -> str:
    """Return the text of one file of a new connector: the parts of all operations, joined with `between` line ends.

    The head of this kind of file stands before the parts and its tail, if any, after them.
    """
    folder = f"operations/{language}"
    parts = [
        _maybe_read(f"{folder}/head.{kind}"),
        *(_filled(_read(f"{folder}/{operation.shape}.{kind}"), operation.words(None)) for operation in every),
        _maybe_read(f"{folder}/tail.{kind}"),
    ]
    return ("\n" * between).join(part.strip("\n") for part in parts if part) + "\n"


def _actions(every: list[_Operation]) -> dict[str, str]:
    return {
        f"actions/{operation.action}/action.md": _filled(
            _read(f"operations/actions/{operation.shape}.md"), operation.words(_reader(operation, every))
        )
        for operation in every
    }


def _reader(operation: _Operation, every: list[_Operation]) -> _Operation | None:
    """Return the operation that shows a person the object which `operation` would change or delete; None if there is none."""
    return next(
        (candidate for candidate in every if candidate.shape == "get" and candidate.path == operation.path), None
    )


def _read(path: str) -> str:
    return (files("aileron.cli") / "templates" / path).read_text(encoding="utf-8")


def _maybe_read(path: str) -> str:
    return _read(path) if (files("aileron.cli") / "templates" / path).is_file() else ""


def _below(folder: str) -> dict[str, str]:
    """Return the text of each file of the template in `folder`, by the path of the file in the template."""
    found: dict[str, str] = {}

    def take(place: Traversable, path: str) -> None:
        for entry in place.iterdir():
            if entry.name == "__pycache__":
                continue
            if entry.is_dir():
                take(entry, f"{path}{entry.name}/")
            else:
                found[path + entry.name] = entry.read_text(encoding="utf-8")

    take(files("aileron.cli") / "templates" / folder, "")
    return found


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        if not value:
            text = re.sub(rf"(?m)^[ \t]*%%{word}%%\n", "", text)
    for _ in range(2):  # a part of the README has placeholders of its own
        text = _PLACE.sub(lambda place: words.get(place[1], place[0]), text)
    return text
