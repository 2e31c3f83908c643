r"""The operations of a Python connector, read from its sources and written to its manifest, which the pin covers.

Static: the sources are parsed but never run, because an install from a directory can build untrusted code. Runs where `build`
runs. The sources are trusted only in what they say about their own operations.

Rules
- A record is complete or missing: if a function could become an operation in a way that cannot be determined (`op` or the SDK
  called, passed on, imported from a file other than the SDK), nothing is recorded.
- An operation is recorded as needing no credential, or no network, only if that is certain (reachable.py), and never if the
  connector has a second file.
- For a type that cannot be determined, any value is accepted. So a call that the connector would accept is never refused.
- An operation whose decorator states a login, `@op(login="read_only")`, is recorded with it (op_logins.py).
- `[[operations]]` that the author wrote are kept: for compiled programs, and for operations that cannot be determined.

>>> source = b"import aileron_connector as sdk\n@sdk.op\ndef add(text: str): pass"
>>> [operation.name for operation in recorded({"__main__.py": source}) or ()]
['add']

Source: docs/reference/connector-manifest.md, docs/adr/0037-operations-are-recorded.md; msgspec decides which values fit a
type (connectors/sdk/aileron_connector/operation.py). Not here: checking a call against it (actions/fitting.py).
"""

from __future__ import annotations

import ast
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.document import MAX_NUMBER
from aileron.model.manifest import Operation, OperationLogin, Parameter, ParameterType
from aileron.model.names import OP_NAME
from aileron.registry.manifest import MAX_ENUM, MAX_LENGTH, MAX_OPERATIONS, MAX_PARAMETERS, PARAMETER_NAME
from aileron.registry.op_logins import OP_HOMES, login_of
from aileron.registry.reachable import MAX_SOURCE_BYTES, SDK, Names, Reachability, nodes_of

__all__ = ["as_toml", "recorded"]

_MAX_DEPTH: Final = 12
"""Maximum depth of nested type hints; a deeper type hint is recorded as accepting any value."""
_MAX_SHAPES: Final = 20_000
"""Maximum number of type hints examined per file, which also ends the search in a type alias that refers to itself."""
_HEADER: Final = (
    "# Read from the signatures in the sources when this was built. To say it yourself, write [[operations]]."
)
_TRANSPORTS: Final = b"transports"
"""Word that occurs in a source file if it uses the SDK's transports, through which client libraries send requests."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The constraints of a type hint on a JSON value; fields as in `Parameter`. If `types` is None, any value is accepted."""

    types: frozenset[ParameterType] | None = None
    items: frozenset[ParameterType] | None = None
    enum: tuple[str | int, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None

    @property
    def is_number(self) -> bool:
        return self.types is not None and bool(self.types & {"integer", "number"})

    @property
    def is_string(self) -> bool:
        return self.types is not None and "string" in self.types


_ANYTHING: Final = _Shape()


def _one(kind: ParameterType) -> _Shape:
    return _Shape(types=frozenset({kind}))


_ARRAY: Final = _one("array")
_NAMED: Final[dict[str, _Shape]] = {
    **{name: _one("string") for name in ("str", "datetime.datetime", "datetime.date", "datetime.time", "uuid.UUID")},
    "int": _one("integer"),
    "float": _one("number"),
    "bool": _one("boolean"),
    **{name: _one("object") for name in ("dict", "typing.Dict", "typing.Mapping", "collections.abc.Mapping")},
    **dict.fromkeys(("list", "tuple", "set", "frozenset", "typing.List", "typing.Tuple", "typing.Sequence"), _ARRAY),
    "collections.abc.Sequence": _ARRAY,
}
"""JSON types that msgspec accepts for each Python type in strict mode: a float can be `1`, an int cannot be `1.0` or `true`."""


def recorded(sources: Mapping[str, bytes]) -> tuple[Operation, ...] | None:
    """Return all operations that a connector's sources declare, sorted by name; None if the sources do not show them all.

    `sources` are its `.py` files by relative path. They are only read, never run.
    """
    programs = {path: data for path, data in sorted(sources.items()) if path.endswith(".py")}
    modules = {
        path: _Module(data, is_alone=len(programs) == 1 and _TRANSPORTS not in data)
        for path, data in programs.items()
        if SDK.encode() in data
    }
    if any(module.is_unknown for module in modules.values()):
        return None
    having = _Having({path: module.names_of_op for path, module in modules.items() if module.names_of_op})
    if any(having.may_be_used_in(data) for data in programs.values()):
        return None
    found: dict[str, Operation] = {}
    for module in modules.values():
        for operation in module.operations:
            is_known = operation.name not in found  # declared twice: which of them is imported, only a run can tell
            found[operation.name] = operation if is_known else _loose(operation)
    return tuple(found[name] for name in sorted(found)) if 0 < len(found) <= MAX_OPERATIONS else None


def as_toml(operations: Iterable[Operation], header: str = _HEADER) -> str:
    """Return operations as tables to append to a manifest. `header` is a comment above them that states their origin."""
    lines = [header]
    for operation in operations:
        lines += ["", "[[operations]]", f"name = {_toml(operation.name)}", *(["rest = true"] if operation.rest else [])]
        lines += [f"{key} = false" for key in ("network", "credential") if not getattr(operation, key)]
        lines += [] if operation.login is UNSET else [f"login = {_toml(operation.login)}"]
        for parameter in operation.parameters:
            lines += ["", "[[operations.parameters]]", *_parameter_lines(parameter)]
    return "\n".join(lines) + "\n"


def _parameter_lines(parameter: Parameter) -> Iterator[str]:
    yield f"name = {_toml(parameter.name)}"
    if not parameter.required:
        yield "required = false"
    for key in ("types", "items", "enum"):
        if values := getattr(parameter, key):
            yield f"{key} = [{', '.join(map(_toml, values))}]"
    for key in ("minimum", "maximum", "min_length", "max_length"):
        if (value := getattr(parameter, key)) is not None:
            yield f"{key} = {_toml(value)}"


def _toml(value: str | int | float) -> str:
    return json.dumps(value, ensure_ascii=False)  # printable text and finite numbers are spelled alike in both


class _Having:
    """The modules of a connector that import `op` or the SDK. Other files could import `op` from them and declare operations."""

    def __init__(self, names: Mapping[str, Set[str]]) -> None:
        """Prepare the search. `names` maps each file's path to the names that `op` or the SDK has in the file."""
        self._names: Final = frozenset[str]().union(*names.values())
        self._modules: Final = frozenset(name for path in names for name in _module_names(path))
        self._has_packages: Final = any(path.endswith("__init__.py") for path in names)

    def may_be_used_in(self, data: bytes) -> bool:
        """Return whether the file with content `data` may use `op` or the SDK through one of these modules.

        It may if it imports one of the names of `op` or the SDK, uses one as an attribute, uses a whole module as a
        value, or cannot be parsed.
        """
        is_near = any(name.encode() in data for name in self._modules)
        if not is_near and not (self._has_packages and b"from ." in data):
            return False
        nodes = nodes_of(data)
        if nodes is None:
            return True
        names = Names(nodes)
        wholes = {alias for node in nodes for alias in self._imported_whole(node)}
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        return any(
            self._takes(node)
            or (isinstance(node, ast.Name) and node.id in wholes and id(node) not in inner)
            or (isinstance(node, ast.Attribute) and node.attr in self._names and not _is_of_sdk(names.dotted(node)))
            for node in nodes
        )

    def _takes(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.ImportFrom) or _is_of_sdk(node.module):
            return False
        is_ours = node.module is None or node.module.rpartition(".")[2] in self._modules
        return is_ours and any(alias.name == "*" or alias.name in self._names for alias in node.names)

    def _imported_whole(self, node: ast.AST) -> Iterator[str]:
        """Yield the names that an import statement binds to one of these modules itself, not to a name in it."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if self._modules & set(alias.name.split(".")):
                    yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not _is_of_sdk(node.module):
            yield from (alias.asname or alias.name for alias in node.names if alias.name in self._modules)


def _module_names(path: str) -> tuple[str, ...]:
    """Return the module names, without packages, by which the file at `path` can be imported."""
    *folders, name = path.removesuffix(".py").split("/")
    if name == "__init__":
        return tuple(folders[-1:])
    return (
        ("__main__", "connector") if name in ("__main__", "connector") else (name,)
    )  # the build renames connector.py to __main__.py


def _loose(operation: Operation) -> Operation:
    """Return the operation, which was declared twice, without its parameters, so that it accepts any arguments."""
    return Operation(name=operation.name, rest=True, login=operation.login)


def _is_of_sdk(dotted: str | None) -> bool:
    return dotted is not None and dotted.partition(".")[0] == SDK


class _Module:
    """A source file that imports the SDK. `operations` are declared in it; if `is_unknown`, there may be more."""

    def __init__(self, data: bytes, is_alone: bool) -> None:
        self._assigned: dict[str, ast.expr | None] = {}
        """Expression assigned to each global name, such as a type alias; None if the name is assigned more than once."""
        self._classes: dict[str, ast.ClassDef] = {}
        self._shapes = 0
        self.operations: tuple[Operation, ...] = ()
        try:
            if len(data) > MAX_SOURCE_BYTES:
                raise ValueError("too large")
            tree = ast.parse(data)
            self._nodes = list(ast.walk(tree))
            self._names = Names(self._nodes)
            self._read(tree)
            functions = [node for node in self._nodes if isinstance(node, _Function)]
            operations: set[ast.AST] = {
                function for function in functions if function.decorator_list and all(self._marks(function))
            }
            self._reach = Reachability(tree, self._nodes, self._names, operations) if is_alone else None
            self.is_unknown = self._passes_op_on()
            self.operations = tuple(itertools.islice(self._declared(), MAX_OPERATIONS + 1))  # one more is too many
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.is_unknown = True

    @property
    def names_of_op(self) -> Set[str]:
        """Names that this file's imports give to `op` or to an SDK module that has `op`."""
        return {name for name, meant in self._names.imported.items() if self._is_op(meant) or meant in OP_HOMES}

    def _declared(self) -> Iterator[Operation]:
        for node in self._nodes:
            if isinstance(node, _Function):
                marks = self._marks(node)
                if any(marks) and OP_NAME.fullmatch(node.name):
                    is_bare = marks[-1]  # nothing between it and the function
                    operation = self._operation(node) if is_bare else Operation(name=node.name, rest=True)
                    login = self._login(node)
                    if login is not UNSET:  # a stated login implies that it logs in
                        operation = msgspec.structs.replace(operation, login=login, network=True, credential=True)
                    yield operation

    def _marks(self, function: _Function) -> list[bool]:
        """Return a flag for each decorator of `function`: True if the decorator is `op` or `op(login=…)`."""
        return [
            self._is_op(self._names.dotted(decorator)) or login_of(decorator, self._names) is not None
            for decorator in function.decorator_list
        ]

    def _login(self, function: _Function) -> OperationLogin | UnsetType:
        said = (login_of(decorator, self._names) for decorator in function.decorator_list)
        return next((login for login in said if login is not None), UNSET)

    def _operation(self, function: _Function) -> Operation:
        given = function.args
        positional = [*given.posonlyargs, *given.args]
        optional = {argument.arg for argument in positional[len(positional) - len(given.defaults) :]}
        optional |= {
            argument.arg
            for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
            if default is not None
        }
        parameters = [
            self._parameter(argument, required=argument.arg not in optional)
            for argument in (*positional, *given.kwonlyargs)
        ]
        are_sayable = all(PARAMETER_NAME.fullmatch(parameter.name) for parameter in parameters)
        if not are_sayable or len(parameters) > MAX_PARAMETERS:
            return Operation(name=function.name, rest=True)
        network, credential = (True, True) if self._reach is None else self._reach.of(function)
        return Operation(
            name=function.name,
            parameters=tuple(parameters),
            rest=given.kwarg is not None,
            network=network,
            credential=credential,
        )

    def _parameter(self, argument: ast.arg, *, required: bool) -> Parameter:
        shape = _ANYTHING if argument.annotation is None else self._shape(argument.annotation, 0)
        return Parameter(
            name=argument.arg,
            required=required,
            types=tuple(sorted(shape.types or ())),
            items=tuple(sorted(shape.items or ())),
            enum=shape.enum,
            minimum=shape.minimum,
            maximum=shape.maximum,
            min_length=shape.min_length,
            max_length=shape.max_length,
        )

    # names

    def _read(self, tree: ast.Module) -> None:
        for node in tree.body:
            match node:
                case ast.ClassDef():
                    self._classes[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assigned[name] = None if name in self._assigned else value
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    self._assigned[name] = None if name in self._assigned else value

    @staticmethod
    def _is_op(dotted: str | None) -> bool:
        home, _, name = (dotted or "").rpartition(".")
        return name == "op" and home in OP_HOMES

    def _passes_op_on(self) -> bool:
        """Return whether other files may declare operations with the `op` or SDK that this file imports.

        They may if `op` is used other than as a decorator, or is not used at all, or if the SDK is used as a value.
        """
        decorators = {
            id(decorator.func if login_of(decorator, self._names) and isinstance(decorator, ast.Call) else decorator)
            for node in self._nodes
            if isinstance(node, _Function | ast.ClassDef)
            for decorator in node.decorator_list
        }
        uses = [
            id(node) in decorators
            for node in self._nodes
            if isinstance(node, ast.Name | ast.Attribute) and self._is_op(self._names.dotted(node))
        ]
        inner = {id(node.value) for node in self._nodes if isinstance(node, ast.Attribute)}
        is_value = any(
            self._names.dotted(node) in OP_HOMES and id(node) not in inner
            for node in self._nodes
            if isinstance(node, ast.Name | ast.Attribute)
        )
        has_op = any(self._is_op(meant) for meant in self._names.imported.values())
        return not all(uses) or is_value or (has_op and not uses)

    # types

    def _shape(self, node: ast.expr, depth: int) -> _Shape:
        self._shapes += 1
        if self._shapes > _MAX_SHAPES:
            raise ValueError("too many types")
        if depth > _MAX_DEPTH:
            return _ANYTHING
        match node:
            case ast.Constant(value=None):
                return _one("null")
            case ast.Constant(value=str(text)):
                return self._shape(ast.parse(text, mode="eval").body, depth + 1)
            case ast.BinOp(op=ast.BitOr()):
                return _union([self._shape(node.left, depth + 1), self._shape(node.right, depth + 1)])
            case ast.Subscript():
                return self._generic(node, depth)
            case ast.Name() | ast.Attribute():
                return self._named(node, depth)
            case _:
                return _ANYTHING

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> _Shape:
        if isinstance(node, ast.Name):
            if node.id in self._assigned:
                value = self._assigned[node.id]
                return _ANYTHING if value is None else self._shape(value, depth + 1)
            if node.id in self._classes:
                return self._class(self._classes[node.id])
        return _NAMED.get(self._names.dotted(node) or "", _ANYTHING)

    def _class(self, node: ast.ClassDef) -> _Shape:
        """Return the shape of a class: an object for a Struct or TypedDict without other bases, otherwise any value.

        For a Struct that may set `array_like`, too, the shape accepts any value, since msgspec reads such a Struct
        from an array.
        """
        bases = {self._names.dotted(base) for base in node.bases}
        is_table = bases and bases <= {"msgspec.Struct", "typing.TypedDict"}
        is_array = any(keyword.arg in (None, "array_like") for keyword in node.keywords)
        return _one("object") if is_table and not is_array else _ANYTHING

    def _generic(self, node: ast.Subscript, depth: int) -> _Shape:
        name = self._names.dotted(node.value) or ""
        inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        match name.removeprefix("typing.").removeprefix("typing_extensions."):
            case "Optional":
                return _union([self._shape(inside[0], depth + 1), _one("null")])
            case "Union":
                return _union([self._shape(member, depth + 1) for member in inside])
            case "Literal":
                return _literal(inside)
            case "Annotated":
                return self._annotated(self._shape(inside[0], depth + 1), inside[1:])
        shape = self._named(node.value, depth) if isinstance(node.value, ast.Name | ast.Attribute) else _ANYTHING
        is_list = name in {"list", "set", "frozenset", "typing.List", "typing.Sequence", "collections.abc.Sequence"}
        if is_list and len(inside) == 1:
            return msgspec.structs.replace(shape, items=self._shape(inside[0], depth + 1).types)
        return shape

    def _annotated(self, shape: _Shape, notes: list[ast.expr]) -> _Shape:
        for note in notes:
            if isinstance(note, ast.Call) and self._names.dotted(note.func) == "msgspec.Meta":
                for keyword in note.keywords:
                    shape = _narrowed(shape, keyword.arg, self._number(keyword.value))
        return shape

    def _number(self, node: ast.expr) -> int | float | None:
        if isinstance(node, ast.Name):
            value = self._assigned.get(node.id)
            node = node if value is None else value
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and math.isfinite(value) and abs(value) <= MAX_NUMBER else None


def _narrowed(shape: _Shape, key: str | None, value: Any) -> _Shape:
    """Return the shape with the limit `key` of a msgspec.Meta, such as `ge`; unchanged if this limit does not apply to
    the shape or cannot be recorded.
    """
    if value is None or shape.types is None:
        return shape
    is_integer, is_count = shape.types <= {"integer", "null"}, isinstance(value, int) and 0 <= value <= MAX_LENGTH
    replace = msgspec.structs.replace
    match key:
        case "ge" if shape.is_number:
            return replace(shape, minimum=value)
        case "le" if shape.is_number:
            return replace(shape, maximum=value)
        case "gt" if is_integer and isinstance(value, int) and value < MAX_NUMBER:
            return replace(shape, minimum=value + 1)
        case "lt" if is_integer and isinstance(value, int) and value > -MAX_NUMBER:
            return replace(shape, maximum=value - 1)
        case "min_length" if shape.is_string and is_count:
            return replace(shape, min_length=value)
        case "max_length" if shape.is_string and is_count:
            return replace(shape, max_length=value)
        case _:
            return shape


def _literal(values: list[ast.expr]) -> _Shape:
    found = [value.value if isinstance(value, ast.Constant) else ... for value in values]
    names = {"str": "string", "int": "integer", "NoneType": "null"}
    if not all(type(value).__name__ in names for value in found):
        return _ANYTHING
    types = msgspec.convert({names[type(value).__name__] for value in found}, frozenset[ParameterType])
    choices = tuple(dict.fromkeys(value for value in found if isinstance(value, str | int)))
    are_sayable = all(value.isprintable() if isinstance(value, str) else abs(value) <= MAX_NUMBER for value in choices)
    return _Shape(types=types, enum=choices if are_sayable and len(choices) <= MAX_ENUM else ())


def _union(shapes: list[_Shape]) -> _Shape:
    """Return a shape that accepts the values of all of these shapes.

    A limit on values of a JSON type is kept if only one of the shapes accepts that type.
    """
    if any(shape.types is None for shape in shapes):
        return _ANYTHING
    types = frozenset[ParameterType]().union(*(shape.types or () for shape in shapes))
    scalars = [shape for shape in shapes if shape.is_string or shape.is_number]
    numbers = [shape for shape in shapes if shape.is_number]
    strings = [shape for shape in shapes if shape.is_string]
    arrays = [shape for shape in shapes if shape.types and "array" in shape.types]
    return _Shape(
        types=types,
        items=arrays[0].items if len(arrays) == 1 else None,
        enum=scalars[0].enum if len(scalars) == 1 else (),
        minimum=numbers[0].minimum if len(numbers) == 1 else None,
        maximum=numbers[0].maximum if len(numbers) == 1 else None,
        min_length=strings[0].min_length if len(strings) == 1 else None,
        max_length=strings[0].max_length if len(strings) == 1 else None,
    )
