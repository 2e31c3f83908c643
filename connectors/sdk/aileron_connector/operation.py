"""Operations: the functions that a connector declares, and that its callers can run.

The signature is the contract. Arguments come by name; each is checked against its annotation with msgspec, strictly ("1"
is not 1, 1.0 is not an int), before the function runs. An argument that the function does not have is `bad_input`,
unless the function takes `**rest`: a caller that misspells an optional argument must be told.

    @op
    def list_events(calendar: str | None = None, days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 7) -> dict: ...

An operation can declare that it runs as a database role that cannot write, or that it only commits effects that a
person saw in a preview:

    @op(login="read_only")
    def query(sql: str) -> dict: ...

`aileron connector build` writes that into the manifest. No code here reads it, because the host logs in, outside of the jail.

The returned value becomes JSON: dicts, lists, msgspec structs, dataclasses, datetimes (RFC 3339); bytes are refused.

Source: https://jcristharif.com/msgspec/supported-types.html. The signature is read from the function's code object,
because importing `inspect` takes longer than everything else here.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

import msgspec

from aileron_connector.failures import BadInput, ConnectorError
from aileron_sandbox.frames import JSONObject

__all__ = ["OPERATIONS", "call", "op"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

OPERATIONS: Final[dict[str, Callable[..., Any]]] = {}
_LOGINS: Final = ("read_only", "previewed")
_VARARGS, _VARKEYWORDS, _NOT_PLAIN = 0x04, 0x08, 0x20 | 0x80 | 0x200
"""CO_* flags of a code object: *args; **rest; and generator, coroutine or async generator (inspect module)."""


@overload
def op(function: _Function, /) -> _Function: ...
@overload
def op(*, login: Literal["read_only", "previewed"]) -> Callable[[_Function], _Function]: ...
def op(function: Any = None, /, *, login: str | None = None) -> Any:
    """Register a function as the operation with its name. Raises ValueError if the function cannot be an operation.

    `login` is the mode of the operation's database sessions: `read_only` (as a role that cannot write), or `previewed`
    (only effects that a person saw are committed). `aileron connector build` reads it from the source code, so write
    the literal word.
    """
    if login not in (None, *_LOGINS):
        raise ValueError(f"login is {login!r}; expected {' or '.join(map(repr, _LOGINS))}")
    if function is None:
        return _registered
    return _registered(function)


def _registered(function: _Function) -> _Function:
    name = getattr(function, "__name__", "")
    if not _is_op_name(name):
        raise ValueError(f"operation name {name!r} is not snake_case: a lower-case letter, then letters, digits, _")
    if name in OPERATIONS:
        raise ValueError(f"operation {name!r} is declared twice")
    code = _signature_of(function).__code__
    if code.co_flags & _NOT_PLAIN:
        raise ValueError(f"operation {name!r} must be a plain function, not async and not a generator")
    if code.co_flags & _VARARGS or code.co_posonlyargcount:
        raise ValueError(
            f"operation {name!r} takes positional-only or variable arguments; arguments are passed by name"
        )
    OPERATIONS[name] = function
    return function


def call(name: str, args: JSONObject) -> Any:
    """Run the operation `name` and return its output as JSON values. Raises ConnectorError if the caller must change the call."""
    function = OPERATIONS.get(name)
    if function is None:
        known = sorted(OPERATIONS)
        raise ConnectorError(
            "unknown_op",
            f"there is no operation {name[:64]!r}; this connector has {', '.join(known) or 'none'}",
            details={"operations": known},
        )
    return _as_json(function(**_checked(function, args)), name)


class _Parameters(NamedTuple):
    names: tuple[str, ...]
    required: frozenset[str]
    takes_rest: bool


def _checked(function: Callable[..., Any], args: JSONObject) -> JSONObject:
    signature = _signature_of(function)
    parameters = _parameters(signature)
    for name in parameters.names:
        if name in parameters.required and name not in args:
            raise BadInput(f"argument {name!r} is missing", argument=name)
    hints = typing.get_type_hints(signature, include_extras=True)
    checked = {}
    for name, value in args.items():
        if name in parameters.names:
            checked[name] = _converted(name, value, hints.get(name, Any))
        elif parameters.takes_rest:
            checked[name] = value
        else:
            known = ", ".join(parameters.names) or "none"
            raise BadInput(f"unknown argument {name[:64]!r}; expected {known}", argument=name[:64])
    return checked


def _converted(name: str, value: Any, expected: Any) -> Any:
    try:
        return msgspec.convert(value, expected, strict=True)
    except msgspec.ValidationError as error:
        words = str(error)
        raise BadInput(f"argument {name!r}: {words[:1].lower()}{words[1:500]}", argument=name) from error


def _parameters(function: Any) -> _Parameters:
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    with_default = positional[len(positional) - len(function.__defaults__ or ()) :]
    optional = {*with_default, *(function.__kwdefaults__ or {})}
    names = positional + keyword_only
    return _Parameters(names, frozenset(names) - optional, bool(code.co_flags & _VARKEYWORDS))


def _signature_of(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):  # functools.wraps
        function = function.__wrapped__
    if not hasattr(function, "__code__"):
        raise ValueError(f"{function!r} is not a function")
    return function


def _is_op_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name.islower() and not name.startswith("_") and len(name) <= 64


def _as_json(value: Any, name: str) -> Any:
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"operation {name!r} returned a value that is not JSON: {error}") from error
