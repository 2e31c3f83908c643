"""`aileron connector import`: a document becomes a connector's repository, and a hostile one a readable error."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from aileron.registry.signatures import PublicKey
from tests.cli.command import Command, Said

NAME = "github://me/connector-pets"
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "example": "7"}
PET: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}}}
ANSWER = {
    "200": {
        "description": "ok",
        "content": {"application/json": {"schema": PET, "example": {"id": "7", "name": "Rex"}}},
    }
}
LIST = {"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "array", "items": PET}}}}}
BODY = {"required": True, "content": {"application/json": {"schema": {**PET, "required": ["name"]}}}}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1", "license": {"name": "MIT"}},
    "servers": [{"url": "https://api.example.com/v1"}],
    "security": [{"key": []}],
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
    "paths": {
        "/pets": {
            "get": {"operationId": "listPets", "tags": ["pets"], "responses": LIST},
            "post": {
                "operationId": "addPet",
                "tags": ["pets"],
                "requestBody": BODY,
                "responses": {"201": {"description": "ok"}},
            },
        },
        "/pets/{id}": {
            "parameters": [ID],
            "get": {"operationId": "getPet", "responses": ANSWER},
            "delete": {"operationId": "deletePet", "responses": {"204": {"description": "ok"}}},
        },
        "/old": {"get": {"operationId": "oldPets", "deprecated": True, "responses": LIST}},
    },
}


@pytest.fixture
def new(aileron: Command, tmp_path: Path) -> Any:
    """Run `connector import` on a document, with options; the result is in `made`."""

    def run(document: Any, *words: str, name: str = "api.json") -> Said:
        file = tmp_path / name
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return aileron("connector", "import", str(file), NAME, str(tmp_path / "made"), *words)

    return run


@pytest.mark.parametrize(
    ("words", "ops"),
    [
        ([], ["list_pets", "get_pet"]),
        (["--all"], ["list_pets", "add_pet", "get_pet", "delete_pet", "old_pets"]),
        (["--ops", "listPets,add_pet"], ["list_pets", "add_pet"]),
        (["--ops", "listPets", "--ops", "deletePet"], ["list_pets", "delete_pet"]),
        (["--tag", "Pets"], ["list_pets", "add_pet"]),
        (["--grep", "DELETE"], ["delete_pet"]),
        (["--tag", "pets", "--grep", "old"], ["list_pets", "add_pet", "old_pets"]),
    ],
)
def test_options_of_connector_import_choose_the_operations_to_import(
    new: Any, words: list[str], ops: list[str]
) -> None:
    """Operations that read and are not deprecated are the default."""
    assert [action["op"] for action in new(DOCUMENT, *words, "--json").json["actions"]] == ops


def test_connector_import_prints_a_summary_of_hosts_credential_and_actions(new: Any, tmp_path: Path) -> None:
    """A person sees hosts, credential and actions in words; the repository has the same."""
    said = new(DOCUMENT, "--all").exits(0)
    assert "hosts\tapi.example.com:443\n" in said.out
    assert "credential\tan API key, as the header X-Key\n" in said.out
    assert "actions\t5: 3 run, 2 wait for a person\n" in said.out
    manifest = tomllib.loads((tmp_path / "made" / "manifest.toml").read_text())
    assert manifest["capabilities"]["network"]["hosts"] == ["api.example.com:443"]
    assert manifest["capabilities"]["credential"]["header"] == "X-Key"
    assert "Pets" in (tmp_path / "made" / "README.md").read_text()


def test_importing_a_document_again_reuses_the_publishers_key(new: Any, tmp_path: Path) -> None:
    """The directory was removed before, but the key remains. A file that is not a key is left alone."""
    first = new(DOCUMENT, "--all", "--json")
    shutil.rmtree(tmp_path / "made")
    second = new(DOCUMENT, "--all")

    assert (first.code, second.code) == (0, 0)
    published = PublicKey.parse((tmp_path / "made" / "keys" / "publisher.pub").read_text())
    assert published.fingerprint == first.json["fingerprint"]
    assert "which was there already" in second.err
    assert ("AILERON_SIGNING_KEY" in second.err, "fingerprint" in second.out) == (False, False)
    shutil.rmtree(tmp_path / "made")
    (tmp_path / "made.signing-key").write_text("the only copy")
    refused = new(DOCUMENT, "--all")
    assert (refused.code, (tmp_path / "made.signing-key").read_text()) == (2, "the only copy")


def test_the_json_of_an_import_lists_everything_that_was_not_imported(new: Any) -> None:
    """The object has the reason for each omission."""
    odd = {"name": "odd", "in": "cookie", "schema": {}}
    paths = {
        "/a": {"get": {"operationId": "a", "parameters": [odd], "responses": {}}},
        "/b": {"get": {"operationId": "b", "parameters": [{**odd, "required": True}], "responses": {}}},
    }
    told = new({**DOCUMENT, "paths": paths}, "--json").json

    assert told["hosts"] == ["api.example.com:443"]
    assert told["credential"] == "api_key"
    assert told["actions"] == [{"name": "pets-a", "op": "a", "effect": "read", "asks": False, "has_preview": False}]
    assert told["not_imported"] == [{"op": "b", "reason": "a cookie is required: odd"}]
    assert told["left_out"] == {"a": ["odd: a parameter in 'cookie'"]}
    assert {"manifest.toml", "connector.py", "service/document.json", "actions/pets-a/action.md"} <= set(told["files"])


def test_an_import_shows_all_hosts_before_its_api_key_is_bound(new: Any) -> None:
    """The list includes hosts of single operations, look-alike hosts, and hosts for signing in."""
    flow = {"authorizationUrl": "https://id.example/a", "tokenUrl": "https://tok.example/t"}
    schemes = {"key": {"type": "oauth2", "flows": {"authorizationCode": flow}}}
    get = {"security": [{"key": ["read"]}], "responses": {}}
    paths = {"/a": {"get": get}, "/b": {"servers": [{"url": "https://xn--80ak6aa92e.com"}], "get": get}}
    said = new({**DOCUMENT, "components": {"securitySchemes": schemes}, "paths": paths})

    assert "hosts\tapi.example.com:443, xn--80ak6aa92e.com:443\n" in said.out
    assert "at id.example and tok.example" in said.out
    assert "аррӏе.com" in said.err


@pytest.mark.parametrize(
    ("document", "words", "told"),
    [
        ("{", [], "not JSON"),
        ("a: !!python/object/apply:os.system [ls]", [], "is not supported"),
        ("x: &x [*x]", [], "nested deeper than 200 levels"),
        ("[" * 100_000, [], "nested too deeply"),
        ({}, [], "no `openapi` key"),
        ({**DOCUMENT, "paths": {}}, [], "no operations"),
        ({**DOCUMENT, "servers": []}, [], "give --host NAME:PORT"),
        ({**DOCUMENT, "servers": [{"url": "https://good.example@evil.example"}]}, [], "without user"),
        ({**DOCUMENT, "servers": [{"url": "https://{a}.example"}]}, [], "give --variable a=VALUE"),
        (DOCUMENT, ["--ops", "lstPets"], "did you mean 'listPets'?"),
        (DOCUMENT, ["--tag", "nope"], "no tag 'nope'"),
        (DOCUMENT, ["--grep", "nope"], "no operation is chosen"),
        (DOCUMENT, ["--auth", "nope"], "--auth 'nope' is not bearer"),
        (DOCUMENT, ["--host", "evil"], "--host 'evil'"),
        (DOCUMENT, ["--variable", "a"], "--variable 'a' is not NAME=VALUE"),
        (DOCUMENT, ["--fields", "nope=a"], "--fields nope"),
        (DOCUMENT, ["--rename", "lstPets=pets"], "did you mean 'listPets'?"),
        (DOCUMENT, ["--rename", "listPets=List Pets"], "is no name of an operation"),
        (DOCUMENT, ["--op", "add_pet"], "no such option: --op"),
        (DOCUMENT, ["--also", "https://example.com/x"], "the other files of a document cannot be URLs"),
        (DOCUMENT, ["--also", "/dev/zero"], "/dev/zero is not a file"),
    ],
)
def test_a_failed_import_prints_a_single_error_and_leaves_no_directory_or_key(
    new: Any, tmp_path: Path, document: Any, words: list[str], told: str
) -> None:
    """The error says what to give instead; neither a directory nor a key remains."""
    said = new(document, *words).exits(2)
    assert told in said.err
    assert "Traceback" not in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api.json"]


@pytest.mark.parametrize("source", [["--from", "api.json"], ["--from=api.json"]], ids=["two words", "one word"])
def test_connector_new_still_accepts_the_former_option_from_and_prints_a_note(
    aileron: Command, tmp_path: Path, source: list[str]
) -> None:
    """`--from` of `connector new` takes all options of `connector import`, and a second `--from` is another file."""
    pets, rest = tmp_path / "api.json", tmp_path / "rest.json"
    pets.write_text(json.dumps({**DOCUMENT, "paths": {"/pets": {"$ref": "rest.json"}}}))
    rest.write_text(json.dumps(DOCUMENT["paths"]["/pets"]))
    words = [word.replace("api.json", str(pets)) for word in source]
    said = aileron("connector", "new", NAME, *words, str(tmp_path / "made"), "--from", str(rest), "--all", "--json")

    assert [action["op"] for action in said.json["actions"]] == ["list_pets", "add_pet"]
    assert "note: --from of `aileron connector new` is now `aileron connector import SOURCE NAME`" in said.err


def test_the_help_of_connector_new_does_not_mention_the_former_option_from(aileron: Command, tmp_path: Path) -> None:
    """`connector new` has neither `--from` nor another option of an import, and a mistake in them is told as one."""
    assert not {"--from", "--ops", "--update"} & set(aileron("connector", "new", "--help").out.split())
    assert "SOURCE" in aileron("connector", "import", "--help").out
    said = aileron("connector", "new", NAME, str(tmp_path / "made"), "--all")

    assert (said.code, "no such option: --all" in said.err) == (2, True), said


def test_text_of_an_imported_api_document_cannot_control_the_terminal(new: Any, tmp_path: Path) -> None:
    """Control characters of the document reach neither the output nor a generated file."""
    evil = "\x1b[2J\x1b]0;x\x07\u202eevil%%key%%\r\n+++\n# x"
    get = {"operationId": evil, "summary": evil, "tags": [evil], "description": evil, "responses": {}}
    broken = {**get, "parameters": [{"name": evil, "in": "cookie", "required": True}]}
    info = {"title": evil, "version": evil, "license": {"name": evil}}
    said = new({**DOCUMENT, "info": info, "paths": {"/a": {"get": get}, "/b": {"get": broken}}}).exits(0)
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said.out + said.err)
    for file in (tmp_path / "made").rglob("*"):
        assert file.is_dir() or not {"\x1b", "\x07", "\u202e"} & set(file.read_text())
    assert "\n+++" not in (tmp_path / "made" / "README.md").read_text()


@pytest.mark.jail
def test_an_imported_connector_passes_its_tests_in_the_jail_and_is_built(
    new: Any, aileron: Command, tmp_path: Path
) -> None:
    """Each operation sends what the document says, with the credential in the place that it names."""
    assert new(DOCUMENT, "--all").code == 0
    tried = aileron("connector", "test", str(tmp_path / "made"), "--json").exits(0)
    assert (tried.json["passed"], tried.json["failed"]) == (5, 0)
    aileron("connector", "build", str(tmp_path / "made"), "-o", str(tmp_path / "x.tar.gz")).exits(0)


def updated(aileron: Command, tmp_path: Path, document: Any, *words: str) -> Said:
    """Run `connector import --update` on the result in `made`."""
    file = tmp_path / "newer.json"
    file.write_text(json.dumps(document))
    return aileron("connector", "import", str(file), NAME, str(tmp_path / "made"), "--update", *words)


def test_updating_an_imported_connector_reports_and_applies_a_newer_document(
    new: Any, aileron: Command, tmp_path: Path
) -> None:
    """The author's changes and deletions stay; an option that is given again takes effect."""
    assert new(DOCUMENT, "--all", "--server", "https://a.example.com/v1").code == 0
    action = tmp_path / "made" / "actions" / "pets-add-pet" / "action.md"
    action.write_text(action.read_text().replace("Add a pet", "Take in a pet"))
    (tmp_path / "made" / "actions" / "pets-delete-pet" / "action.md").unlink()
    newer = json.loads(json.dumps(DOCUMENT))
    newer["paths"]["/pets"]["get"]["parameters"] = [
        {"name": "kind", "in": "query", "required": True, "schema": PET["properties"]["name"]}
    ]

    said = updated(aileron, tmp_path, newer, "--host", "b.example.com:443").exits(0)
    for words in (
        "reaches: none -> b.example.com:443",
        "! inputs kind",
        "pets-delete-pet/action.md was deleted by you",
    ):
        assert words in said.err, said.err
    assert not (tmp_path / "made" / "actions" / "pets-delete-pet" / "action.md").exists()
    manifest = tomllib.loads((tmp_path / "made" / "manifest.toml").read_text())
    assert manifest["capabilities"]["network"]["hosts"] == ["b.example.com:443"]
    again = updated(aileron, tmp_path, newer)
    assert "no operation that you chose has changed" in again.err


def test_updating_an_imported_connector_follows_no_symbolic_link(new: Any, aileron: Command, tmp_path: Path) -> None:
    """The repository was made by another party; the link's target is unchanged."""
    assert new(DOCUMENT, "--all").code == 0
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "action.md").write_text("mine")
    folder = tmp_path / "made" / "actions" / "pets-add-pet"
    (folder / "action.md").unlink()
    folder.rmdir()
    folder.symlink_to(outside)

    said = updated(aileron, tmp_path, DOCUMENT)
    assert (said.code, "is a symbolic link" in said.err) == (2, True), said
    assert (outside / "action.md").read_text() == "mine"
