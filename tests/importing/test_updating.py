"""Updating from a newer document: each change is reported with its weight, and the author's edits are kept."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from aileron.actions.manifest import parse_action
from aileron.importing.action_merging import merged_action
from aileron.importing.found import Described, described
from aileron.importing.reading import DocumentError, read_all
from aileron.importing.record import RECORD, Choices, chosen_now, parse_record
from aileron.importing.repository import make
from aileron.importing.updating import Update, chosen_again, compared
from aileron.model.names import Fqn, HostPort

NAME = Fqn.parse("github://acme/connector-notes")
NOTE = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}}
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "maxLength": 500}}}


def document() -> dict[str, Any]:
    """Return a document of notes: list, add, change."""
    answer = {
        "200": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}}}}
    }
    body = {"required": True, "content": {"application/json": {"schema": copy.deepcopy(TEXT)}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Notes", "version": "1"},
        "servers": [{"url": "https://notes.example"}],
        "paths": {
            "/notes": {
                "get": {"operationId": "list_notes", "summary": "List notes", "parameters": [], "responses": answer},
                "post": {"operationId": "add_note", "summary": "Add a note", "requestBody": body, "responses": answer},
            },
            "/notes/{id}": {
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "put": {"operationId": "change_note", "requestBody": copy.deepcopy(body), "responses": answer},
            },
        },
        "components": {"schemas": {"Note": copy.deepcopy(NOTE)}},
    }


def read(values: dict[str, Any]) -> Described:
    """Read the document as the command does."""
    return described(read_all("notes.json", {"notes.json": json.dumps(values).encode()}))


def imported(values: dict[str, Any]) -> dict[str, bytes]:
    """Import all operations."""
    found = read(values)
    return make(found, found.operations, NAME, Choices()).files


def updated(files: dict[str, bytes], values: dict[str, Any]) -> Update:
    """Update to a newer document, with the same operations."""
    found, record = read(values), parse_record(files[RECORD])
    operations = chosen_again(found, record)
    return compared(make(found, operations, NAME, record.choices), found, operations, record, files)


ADD = "actions/notes-add-note/action.md"
LIST = "actions/notes-list-notes/action.md"
CHANGE = "actions/notes-change-note/action.md"


def told(done: Update) -> dict[str, dict[str, bool]]:
    """Return each operation's changes, and whether each widens."""
    return {
        operation.op: {change.where: change.widens for change in operation.changes} for operation in done.operations
    }


def test_an_operation_name_chosen_by_the_author_is_kept_by_an_update() -> None:
    """The import's record has the author's name of an operation. Another one chosen later is listed as a change."""
    found = read(document())
    files = make(found, found.operations, NAME, Choices(names={"add_note": "write_note"})).files
    path = "actions/notes-write-note/action.md"
    files[path] = files[path].replace(b'effect = "create"', b'effect = "send"')
    newer = document()
    newer["paths"]["/notes"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["text"][
        "maxLength"
    ] = 9
    done = updated(files, newer)
    made = imported(document())
    made[ADD] = made[ADD].replace(b'effect = "create"', b'effect = "send"')
    record = parse_record(made[RECORD])
    renamed = msgspec.structs.replace(record, choices=chosen_now(record.choices, Choices(names={"add_note": "note"})))
    operations = found.operations
    again = compared(make(found, operations, NAME, renamed.choices), found, operations, renamed, made)

    assert updated(files, document()).is_empty
    assert (done.conflicts, b'effect = "send"' in done.files[path], b"max_length = 9" in done.files[path]) == (
        (),
        True,
        True,
    )
    assert {operation.op: operation.reason for operation in again.operations} == {
        "note": "",
        "add_note": "you gave it another name",
    }
    assert again.kept == (ADD,)


def query(**more: Any) -> dict[str, Any]:
    """Return four optional parameters with changes."""
    schemas = {"color": {"maxLength": 20}, "size": {"maxLength": 20}, "shape": {"maxLength": 20}, "age": {}} | more
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": schema.pop("required", False),
                "description": f"The {name}.",
                "schema": {"type": "string", **schema},
            }
            for name, schema in schemas.items()
        ]
    }


EDITS = [
    (b'summary = "List notes"', b'summary = "See the notes[ of {color}]"'),
    (b'"The color."', b'"A color, such as red."'),
    (
        b'description = "The shape."\nrequired = false\nmax_length = 20',
        b'description = "A shape."\nrequired = false\nmax_length = 5',
    ),
    (
        b'[[inputs]]\nname = "size"\ntype = "string"\ndescription = "The size."\nrequired = false\nmax_length = 20\n\n',
        b"",
    ),
]


def edited(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with the author's words, one input less, and a smaller bound."""
    text = files[LIST]
    for before, after in EDITS:
        assert text.count(before) == 1, (before, text)
        text = text.replace(before, after)
    return {**files, LIST: text}


def of_list(**more: Any) -> dict[str, Any]:
    """Return the document with these parameters of the list."""
    changed = document()
    changed["paths"]["/notes"]["get"] |= query(**more)
    return changed


def test_inputs_edited_by_the_author_are_merged_with_the_update_by_name() -> None:
    """A bound beside an edited description, other words and a new input do not conflict, and the author's words stay."""
    files = edited(imported(of_list()))
    newer = of_list(color={"maxLength": 9}, size={"maxLength": 9}, loud={})
    newer["paths"]["/notes"]["get"]["summary"] = "Enumerate notes"
    newer["paths"]["/notes"]["get"]["parameters"][0]["description"] = "Its color."
    done = updated(files, newer)
    text = done.files[LIST].decode()

    assert done.conflicts == ()
    assert 'summary = "See the notes[ of {color}]"' in text
    assert 'description = "A color, such as red."\nrequired = false\nmax_length = 9\n' in text
    assert [line for line in text.splitlines() if line.startswith("name = ")][2:] == [
        f'name = "{name}"' for name in ("color", "shape", "age", "loud")
    ]
    assert parse_action(text, file="x", allow_placeholder=True).name == "notes-list-notes"
    assert {"inputs color: description", "inputs loud"} <= set(told(done)["list_notes"])


def test_a_removed_input_returns_if_it_becomes_required() -> None:
    """An input that the author removed stays out while it is optional."""
    files = edited(imported(of_list()))
    optional, required = (updated(files, of_list(size={"maxLength": 30, **more})) for more in ({}, {"required": True}))

    assert LIST not in optional.files
    assert b'name = "size"' in required.files[LIST]


def test_only_a_key_that_both_author_and_document_changed_is_a_conflict() -> None:
    """The file marks both values like a merge conflict."""
    done = updated(edited(imported(of_list())), of_list(shape={"maxLength": 9}))

    assert done.conflicts == (LIST,)
    assert b"<<<<<<< yours\nmax_length = 5\n=======\nmax_length = 9\n>>>>>>> published\n" in done.files[LIST]


def test_updating_from_the_same_document_changes_no_file() -> None:
    """The update writes, removes and keeps no file."""
    files = imported(document())
    done = updated(files, document())

    assert (done.is_empty, done.files, done.removed, done.kept) == (True, {}, (), ())


def test_an_update_reports_for_each_change_whether_it_widens() -> None:
    """A new required input and a higher length limit widen; a lower limit and a changed response do not."""
    newer = document()
    newer["paths"]["/notes"]["get"]["parameters"] = [
        {"name": "author", "in": "query", "required": True, "schema": {"type": "string"}}
    ]
    newer["paths"]["/notes"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["text"][
        "maxLength"
    ] = 900
    newer["paths"]["/notes/{id}"]["put"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["text"][
        "maxLength"
    ] = 9
    newer["components"]["schemas"]["Note"]["properties"]["author"] = {"type": "string"}

    found = told(updated(imported(document()), newer))
    assert found["list_notes"] == {"summary": True, "inputs author": True, "answer": False}
    assert found["add_note"] == {"inputs text: rule": True, "answer": False}
    assert found["change_note"] == {"inputs text: rule": False, "answer": False}


def test_a_changed_host_or_credential_is_reported_once_as_a_change_of_the_connector() -> None:
    """They are reported once, in the words that a consent uses."""
    newer = document()
    newer["servers"] = [{"url": "https://other.example"}]
    newer["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    newer["security"] = [{"key": []}]

    done = updated(imported(document()), newer)
    assert {(change.where, change.before, change.after, change.widens) for change in done.connector} >= {
        ("reaches", None, "other.example:443", True),
        ("reaches", "notes.example:443", None, False),
    }
    assert any(change.where == "credential" and change.widens for change in done.connector)


def test_the_file_of_a_removed_operation_is_deleted_unless_the_author_changed_it() -> None:
    """The test has an untouched file and one that the author edited."""
    newer = document()
    del newer["paths"]["/notes/{id}"]
    files = imported(document())
    mine = {**files, CHANGE: files[CHANGE].replace(b"Change note", b"Correct a note")}

    done, kept = updated(files, newer), updated(mine, newer)
    assert (done.removed, done.kept) == ((CHANGE,), ())
    assert (kept.removed, kept.kept) == ((), (CHANGE,))
    assert [(operation.op, operation.kind, operation.reason) for operation in done.operations] == [
        ("change_note", "removed", "the document no longer has it")
    ]


def test_an_operation_that_can_no_longer_be_imported_is_removed_with_the_reason() -> None:
    """The reason is the one that a first import would give."""
    newer = document()
    newer["paths"]["/notes"]["get"]["parameters"] = [
        {"name": "session", "in": "cookie", "required": True, "schema": {"type": "string"}}
    ]

    (gone,) = updated(imported(document()), newer).operations
    assert (gone.op, gone.kind, gone.reason) == ("list_notes", "removed", "a cookie is required: session")


def test_changes_of_the_author_and_of_the_document_are_merged() -> None:
    """Each line was changed on one side only. The next update's merge base is the newer file."""
    files = imported(document())
    mine = {**files, ADD: files[ADD].replace(b'summary = "Add a note: {text}"', b'summary = "Write {text} down"')}
    newer = document()
    newer["paths"]["/notes"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["text"][
        "maxLength"
    ] = 100

    done = updated(mine, newer)
    assert done.conflicts == ()
    assert b'summary = "Write {text} down"' in done.files[ADD]
    assert b"max_length = 100" in done.files[ADD]
    again = updated({**mine, **done.files}, newer)
    assert (again.is_empty, again.files) == (True, {})


def test_lines_that_both_author_and_document_changed_are_marked_as_a_conflict() -> None:
    """The author chooses; no text is lost."""
    files = imported(document())
    mine = {**files, "manifest.toml": files["manifest.toml"].replace(b"# Made from Notes 1", b"# Made of Notes 1")}
    newer = document()
    newer["info"]["title"] = "Memos"

    done = updated(mine, newer)
    assert done.conflicts == ("manifest.toml",)
    for line in (b"# Made of Notes 1", b"# Made from Memos 1", b"<<<<<<<", b">>>>>>>"):
        assert line in done.files["manifest.toml"]


def test_a_summary_that_the_author_edited_is_kept_and_the_document_s_new_summary_is_reported() -> None:
    """The summary is what an approver reads, so the document must not change it."""
    files = imported(document())
    mine = {**files, ADD: files[ADD].replace(b'summary = "Add a note: {text}"', b'summary = "Write {text} down"')}
    newer = document()
    newer["paths"]["/notes"]["post"]["summary"] = "Create a note"
    done = updated(mine, newer)

    assert done.conflicts == ()
    assert b'summary = "Write {text} down"' in done.files[ADD]
    assert "summary" in told(done)["add_note"]


def test_an_action_that_the_author_deleted_is_not_created_again() -> None:
    """The update lists it, and updates the others as usual."""
    files = imported(document())
    mine = {path: data for path, data in files.items() if path != CHANGE}
    newer = document()
    newer["paths"]["/notes"]["post"]["summary"] = "Create a note"

    done = updated(mine, newer)
    assert (done.deleted, CHANGE in done.files, ADD in done.files) == ((CHANGE,), False, True)


def test_a_newly_chosen_host_replaces_an_earlier_server() -> None:
    """The three ways to choose a host exclude one another. Variables and fields add up."""
    before = Choices(server="https://a.example/v1", variables={"a": "1"}, fields={"x": ("id",)})
    now = chosen_now(before, Choices(host=HostPort.parse("b.example:443"), variables={"b": "2"}))

    assert (now.server, str(now.host), now.is_host_open) == (None, "b.example:443", False)
    assert (now.variables, now.fields) == ({"a": "1", "b": "2"}, {"x": ("id",)})
    assert chosen_now(now, Choices(is_host_open=True)).host is None
    assert chosen_now(before, Choices()) == before


def test_new_operations_are_counted_but_not_imported() -> None:
    """The author has to choose them."""
    newer = document()
    newer["paths"]["/export"] = {"get": {"operationId": "export", "responses": {}}}

    done = updated(imported(document()), newer)
    assert (done.not_chosen, told(done)) == (1, {})


WITHOUT_MANIFEST = b'{"version": 1, "document_hash": "", "operations": [], "choices": {}, "texts": {}}'
OUTSIDE = WITHOUT_MANIFEST.replace(b'"texts": {}', b'"texts": {"manifest.toml": "", "../a": ""}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        WITHOUT_MANIFEST,
        OUTSIDE,
        b'{"version": 2}',
        b'{"version": 1, "document_hash": 7}',
        b"[" * 10_000,
    ],
    ids=repr,
)
def test_an_invalid_record_is_refused(data: bytes) -> None:
    """The record is a file in a repository that somebody else may have made."""
    with pytest.raises(DocumentError, match=r"import\.json"):
        parse_record(data)


@pytest.mark.parametrize(("now", "conflicts"), [("read", 0), ("delete", 1)])
def test_an_update_of_an_effect_conflicts_only_if_it_differs_from_the_effect_that_the_author_wrote(
    now: str, conflicts: int
) -> None:
    """The author marked a POST as a read and removed its approval; the document now agrees. Other effects conflict."""
    head, gate = '+++\nname = "a"\n\n[[execute]]\nid = "call"\nidempotent = ', "\n\n[approval]\nrequired = true"
    end = "\n+++\n\nWords.\n"
    base = f'{head}false\neffect = "create"{gate}{end}'
    mine = f'{head}true\neffect = "read"{end}'
    done = merged_action(base, mine, f'{head}false\neffect = "{now}"{gate}{end}')

    assert done.conflicts == conflicts
    assert (done.text == mine) is (conflicts == 0)
