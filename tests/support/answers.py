"""Check that a response of the daemon has exactly the types and keys that its route declares."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from aileron.api.failures import ErrorAnswer
from aileron.api.routes import ROUTES, RouteSpec

__all__ = ["as_json", "check_answer", "route_of"]


def _pattern(path: str) -> re.Pattern[str]:
    """Return a pattern that matches path as starlette does; a path parameter may contain slashes."""
    parts = re.split(r"\{(\w+)(:path)?\}", path)
    pieces = [re.escape(parts[0])]
    for i in range(1, len(parts), 3):
        pieces += [".+" if parts[i + 1] else "[^/]+", re.escape(parts[i + 2])]
    return re.compile("".join(pieces))


_ROUTES: Final = tuple((route, _pattern(route.path)) for route in ROUTES)


def as_json(answer: Any) -> Any:
    """Return the answer as a client decodes it from JSON."""
    return msgspec.json.decode(msgspec.json.encode(answer))


def route_of(method: str, path: str) -> RouteSpec | None:
    """Return the first route that matches the request; None if there is none."""
    bare = path.partition("?")[0]
    return next((route for route, form in _ROUTES if route.method == method and form.fullmatch(bare)), None)


def check_answer(method: str, path: str, status: int, body: Any) -> None:
    """Raise AssertionError, which names the route, if the response differs from what the route declares, down to the last key."""
    route = route_of(method, path)
    if status >= 400:
        kind: type | UnionType | None = ErrorAnswer
    else:
        assert route is not None, f"{method} {path} is no route, and was answered {status}"
        kind = route.later if status == 202 else route.answer
    if kind is None and status == 200:
        return
    assert kind is not None, f"{method} {path} does not declare what it answers as {status}"
    problems = []
    for member in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        try:
            again = as_json(msgspec.convert(body, member))
        except msgspec.ValidationError as error:
            problems.append(f"{member.__name__}: {error}")
            continue
        if again == body:
            return
        problems.append(f"{member.__name__} has not {sorted(set(body) - set(again))} {sorted(set(again) - set(body))}")
    raise AssertionError(f"{method} {path} answered {status} with what it does not declare: {'; '.join(problems)}")
