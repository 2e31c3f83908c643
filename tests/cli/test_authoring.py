"""`aileron action new`, `validate` and `schema`: creating an action file, and the schema for an editor."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import jsonschema
import msgspec
import pytest

from aileron.actions.fitting import check_action
from aileron.actions.manifest import SCHEMA, parse_action
from aileron.cli.commands.action_author import new_text
from aileron.cli.problem import Problem
from aileron.model.manifest import ActionFile, ConnectorManifest, Effect
from aileron.model.names import Fqn
from aileron.registry.connector_build import build
from aileron.registry.content import ContentStore
from aileron.registry.operations import recorded
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon

PIN = "sha256:" + "ab" * 32
MAIL = {"name": "github://acme/mail", "version": "1.2.0", "hash": PIN}


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in a temporary directory, where files without a given path are written."""
    monkeypatch.chdir(tmp_path)


def test_a_new_action_file_is_valid_at_once(aileron: Command, tmp_path: Path) -> None:
    """The command starts no daemon; unknown values are placeholders, and the command names them."""
    said = aileron("action", "new", "send-email")
    action = parse_action((tmp_path / "send-email.md").read_text("utf-8"), file="x", allow_placeholder=True)

    assert (said.code, said.out) == (0, "send-email.md\n")
    assert "fill in the connector, its version; then run: aileron action add send-email.md" in said.err
    assert (action.approval.required, action.steps[0].op, action.summary) == (True, "send_email", "Send email {text}")
    assert aileron("action", "validate", "send-email.md").out == "send-email.md: ok, send-email 0.1.0\n"
    assert not (aileron.home / "run").exists()


def test_action_new_copies_version_and_hash_of_the_installed_connector(
    fake: FakeDaemon, aileron: Command, tmp_path: Path
) -> None:
    """This needs exactly one match; several versions or an unknown one leave a placeholder."""
    fake.connectors = [MAIL, {**MAIL, "name": "github://acme/mail2"}]
    known = aileron("action", "new", "a", "--connector", "github://acme/mail", "--op", "send_email")
    action = parse_action((tmp_path / "a.md").read_text("utf-8"), file="a.md")

    assert [str(connector.name) + connector.version + connector.hash for connector in action.connectors] == [
        "github://acme/mail1.2.0" + PIN
    ]
    assert (action.steps[0].op, action.connectors[0].capabilities) == ("send_email", ("send_email",))
    assert "still" not in known.err

    fake.connectors.append({**MAIL, "version": "1.3.0"})
    for name, wanted in (("b", "github://acme/mail"), ("c", "github://acme/mail@9.0.0")):
        assert "its version" in aileron("action", "new", name, "--connector", wanted, "--op", "x").err
        assert 'hash = "sha256:bound-at-release"' in (tmp_path / f"{name}.md").read_text("utf-8")
    assert aileron("action", "new", "d", "--connector", "github://acme/mail@1.3.0").code == 0
    assert 'version = "1.3.0"' in (tmp_path / "d.md").read_text("utf-8")


def test_action_new_takes_the_connector_that_has_the_named_operation(
    fake: FakeDaemon, aileron: Command, tmp_path: Path
) -> None:
    """The connector with that operation is used; approval is required, whatever the name suggests, unless the author says that it
    only reads.
    """
    note = {"name": "note_id", "types": ["integer"], "required": True}
    operations = [{"name": "list_notes"}, {"name": "delete_note", "parameters": [note]}]
    fake.connectors = [{**MAIL, "operations": operations}, {**MAIL, "name": "github://acme/other"}]
    for words in (("list-notes",), ("see-notes", "--op", "list_notes", "--effect", "read"), ("delete-note",)):
        assert aileron("action", "new", *words).code == 0
    asked, read, deleted = (
        parse_action((tmp_path / f"{name}.md").read_text("utf-8"), file="x")
        for name in ("list-notes", "see-notes", "delete-note")
    )

    assert {str(action.connectors[0].name) + action.connectors[0].hash for action in (asked, read, deleted)} == {
        MAIL["name"] + PIN
    }
    assert [
        (action.steps[0].effect, action.steps[0].idempotent, action.approval.required)
        for action in (asked, read, deleted)
    ] == [
        (Effect.READ, False, True),
        (Effect.READ, True, False),
        (Effect.DELETE, False, True),
    ]
    assert (deleted.summary, deleted.inputs[0].description) == (
        "Delete note {note_id}",
        "The note id that delete_note takes.",
    )
    assert "…" not in deleted.text
    fake.connectors.append({**MAIL, "name": "github://acme/second", "operations": operations})
    assert "fill in the connector" in aileron("action", "new", "list-notes", "-o", "b.md").err


def test_action_new_overwrites_no_file(aileron: Command, tmp_path: Path) -> None:
    """A symbolic link's target stays too; another output name works."""
    (tmp_path / "a.md").write_text("mine")
    os.symlink(tmp_path / "elsewhere", tmp_path / "link.md")

    for words in (("a",), ("b", "-o", "a.md"), ("b", "-o", "link.md")):
        said = aileron("action", "new", *words).exits(2)
        assert "already exists" in said.err
    assert (tmp_path / "a.md").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
    assert aileron("action", "new", "b", "--output", "c.md").out == "c.md\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("Send Email",), "invalid action name 'Send Email': use lower-case letters"),
        (("../a",), "invalid action name '../a'"),
        (('a"\nb',), "use lower-case letters"),
        (('a" # ',), "use lower-case letters"),
        (("2nd-mail",), "'2nd-mail' cannot be an operation's name"),
        (("a", "--op", 'x"] # '), "use a lower-case letter"),
        (("a", "--op", "send-email"), "invalid operation 'send-email'"),
        (("a", "--connector", "acme/mail"), "'acme/mail' has no known scheme"),
        (("a", "--connector", "github://acme/mail@latest"), "'latest' is not a SemVer version"),
        (("a", "-o", "/nowhere/a.md"), "No such file or directory"),
    ],
)
def test_action_new_writes_no_invalid_action_file(
    aileron: Command, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    """The command refuses invalid words before a file exists, as `validate` would refuse the file."""
    said = aileron("action", "new", *words)

    assert (said.code, list(tmp_path.glob("*.md"))) == (2, [])
    assert told in said.err


HEAD = """\
import datetime
from typing import Annotated, Any, Literal
import msgspec
from aileron_connector import op
"""
HINTS = [
    *(
        "str",
        "int",
        "float",
        "bool",
        "bytes",
        "object",
        "Any",
        "datetime.date",
        "str | int",
        "int | None",
        "bool | list[int]",
    ),
    *(
        "dict",
        "dict[str, Any]",
        "dict | None",
        "list",
        "tuple",
        "set[str]",
        "list[str]",
        "list[dict]",
        "list[int | None]",
    ),
    *(
        "list[None]",
        "list[list[str]]",
        "list[str] | dict",
        "Literal['a', 'ü\\x22\\\\']",
        "Literal[1, 2]",
        "Literal['a', 3, None]",
    ),
    "Literal['${args.x}', 'b']",
    *(
        f"Annotated[{kind}, msgspec.Meta({rule})]"
        for kind in ("int", "float", "int | None")
        for rule in ("ge=1", "gt=3, lt=7", "ge=-2, le=0", "ge=5, le=2", "le=-9007199254740991")
    ),
    *("Annotated[float, msgspec.Meta(ge=0.25, le=0.75)]", "Annotated[float, msgspec.Meta(le=1e-320)]"),
    *(
        f"Annotated[{kind}, msgspec.Meta({rule})]"
        for kind in ("str", "str | None", "str | int", "list[str]")
        for rule in ("min_length=3", "max_length=0", "min_length=2, max_length=900", "min_length=5, max_length=2")
    ),
]


def written(signature: str) -> ActionFile:
    """Return the action that `new` makes of an operation with this signature, after the checks of `validate`."""
    operations = recorded({"connector.py": f"{HEAD}@op\ndef go({signature}): pass\n".encode()})
    assert operations is not None
    text = new_text("a", "go", operations[0], connector=MAIL["name"], version=MAIL["version"], pin=PIN)
    action = parse_action(text, file="a.md")
    manifest = ConnectorManifest(name=Fqn.parse(MAIL["name"]), version=MAIL["version"], operations=operations)
    check_action(action, lambda _pin: manifest, file="a.md")
    return action


@pytest.mark.parametrize("hint", HINTS)
def test_an_action_created_for_any_parameter_annotation_can_be_added(hint: str) -> None:
    """Each type annotation is tried as a required parameter, as an optional one, and among several."""
    assert [spec.type for spec in written(f"x: {hint}").inputs] == [
        spec.type for spec in written(f"x: {hint} = ...").inputs
    ]
    both = written(f"x: {hint}, w: str = '', *, y: {hint} = ..., z: {hint}, **rest")

    assert [(spec.name, spec.required) for spec in both.inputs] == [
        ("x", True),
        ("z", True),
        ("w", False),
        ("y", False),
    ]
    assert both.steps[0].inputs == {spec.name: f"${{args.{spec.name}}}" for spec in both.inputs}


@pytest.mark.parametrize("name", ["_x", "camelCase", "X"])
@pytest.mark.parametrize(
    "hint", [hint for hint in HINTS if "ge=5, le=2" not in hint and "min_length=5, max_length=2" not in hint]
)
def test_a_required_parameter_that_cannot_be_an_input_gets_a_placeholder_value(name: str, hint: str) -> None:
    """The value has the right type, and the author edits it; a parameter of this kind that is optional is left out."""
    needed = written(f"{name}: {hint}, to: str")

    assert [spec.name for spec in needed.inputs] == ["to"]
    assert set(needed.steps[0].inputs) == {"to", name}
    assert set(written(f"to: str, {name}: {hint} = ...").steps[0].inputs) == {"to"}


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("x: None", "it accepts only null, which TOML does not have"),
        ("_x: None", "it accepts only null, which TOML does not have"),
        ("_x: Annotated[int, msgspec.Meta(ge=5, le=2)]", "no accepted value is known"),
        ("_x: Annotated[str, msgspec.Meta(min_length=100000)]", "no accepted value is known"),
        ("_x: Literal['${']", "no accepted value is known"),
    ],
)
def test_action_new_refuses_a_required_parameter_that_no_action_file_can_provide(signature: str, why: str) -> None:
    """The written file could not be added. A parameter of this kind that is optional is left out."""
    with pytest.raises(Problem) as refused:
        written(signature)

    assert "which an action file cannot provide" in str(refused.value)
    assert refused.value.why == why
    assert written(f"{signature} = None").inputs == ()


def test_an_action_for_an_installed_operation_is_valid(fake: FakeDaemon, aileron: Command, tmp_path: Path) -> None:
    """The program reads the recorded operations of a built connector; an operation that cannot be called leaves no file."""
    source = tmp_path / "mail"
    source.mkdir()
    (source / "manifest.toml").write_text(f'[connector]\nname = "{MAIL["name"]}"\nversion = "1.2.0"\n')
    (source / "connector.py").write_text(
        f"{HEAD}@op\ndef go(camelCase: int, x: dict, y: list[int | None], z: list[str] = []): pass\n"
        "@op\ndef never(x: None): pass\n"
    )
    built, store = build(source), ContentStore(aileron.home / "connectors")
    pin = store.put(built.connector, built.manifest)
    fake.connectors = [{**MAIL, "hash": pin.hash, "operations": msgspec.to_builtins(store.manifest(pin).operations)}]

    begun = aileron("action", "new", "a", "--connector", MAIL["name"], "--op", "go")
    assert begun.out == "a.md\n", begun
    assert aileron("action", "validate", "a.md").out == "a.md: ok, a 0.1.0\n"

    refused = aileron("action", "new", "b", "--connector", MAIL["name"], "--op", "never")
    assert (refused.code, (tmp_path / "b.md").exists()) == (2, False)
    assert "operation 'never' needs 'x', which an action file cannot provide" in refused.err


def test_the_action_schema_accepts_the_file_that_action_new_writes(aileron: Command, tmp_path: Path) -> None:
    """The schema is printed as JSON; --manifest prints the manifest's."""
    aileron("action", "new", "send-email")
    frontmatter = (tmp_path / "send-email.md").read_text("utf-8").split("+++\n")[1]
    found = aileron("action", "schema").json

    assert list(found["properties"]) == list(SCHEMA)
    assert found["properties"]["inputs"]["items"]["properties"]["type"]["enum"][:2] == ["string", "integer"]
    assert list(jsonschema.Draft202012Validator(found).iter_errors(tomllib.loads(frontmatter))) == []
    assert aileron("action", "schema", "--manifest").json["required"] == ["connector"]
