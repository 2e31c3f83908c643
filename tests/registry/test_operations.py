"""The operations read from a connector's sources: complete or absent, and never narrower than what the SDK accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aileron.model.failure import AileronError
from aileron.model.manifest import Operation, Parameter
from aileron.model.names import HostPort
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.operations import as_toml, recorded
from tests.registry.conftest import MANIFEST

REPOSITORY = Path(__file__).resolve().parents[2]
HEAD = """\
import datetime
from typing import Annotated, Any, Literal, Optional, Union
import msgspec
from msgspec import Meta
import aileron_connector as sdk
from aileron_connector import op

Days = Annotated[int, Meta(ge=1, le=366)]
MOST = 50
class Place(msgspec.Struct):
    name: str
class Row(msgspec.Struct, array_like=True):
    name: str
"""


def found(source: str, **others: str) -> dict[str, Operation] | None:
    """Return the operations of a connector whose program is `source`, by name."""
    sources = {"__main__.py": source.encode(), **{f"{name}.py": text.encode() for name, text in others.items()}}
    operations = recorded(sources)
    return None if operations is None else {operation.name: operation for operation in operations}


def quiet(**fields: Any) -> Operation:
    """Return an operation that requests nothing."""
    return Operation(network=False, credential=False, **fields)


def parameter(annotation: str) -> Parameter:
    """Return the record of a parameter `x` with this annotation."""
    operations = found(f"{HEAD}\n@op\ndef go(x: {annotation}): pass\n")
    assert operations is not None
    (only,) = operations["go"].parameters
    return only


def test_the_parameters_of_an_operation_are_recorded_as_required_or_optional() -> None:
    """The decorator may have any name. Defaults, keyword-only parameters and `**rest` are recorded."""
    operations = found(
        f"{HEAD}\n@op\ndef send(to: str, copies: int = 1, *, when: datetime.datetime | None = None): pass\n"
        "@sdk.op\ndef loose(a, **rest): pass\n"
        "def helper(b: str): pass\n"
    )

    assert operations == {
        "loose": quiet(name="loose", parameters=(Parameter(name="a"),), rest=True),
        "send": quiet(
            name="send",
            parameters=(
                Parameter(name="to", types=("string",)),
                Parameter(name="copies", required=False, types=("integer",)),
                Parameter(name="when", required=False, types=("null", "string")),
            ),
        ),
    }


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("str", {"types": ("string",)}),
        ("float", {"types": ("number",)}),
        ("bool", {"types": ("boolean",)}),
        ("'int'", {"types": ("integer",)}),
        ("dict[str, Any]", {"types": ("object",)}),
        ("list[str]", {"types": ("array",), "items": ("string",)}),
        ("list[int | None]", {"types": ("array",), "items": ("integer", "null")}),
        ("Optional[int]", {"types": ("integer", "null")}),
        ("Union[str, int]", {"types": ("integer", "string")}),
        ("Days", {"types": ("integer",), "minimum": 1, "maximum": 366}),
        ("Days | None", {"types": ("integer", "null"), "minimum": 1, "maximum": 366}),
        ("Annotated[int, Meta(gt=0, lt=MOST)]", {"types": ("integer",), "minimum": 1, "maximum": 49}),
        ("Annotated[int, Meta(gt=9007199254740990)]", {"types": ("integer",), "minimum": 2**53 - 1}),
        ("Annotated[int, Meta(gt=9007199254740991)]", {"types": ("integer",)}),
        ("Annotated[int, Meta(lt=-9007199254740991)]", {"types": ("integer",)}),
        ("Annotated[str, msgspec.Meta(max_length=3)]", {"types": ("string",), "max_length": 3}),
        ("Literal['a', 'b'] | None", {"types": ("null", "string"), "enum": ("a", "b")}),
        ("Place", {"types": ("object",)}),
        # what rules nothing out, because it cannot be read off
        ("Row", {}),
        ("Any", {}),
        ("object", {}),
        ("unheard.Of", {}),
        ("str | unheard.Of", {}),
        ("Annotated[float, Meta(gt=0)]", {"types": ("number",)}),
        ("Annotated[int, Meta(ge=1)] | float", {"types": ("integer", "number")}),
        ("Literal['a'] | str", {"types": ("string",)}),
        ("Literal[True]", {}),
        ("'not python ('", None),
    ],
)
def test_the_type_of_a_parameter_is_recorded_if_it_can_be_read_from_the_source(
    annotation: str, said: dict[str, Any] | None
) -> None:
    """A parameter whose type cannot be read accepts any value."""
    if said is None:
        assert found(f"{HEAD}\n@op\ndef go(x: {annotation}): pass\n") is None
    else:
        assert parameter(annotation) == Parameter(name="x", **said)


GO = "from aileron_connector import op\n@op\ndef go(): pass\n"
MORE = "from aileron_connector import op\n@op\ndef more(): pass\n"
SDK_GO = "import aileron_connector as sdk\n@sdk.op\ndef go(): pass\n"


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("print('frames of its own')\n", {}),
        (f"{GO}def other(): pass\nop(other)\n", {}),
        (f"{GO}declare = op\n", {}),
        (f"{GO}for each in (): op(each)\n", {}),
        ("import shared\n@shared.op\ndef go(): pass\n", {"shared": "from aileron_connector import op\n"}),
        (f"{GO}", {"more": "from __main__ import op\n@op\ndef more(): pass\n"}),
        (f"{GO}", {"more": "from connector import op as operation\n@operation\ndef more(): pass\n"}),
        (f"{GO}", {"more": "from __main__ import op as operation\n@operation\ndef more(): pass\n"}),
        (f"{GO}", {"more": "import connector\n@connector.op\ndef more(): pass\n"}),
        (f"{GO}", {"more": "import connector\ndeclare = getattr(connector, 'o' + 'p')\n@declare\ndef more(): pass\n"}),
        (f"{GO}", {"more": "import connector as it\ndeclare = getattr(it, 'o' + 'p')\n@declare\ndef more(): pass\n"}),
        (SDK_GO, {"more": "import connector\n@connector.sdk.op\ndef more(): pass\n"}),
        (SDK_GO, {"more": "from connector import sdk as it\n@it.op\ndef more(): pass\n"}),
        (SDK_GO, {"more": "from connector import *\n@sdk.op\ndef more(): pass\n"}),
        (f"{GO}", {"more": "# aileron_connector\nfrom __main__ import op as it\n@it\ndef more(): pass\n"}),
        ("import more\n", {"lib/__init__": GO, "lib/more": "from . import op as it\n@it\ndef more(): pass\n"}),
        ("import more\n", {"lib/near": SDK_GO, "more": "from lib import near\n@near.sdk.op\ndef more(): pass\n"}),
        (f"{SDK_GO}def declare(by):\n    @by.op\n    def more(): pass\ndeclare(sdk)\n", {}),
        (f"{SDK_GO}import more\nmore.declare(sdk.operation)\n", {}),
        (f"{GO}def broken(:\n", {}),
        (f"{GO}from typing import Union\nX = Union[{'X, ' * 40}X]\n@op\ndef other(x: X): pass\n", {}),
    ],
)
def test_no_operations_are_recorded_if_the_source_could_declare_more_than_were_found(
    source: str, others: dict[str, str]
) -> None:
    """A partial record would refuse operations that the connector has. The positive controls have a record."""
    assert found(source, **others) is None
    assert found(GO) == {"go": quiet(name="go")}
    assert found(
        "import connector\nfrom lib import more\n", connector=SDK_GO, more=f"from connector import go\n{MORE}"
    ) == {
        "go": Operation(name="go"),
        "more": Operation(name="more"),
    }


def test_an_operation_with_unknown_parameters_accepts_any_arguments() -> None:
    """The operation stands under another decorator, or is declared in two places."""
    wrapped = found(f"{HEAD}\n@op\n@other\ndef go(x: int): pass\n@other\n@op\ndef mine(x: int): pass\n")
    twice = found(f"{GO}", more="from aileron_connector import op\n@op\ndef go(x: int): pass\n")

    assert wrapped == {
        "go": Operation(name="go", rest=True),
        "mine": quiet(name="mine", parameters=(Parameter(name="x", types=("integer",)),)),
    }
    assert twice == {"go": Operation(name="go", rest=True)}


def test_the_record_of_operations_is_written_to_the_built_manifest(source: Path) -> None:
    """The pin covers it there, and the rest of the manifest is unchanged. Operations that the author wrote take its place."""
    (source / "connector.py").write_text(f"{HEAD}\n@op\ndef go(x: Days, y: Literal['ü', 'b'] = 'b'): pass\n")
    built = build(source)
    manifest = parse_connector_manifest(built.manifest, file="m")

    assert built.manifest.decode().startswith(MANIFEST)
    assert manifest.operations == recorded({path.name: path.read_bytes() for path in source.rglob("*.py")})
    assert manifest.operations is not None
    assert manifest.operations[0].parameters[1].enum == ("ü", "b")

    written = MANIFEST + '\n[[operations]]\nname = "come"\n'
    (source / "manifest.toml").write_text(written)
    assert build(source).manifest.decode() == written


@pytest.mark.parametrize(("choice", "is_held"), [("a", True), ("x" * 300_000, False), ("\u3164", False)])
def test_a_record_of_operations_that_a_manifest_cannot_hold_is_left_out(
    source: Path, choice: str, is_held: bool
) -> None:
    """The record is too large, or has an invisible character. The connector is built without it."""
    (source / "connector.py").write_text(f"{HEAD}\n@op\ndef go(x: Literal['{choice}']): pass\n")
    manifest = build(source).manifest.decode()

    assert manifest.startswith(MANIFEST)
    assert (manifest != MANIFEST) is is_held


def test_a_written_record_is_read_back() -> None:
    """Every key of a parameter survives."""
    whole = Parameter(
        name="x",
        required=False,
        types=("array", "number", "string"),
        items=("null",),
        enum=('a"\\', 3),
        minimum=-1,
        maximum=2.5,
        min_length=1,
        max_length=9,
    )
    operations = (Operation(name="go", parameters=(whole,), rest=True), Operation(name="stay"))

    read = parse_connector_manifest((MANIFEST + as_toml(operations)).encode(), file="m").operations

    assert read == operations


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[operations]]\nname = "Go"\n', "name 'Go' is not a lower-case letter"),
        ('[[operations]]\nname = "go"\n[[operations]]\nname = "go"\n', "each once"),
        ('[[operations]]\nname = "go"\nkind = "x"\n', "unknown key 'kind'"),
        ('[[operations]]\nname = "go"\n[[operations.parameters]]\nname = "a-b"\n', "name 'a-b' is not a letter"),
        (
            '[[operations]]\nname = "go"\n[[operations.parameters]]\nname = "a"\ntypes = ["text"]\n',
            "types is not some of",
        ),
        (
            '[[operations]]\nname = "go"\n[[operations.parameters]]\nname = "a"\nenum = [1.5]\n',
            "neither a string nor an integer",
        ),
    ],
)
def test_handwritten_operations_are_checked(text: str, problem: str) -> None:
    """The refusal has file and line, and the schema is closed."""
    with pytest.raises(AileronError) as refused:
        parse_connector_manifest((MANIFEST + text).encode(), file="manifest.toml")

    assert problem in refused.value.failure.message
    assert refused.value.failure.message.startswith("manifest.toml:")


@pytest.mark.parametrize("name", ["caldav", "google", "s3", "slack"])
def test_the_actions_of_the_bundled_connectors_match_the_recorded_operations(name: str) -> None:
    """The record has each operation that an action names, with all its inputs."""
    from aileron.actions.fitting import check_action
    from aileron.actions.manifest import parse_action

    directory = REPOSITORY / "connectors" / name
    operations = recorded({path.name: path.read_bytes() for path in directory.glob("*.py")})
    text = (directory / "manifest.toml").read_bytes()
    assert operations is not None
    manifest = parse_connector_manifest(text + as_toml(operations).encode(), file="m", allow_unbound=True)

    actions = sorted(directory.glob("actions/*/action.md"))
    assert actions
    for path in actions:
        action = parse_action(path.read_text(encoding="utf-8"), file=path.name, allow_placeholder=True)
        check_action(action, lambda _pin: manifest, file=str(path))


def test_the_recorded_operations_have_the_parameters_of_the_connectors_functions(tmp_path: Path) -> None:
    """The test compares the record of the probe connector with its functions' signatures."""
    directory = REPOSITORY / "tests" / "support" / "connectors" / "probe"
    manifest = parse_connector_manifest(build(directory, [HostPort("localhost", 1)]).manifest, file="m")

    assert manifest.operations is not None
    by_name = {operation.name: operation for operation in manifest.operations}
    assert by_name["give_back"].parameters == (
        Parameter(name="text", required=False, types=("string",)),
        Parameter(name="number", required=False, types=("integer",)),
        Parameter(name="flag", required=False, types=("boolean",)),
        Parameter(name="share", required=False, types=("number",)),
    )


REACH = """\
import json
from aileron_connector import http, log, op
import packed
LIMIT = 3
def ask(path): return http.request("GET", path)
def ask_with_key(path): return http.request("GET", path, credential="api_key")
class Client:
    def get(self): return ask_with_key("/")
def by_global():
    global made
    made = ask_with_key("/")
"""


@pytest.mark.parametrize(
    ("body", "network", "credential"),
    [
        ("return json.dumps(LIMIT)", False, False),
        ("log.info('x'); return [one for one in range(3)]", False, False),
        ("return ask('/')", True, False),
        ("return http.request('GET', '/', [], None)", True, False),
        # whatever may lead to one is taken to do so
        ("return ask_with_key('/')", True, True),
        ("return Client().get()", True, True),
        ("return made", True, True),
        ("return http.request('GET', '/', [], None, 'api_key')", True, True),
        ("return http.request('GET', '/', **{'credential': 'api_key'})", True, True),
        ("return ask(*['/'])", True, True),
        ("return packed.anything()", True, True),
        ("return getattr(json, 'dumps')", True, True),
    ],
)
def test_the_record_says_whether_an_operation_can_make_requests(body: str, network: bool, credential: bool) -> None:
    """Calls are followed within one file. If there is another file, every operation counts as making requests."""
    source = f"{REACH}\n@op\ndef go():\n    {body}\n"

    assert reached(source) == (network, credential)
    assert reached(source, helper="MORE = 1") == (True, True)
    assert reached(f"from aileron_connector import transports\n{source}") == (True, True)


ASK = """\
import functools, json, urllib.parse
import aileron_connector as sdk
def fetch(): return sdk.http.request("GET", "/", credential="api_key")
"""
TABLE = "HANDLERS = {}\n"
OPERATION = "@sdk.op\ndef go(kind: str = ''): "


@pytest.mark.parametrize(
    ("around", "body"),
    [
        # stored where the operation finds it, while the file is imported
        (f"{TABLE}HANDLERS['get'] = fetch\n", "return HANDLERS[kind]()"),
        (f"{TABLE}HANDLERS.update(get=fetch)\n", "return HANDLERS[kind]()"),
        (f"{TABLE}def fill(): HANDLERS['get'] = fetch\nfill()\n", "return HANDLERS[kind]()"),
        (f"{TABLE}for each in (fetch,): HANDLERS[''] = each\n", "return HANDLERS[kind]()"),
        (f"{TABLE}def later(x=HANDLERS.setdefault('', fetch)): pass\n", "return HANDLERS[kind]()"),
        ("def choose(): return choose.kind()\nchoose.kind = fetch\n", "return choose()"),
        ("json.dumps = fetch\n", "return json.dumps(kind)"),
        ("class Hook:\n    pass\nHook.call = fetch\n", "return Hook.call()"),
        # by a decorator
        (
            f"{TABLE}def register(made): HANDLERS[''] = made; return made\n@register\ndef other(): return fetch()\n",
            "return HANDLERS[kind]()",
        ),
        (
            "@functools.singledispatch\ndef take(x): pass\n@take.register\ndef _(x: str): return fetch()\n",
            "return take(kind)",
        ),
        (
            "KINDS = []\nclass Meta:\n    def __set_name__(self, owner, name): KINDS.append(owner)\n"
            "class One:\n    x = Meta()\n    def call(self): return fetch()\n",
            "return KINDS[0]().call()",
        ),
        # by what remembers classes, or leads anywhere
        (
            "class Base: pass\nclass One(Base):\n    def call(self): return fetch()\n",
            "return Base.__subclasses__()[0]().call()",
        ),
        (
            "KINDS = []\nclass Base:\n    def __init_subclass__(cls): KINDS.append(cls)\n"
            "class One(Base):\n    def call(self): return fetch()\n",
            "return KINDS[0]().call()",
        ),
        ("", "return go.__globals__['fetch']()"),
        ("", "return json.codecs.sys.modules['__main__'].fetch()"),
        ("import os\n", "return os.write(4, b'')"),
        ("", "return urllib.request.urlopen(kind)"),
        ("from packed import *\n", "return anything()"),
        # the SDK as a value, or a part of it that is not known
        ("def call(ask): return ask('GET', '/', None, None, 'api_key')\n", "return call(sdk.http.request)"),
        ("", "return functools.partial(sdk.http.request, 'GET', '/')(None, None, 'api_key')"),
        ("", "return sdk.operation.call('other', {})"),
        ("", "return sdk.log.__globals__['http'].request"),
        # under a name that stood for something else
        ("from aileron_connector import log\nclass log:\n    def info(_): return fetch()\n", "return log.info(kind)"),
        ("def urllib(): return fetch()\n", "return urllib.parse()"),
        # by a type hint in a text
        ("class Made:\n    def __post_init__(self): fetch()\ndef more(x: 'Made'): pass\n", "return more"),
    ],
)
def test_operations_whose_code_might_make_a_request_are_recorded_as_making_requests(around: str, body: str) -> None:
    """Otherwise a run would begin, and a person be asked, for something that cannot work. Harmless code is the control."""
    assert reached(f"{ASK}{around}{OPERATION}{body}\n") == (True, True)
    assert reached(f"{ASK}{OPERATION}return json.dumps(urllib.parse.quote(kind))\n") == (False, False)


def reached(source: str, **others: str) -> tuple[bool, bool]:
    """Return what is recorded of the operation `go`: whether it may request, and whether with a credential."""
    operations = found(source, **others)
    assert operations is not None
    return operations["go"].network, operations["go"].credential
