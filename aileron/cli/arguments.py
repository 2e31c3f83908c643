"""The arguments of a run as typed on a command line: `KEY=VALUE` words, and JSON.

Runs in commands; pure, except that it reads the file or standard input that --args names. A value is read only as the type that
the action declares for its input: `true` for a string input is the word, not the truth value.

>>> typed({"days": "7", "note": "7"}, {"days": "integer", "note": "string"})
{'days': 7, 'note': '7'}

Source: docs/reference/cli.md. Not here: checking that required inputs are given (the daemon does).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from aileron.cli.problem import Problem
from aileron.model.json_value import JSONObject

__all__ = ["from_json", "pairs_of", "typed"]

MAX_ARGS_BYTES = 1 << 20
"""1 MiB: the maximum size of a request body that the daemon reads."""
_INTEGER = re.compile(r"-?[0-9]{1,40}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_EXAMPLE = '{"key": 1}'
_HELP = "aileron run --help"


def pairs_of(words: Sequence[str]) -> dict[str, str]:
    """Return the `KEY=VALUE` words as texts by key. Raises Problem for a word without `=`, and for a key given twice."""
    pairs: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise Problem.usage(f"{word!r} is not KEY=VALUE", fix=_HELP)
        if key in pairs:
            raise Problem.usage(f"{key!r} is given twice", fix=_HELP)
        pairs[key] = value
    return pairs


def typed(pairs: dict[str, str], types: dict[str, str], *, action: str = "NAME") -> JSONObject:
    """Convert the text of each argument in `pairs` to the type in `types`, which the action declares for the argument's
    name.

    Raises Problem for a text that does not fit, and for an unknown input, with the nearest known name.
    """
    show = f"aileron action show {action}"
    values: JSONObject = {}
    for key, text in pairs.items():
        if key not in types:
            why, fix = _nearest(key, text, list(types))
            raise Problem.usage(f"{action} has no input {key!r}", why=why, fix=fix or show)
        try:
            values[key] = _value(text, types[key])
        except ValueError as error:
            raise Problem.usage(f"{key}={text[:100]!r} is not {error}", fix=show) from None
    return values


def from_json(source: str) -> JSONObject:
    """Read the value of --args: JSON, `@FILE`, or `-` for standard input. Raises Problem if the value is not one JSON object."""
    text = _text_of(source)
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except ValueError as error:
        raise Problem.usage(f"--args is not JSON: {error}", fix=_HELP) from None
    except RecursionError:
        raise Problem.usage("--args is nested too deeply") from None
    if not isinstance(value, dict):
        raise Problem.usage("--args is not a JSON object", why=f"found {type(value).__name__}", fix=_HELP)
    return value


def _value(text: str, kind: str) -> Any:
    match kind:
        case "integer":
            if not _INTEGER.fullmatch(text):
                raise ValueError("an integer")
            return int(text)
        case "number":
            if not _NUMBER.fullmatch(text):
                raise ValueError("a number")
            return int(text) if _INTEGER.fullmatch(text) else float(text)
        case "boolean":
            if text not in ("true", "false"):
                raise ValueError("true or false")
            return text == "true"
        case "array" | "object":
            return _json_value(text, kind)
        case _:
            return text


def _json_value(text: str, kind: str) -> Any:
    """Parse an array or object from JSON. Raises ValueError for anything else, and for a duplicate key."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list if kind == "array" else dict):
        raise ValueError(f"a JSON {kind}, such as {'[1, 2]' if kind == 'array' else _EXAMPLE}")
    return value


def _nearest(key: str, text: str, names: list[str]) -> tuple[str, str | None]:
    from aileron.cli.near import nearest, retyped

    near = nearest(key, names)
    if near is None:
        return f"its inputs: {', '.join(names) or 'none'}", None
    return f"did you mean {near!r}?", retyped(f"{key}={text}", f"{near}={text}")


def _text_of(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_ARGS_BYTES + 1) if sys.stdin is not None else b""
        elif source.startswith("@"):
            with open(source[1:], "rb") as file:
                data = file.read(MAX_ARGS_BYTES + 1)
        else:
            return source
        if len(data) > MAX_ARGS_BYTES:
            raise Problem.usage(f"--args {source} is larger than {MAX_ARGS_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise Problem.usage(f"--args {source}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Problem.usage(f"--args {source} is not valid UTF-8") from None


def _object(pairs: list[tuple[str, Any]]) -> JSONObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r}")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not valid JSON")
