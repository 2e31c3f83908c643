"""The JSON Schemas for editors accept what the parsers accept, and refuse every mistake that a schema can express."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from aileron.actions.manifest import SCHEMA as ACTION
from aileron.actions.manifest import parse_action
from aileron.model.described import DIALECT, json_schema
from aileron.model.document import Field, Kind, Schema
from aileron.model.failure import AileronError
from aileron.model.manifest import ApprovalRule
from aileron.model.names import FQN, Fqn
from aileron.registry.manifest import SCHEMA as CONNECTOR
from aileron.registry.manifest import parse_connector_manifest
from tests.support.shaped import shaped

ROOT = Path(__file__).parents[2]
WHOLE_ACTION = """
name = "send-email"
version = "1.2.0"
source = "github://acme/mail/actions/send-email@1.2.0"
requires.connectors = [
  {name = "github://acme/mail", version = "1.2.0", hash = "sha256:bound-at-release", capabilities = ["send", "look"]},
]
match.intent = "send an email"

[[inputs]]
name = "to"
type = "string"
description = "Who gets it."
label = "To"
multiline = true
enum = ["a", "b"]
pattern = "^[ab]$"
min_length = 1
max_length = 2

[[inputs]]
name = "many"
type = "number"
description = "How many."
minimum = 1
maximum = 9.5
default = 2

[[inputs]]
name = "tags"
type = "array"
description = "Which."
required = false
schema = {items = {type = "string"}}

[[execute]]
id = "send"
connector = "github://acme/mail"
op = "send"
idempotent = true
inputs = {to = "${args.to}"}

[approval]
required = true
expires_in = "10m"
irreversible = false
undo_window_s = 30

[approval.preview]
connector = "github://acme/mail"
op = "look"
inputs = {to = "${args.to}"}
render = {To = "a.b"}
multiline = ["To"]
"""
WHOLE_MANIFEST = """
[connector]
name = "github://acme/mail"
version = "1.2.0"
publisher = "Acme"
provenance_hash = "sha256:HEX"
idempotency = {default = "not_idempotent"}

[capabilities]
network.hosts = ["a.example.com:443", "b.example.com:65535", "c.example.com"]
runtime.imports = ["http", "wasi:cli/stdout@0.2.0"]

[capabilities.credential]
kind = "oauth2"
scope = "Send mail"

[capabilities.credential.oauth2]
authorize_url = "https://accounts.example.com/auth"
token_url = "http://localhost:8080/token"
client_id = "bound-at-release"
client_secret = "bound-at-release"
scopes = ["mail", "openid"]
issuer = "https://accounts.example.com"
device_authorization_url = "https://accounts.example.com/device"
revocation_url = "https://accounts.example.com/revoke"
registration_url = "https://accounts.example.com/register"
resource = "https://a.example.com/mcp?x=y/z"
issuer_in_answer = false
authorize_params = {access_type = "offline"}

[limits]
memory_mb = 128
timeout_s = 300
subprocess = true

[provides]
intents = ["send_email"]
""".replace("HEX", "0f" * 32)
WITH_A_KEY = """
[connector]
name = "github://acme/mail"
version = "1.2.0"
[capabilities]
network.hosts = ["bound-at-build"]
runtime.imports = ["http"]
credential = {kind = "api_key", scope = "Send mail", header = "X-Key", format = "Key {key}"}
"""


def read_action(text: str) -> object:
    """Read an action as `action validate` does."""
    return parse_action(f"+++\n{text}\n+++\n", file="a.md", allow_placeholder=True)


def read_manifest(text: str) -> object:
    """Read a manifest as `connector build` does."""
    return parse_connector_manifest(text.encode(), file="m.toml", allow_unbound=True)


Read = Callable[[str], object]
EDITORS = {
    "action": jsonschema.Draft202012Validator(json_schema(ACTION, "action")),
    "manifest": jsonschema.Draft202012Validator(json_schema(CONNECTOR, "manifest")),
}
READERS: dict[str, Read] = {"action": read_action, "manifest": read_manifest}
WHOLE = [("action", WHOLE_ACTION), ("manifest", WHOLE_MANIFEST), ("manifest", WITH_A_KEY)]


def problems(kind: str, text: str) -> list[str]:
    """Return what an editor underlines."""
    return [error.message for error in EDITORS[kind].iter_errors(tomllib.loads(text))]


def is_read(kind: str, text: str) -> bool:
    """Return whether the parser accepts the text."""
    try:
        READERS[kind](text)
    except AileronError:
        return False
    return True


def test_editor_schemas_are_valid_json_schema() -> None:
    """They conform to the dialect that they name, and allow no unknown keys, as the parsers do."""
    for validator in EDITORS.values():
        jsonschema.Draft202012Validator.check_schema(validator.schema)
        assert (validator.schema["$schema"], validator.schema["additionalProperties"]) == (DIALECT, False)
        assert json.loads(json.dumps(validator.schema)) == validator.schema


@pytest.mark.parametrize(("kind", "text"), WHOLE)
def test_a_complete_document_is_accepted_by_parser_and_schema(kind: str, text: str) -> None:
    """The documents have nearly every key."""
    READERS[kind](text)

    assert problems(kind, text) == []


def test_the_reference_connectors_files_are_accepted_by_parser_and_schema() -> None:
    """The test parses the actions and manifests of the reference connectors."""
    actions = sorted(ROOT.glob("connectors/*/actions/*/action.md"))
    manifests = sorted(ROOT.glob("connectors/*/manifest.toml"))
    assert len(actions) > 3
    assert len(manifests) > 1

    for path in actions:
        text = path.read_text(encoding="utf-8")
        parse_action(text, file=path.name, allow_placeholder=True)
        assert problems("action", text.split("+++\n")[1]) == [], path
    for path in manifests:
        text = path.read_text(encoding="utf-8")
        read_manifest(text)
        assert problems("manifest", text) == [], path


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(inner, (*path, key))


VALUES = st.one_of(
    st.none().map(lambda _: ...),  # the key is left out
    st.booleans(),
    st.integers(-2, 2**53 - 1),
    st.sampled_from([0, 1, 64, 300, 301, 1024, 1025, 3600, 3601, 1.5, 2**53, 1 << 20, (1 << 20) + 1]),
    st.sampled_from(
        "string number array api_key basic oauth2 idempotent http log tcp 1.2.3 v1.2.3 01.2.3 1.2 1.0.0-rc.1+b latest args 15m"
        " 25h 0s github://a/b github://a/b/c gitlab://a/b@1.0.0 github://a/b@1.2.3 github://a/.. hub://a sha256:bound-at-release"
        " bound-at-build a.b:443 a.b:0 A.b:1 *:443 * {key} X-Api https://a.b/c http://a.b x${args.to}"
        " ${args.to} ${send.a}".split()
    ),
    st.text(max_size=6),
    st.lists(st.sampled_from(["a.b:443", "http", "log", "To", "a", "*", "", "bound-at-build", 1]), max_size=3),
    st.dictionaries(
        st.sampled_from(["type", "To", "to", "x y", ""]), st.sampled_from(["a.b", "string", "", 1]), max_size=2
    ),
)


def _like(value: Any) -> st.SearchStrategy[Any]:
    """Return values that might be valid in its place; most random values are not."""
    match value:
        case bool():
            return st.booleans()
        case int():
            return st.integers(0, 400)
        case str():
            return st.sampled_from(["0.0.0-dev", "1.0.0-rc.1+b.7", "basic", "24h", "1s", "log"]) | st.text(
                "ab.-_", min_size=1
            )
        case list():
            return st.lists(st.sampled_from(value or [""]), max_size=3)
        case _:
            return st.just(value)


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, str]:
    """Return a whole document with one to three of its values exchanged or left out."""
    kind, text = draw(st.sampled_from(WHOLE))
    document = tomllib.loads(text)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        *path, last = draw(st.sampled_from(list(_places(document))))
        inner: Any = document
        for key in path:
            inner = inner[key]
        value = draw(st.one_of(st.just(...), _like(inner[last]), VALUES))
        if value is ...:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(value)
        if not document:
            break
    return kind, tomlkit.dumps(document)


@given(changed())
def test_the_editor_schema_accepts_every_document_that_the_parser_accepts(made: tuple[str, str]) -> None:
    """The documents have values exchanged or left out."""
    kind, text = made
    if is_read(kind, text):
        assert problems(kind, text) == []


WRONG = [
    ("action", 'name = "send-email"', 'nmae = "send-email"'),
    ("action", 'name = "send-email"', ""),
    ("action", 'name = "send-email"', "name = 1"),
    ("action", 'name = "send-email"', 'name = "Send Email"'),
    ("action", 'version = "1.2.0"\nsource', 'version = "v1.2.0"\nsource'),
    ("action", 'version = "1.2.0"\nsource', 'version = "01.2.3"\nsource'),
    ("action", 'version = "1.2.0"\nsource', 'version = "latest"\nsource'),
    ("action", 'version = "1.2.0"\nsource', 'version = "^1.2.0"\nsource'),
    ("action", "send-email@1.2.0", "send-email"),
    ("action", "send-email@1.2.0", "../send-email@1.2.0"),
    ("action", '{name = "github://acme/mail"', '{name = "ftp://acme/mail"'),
    ("action", "sha256:bound-at-release", "sha256:abc"),
    ("action", '["send", "look"]', "[]"),
    ("action", '["send", "look"]', '["send", "send", "look"]'),
    ("action", '["send", "look"]', '["send", "look", "*"]'),
    ("action", '"send an email"', '" "'),
    ("action", 'type = "number"', 'type = "numbre"'),
    ("action", "min_length = 1", "min_length = -1"),
    ("action", 'enum = ["a", "b"]', "enum = []"),
    ("action", 'id = "send"', 'id = "Send it"'),
    ("action", 'op = "send"\nidem', 'op = "send-it"\nidem'),
    ("action", "idempotent = true", 'idempotent = "yes"'),
    ("action", 'expires_in = "10m"', 'expires_in = "10"'),
    ("action", "undo_window_s = 30", "undo_window_s = 3601"),
    ("action", 'render = {To = "a.b"}', "render = {}"),
    ("manifest", "[limits]", "[limit]"),
    ("manifest", 'version = "1.2.0"', ""),
    ("manifest", '"not_idempotent"', '"never"'),
    ("manifest", "a.example.com:443", "*:443"),
    ("manifest", "a.example.com:443", "localhost"),
    ("manifest", "a.example.com:443", "a.example.com:0"),
    ("manifest", "a.example.com:443", "A.example.com:443"),
    ("manifest", "a.example.com:443", "b.example.com:65535"),
    ("manifest", 'kind = "oauth2"', 'kind = "token"'),
    ("manifest", 'scope = "Send mail"', 'scope = ""'),
    ("manifest", '"wasi:cli/stdout@0.2.0"', '"wasi:filesystem/types"'),
    ("manifest", '["mail", "openid"]', '["mail openid"]'),
    ("manifest", "https://accounts.example.com/auth", "https://accounts.example.com/auth?x=1"),
    ("manifest", "memory_mb = 128", "memory_mb = 1025"),
    ("manifest", "timeout_s = 300", "timeout_s = 0"),
    ("manifest", "subprocess = true", "subprocess = 1"),
]


@pytest.mark.parametrize(("kind", "old", "new"), WRONG)
def test_mistakes_that_a_schema_can_express_are_refused_by_parser_and_schema(kind: str, old: str, new: str) -> None:
    """The mistakes are in keys, types, choices, bounds, and the grammar of names."""
    text = WHOLE_ACTION if kind == "action" else WHOLE_MANIFEST
    assert text.count(old) >= 1
    wrong = text.replace(old, new, 1)

    assert not is_read(kind, wrong)
    assert problems(kind, wrong) != []


def _fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Field]]:
    for key, field in schema.items():
        yield f"{path}{key}", field
        yield from _fields(field.fields, f"{path}{key}.")


@pytest.mark.parametrize(("name", "field"), [*_fields(ACTION), *_fields(CONNECTOR)])
def test_every_key_in_an_editor_schema_has_a_description(name: str, field: Field) -> None:
    """The key's examples and default fit its schema."""
    (told,) = shaped(json_schema({"key": field}, "one"))["properties"].values()

    assert "](" not in told["description"]
    for value in (*told.get("examples", ()), *([told["default"]] if "default" in told else ())):
        assert list(jsonschema.Draft202012Validator(told).iter_errors(value)) == []
    assert field.kind in (Kind.VALUE, *(Kind.TABLE,)) or "type" in told


def test_the_default_in_the_schema_is_the_default_of_the_parser() -> None:
    """A document with the default written out parses to the same value as one without the key."""
    text = WHOLE_ACTION.replace('expires_in = "10m"', "expires_in = 'DEFAULT'")
    default = ACTION["approval"].fields["expires_in"].default
    written = parse_action(f"+++\n{text.replace('DEFAULT', str(default))}\n+++\n", file="a", allow_placeholder=True)

    assert written.approval.expires_in_s == ApprovalRule().expires_in_s


@given(st.from_regex(FQN, fullmatch=True) | st.text("gthubla:/.-_@AZ09\u0430 ", max_size=24).map("github://a{}".format))
def test_the_schema_and_the_parser_have_the_same_grammar_of_full_names(text: str) -> None:
    """Editors use one expression; the parser checks part by part, for its messages."""
    try:
        is_name = str(Fqn.parse(text)) == text
    except ValueError:
        is_name = False

    assert (re.fullmatch(FQN, text) is not None) is is_name
