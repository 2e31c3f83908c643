"""A new connector's repository: the files in templates/, with its name in the places that are kept for it.

Pure, but for reading the files, which are shipped with the program. `templates/common` is every repository's, `templates/python`
and `templates/c` are one language's, `templates/releasing` is a part of the README. `%%word%%` is a place; one alone on its line
that is empty takes the line along.

Source: docs/how-to/publish-a-connector.md, which is run as a test. Not here: keys and writing (commands/connector_author.py).
"""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Final, Literal

from aileron import __version__

if TYPE_CHECKING:
    from aileron.model.names import Fqn
    from aileron.registry.signatures import PublicKey

__all__ = ["Language", "repository"]

Language = Literal["python", "c"]

_PLACE: Final = re.compile(r"%%([a-z]+)%%")
_WORKFLOW: Final = ".github/workflows/release.yml"
_WORDS: Final[dict[Language, dict[str, str]]] = {
    "python": {
        "program": "connector.py",
        "scope": "Read and add things",
        "intents": '"list_things", "add_thing"',
        "actions": '"actions/list-things", "actions/add-thing"',
        "make": "",
        "unit": "$ python -m pytest",
        "compile": "",
    },
    "c": {
        "program": "connector.c",
        "scope": "Read things",
        "intents": '"list_things"',
        "actions": '"actions/list-things"',
        "make": "$ make",
        "unit": "",
        "compile": "- run: make",
    },
}
"""What the files that all languages share say of each."""


def repository(name: Fqn, language: Language, key: PublicKey, key_file: str) -> dict[str, bytes]:
    """Every file by its path in the repository `name`; `key_file` is what the private half's file is called.

    A repository elsewhere than on GitHub has no workflow: only GitHub would run it.
    """
    words = {
        **_WORDS[language],
        "releasing": (files("aileron.cli") / "templates" / "releasing" / f"{name.scheme}.md").read_text(
            encoding="utf-8"
        ),
        "repository": "/".join(name.path),
        "name": str(name),
        "title": name.path[-1],
        "key": shlex.quote(key_file),
        "fingerprint": key.fingerprint,
        "aileron": __version__,
    }
    found = {**_below("common"), **_below(language)}
    if name.scheme != "github":
        del found[_WORKFLOW]
    made = {path: _filled(text, words).encode() for path, text in found.items()}
    return {**made, "keys/publisher.pub": key.to_pem().encode()}


def _below(folder: str) -> dict[str, str]:
    """The files of one template by their paths."""
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
    for _ in range(2):  # a part of the README has places of its own
        text = _PLACE.sub(lambda place: words.get(place[1], place[0]), text)
    return text
