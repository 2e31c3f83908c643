"""Two real servers that describe themselves: imported, bound and used as a person does, through the daemon and the jail.

Effects are checked where they matter: at the server, over HTTP, with no Aileron in between. Decisions are signed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.person import SIGN, at_terminal, flat
from tests.documents.desk import CHANGE, DELETE, Desk, desk
from tests.documents.install import Servers
from tests.documents.real_servers import SECRET, jupyter, kinto

pytestmark = pytest.mark.jail
YES: Final = ("leave it waiting: ", "y")
BUCKET: Final = "/v1/buckets/notes"
RECORD: Final = f"{BUCKET}/collections/list/records/one"
WHERE: Final = ("bucket_id=notes", "collection_id=list")


@pytest.fixture(scope="module")
def records(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Return a home with Kinto's records, imported from the document that Kinto answers at its URL."""
    with kinto(servers) as server:
        source = f"http://{server.host}{server.document}"
        with desk(server, "kinto", tmp_path_factory.mktemp("k"), source, "basic") as made:
            for path, body in ((BUCKET, None), (f"{BUCKET}/collections/list", None), (RECORD, {"text": "Call Jo"})):
                assert server.asked("PUT", path, {"data": body or {}})[0] == 201
            yield made


@pytest.fixture(scope="module")
def files(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Return a home with the files of a Jupyter server.

    Its document needs the token, so it is imported from a file, and does not say where the server is.
    """
    folder = tmp_path_factory.mktemp("j")
    (folder / "root").mkdir()
    (folder / "root" / "shopping.txt").write_text("milk\n")
    with jupyter(servers, folder / "root") as server:
        (folder / "spec.yaml").write_bytes(server.described())
        options = ("--host", server.host, "--auth", "bearer")
        with desk(server, "jupyter", folder, str(folder / "spec.yaml"), "api_key", *options) as made:
            yield made


def test_records_are_read_without_approval(records: Desk) -> None:
    """The agent never has the password that reads them."""
    said = records.must("run", "kinto-get-records", *WHERE)

    assert [record["text"] for record in said.json["data"]] == ["Call Jo"]
    assert SECRET not in said.out + said.err


def test_a_denied_deletion_leaves_the_record(records: Desk) -> None:
    """A deletion that is still pending has no effect either."""
    asked = records.asked("kinto-delete-record", *WHERE, "id=one")
    waited, _ = records.server.asked("GET", RECORD)
    said = at_terminal(records.aileron, "deny", asked, "--reason", "still needed", answers=[SIGN])

    assert said.code == 0, said
    assert (waited, records.server.asked("GET", RECORD)[0]) == (200, 200)
    shown = records.must("approval", "show", asked).out
    assert "status\tdenied" in shown
    assert "Delete record" in shown


def test_a_change_is_approved_after_its_current_state_is_shown(records: Desk) -> None:
    """The card shows the current record beside the new one, and the server has what was approved."""
    asked = records.asked("kinto-update-record", *WHERE, "id=one", 'data={"text": "Call Jane"}')
    said = at_terminal(records.aileron, "approve", asked, answers=CHANGE)

    assert said.code == 0, said
    assert "Call Jo" in said.out
    assert "Call Jane" in said.out
    assert records.server.asked("GET", RECORD)[1]["data"]["text"] == "Call Jane"


def test_updating_from_a_newer_document_that_allows_more_needs_consent(records: Desk, tmp_path: Path) -> None:
    """The document has another host, an input without its pattern, and one more required input. `--update` and each
    install say so.
    """
    document = json.loads(records.server.described())
    document["host"] = "localhost:9"
    delete = document["paths"]["/buckets/{bucket_id}/collections/{collection_id}/records/{id}"]["delete"]
    for parameter in delete["parameters"]:
        parameter.pop("pattern", None)
    delete["parameters"].append({"name": "reason", "in": "query", "type": "string", "required": True})
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(document))
    said = records.must("connector", "import", str(newer), records.connector, str(records.sources), "--update")

    assert "the connector (more than before)" in said.err
    assert "! reaches: none -> localhost:9\n" in said.err
    assert "changed: delete_record (more than before)" in said.err
    assert "! inputs reason: none -> " in said.err
    assert "! inputs if_match: rule: " in said.err
    installed = at_terminal(
        records.aileron, "connector", "install", str(records.sources), "--replace", answers=[YES, SIGN]
    )
    assert installed.code == 0, installed
    assert "goes to localhost:9 " in flat(installed)
    action = str(records.sources / "actions" / "kinto-delete-record" / "action.md")
    scripted = records.aileron("action", "add", "--force", action)
    added = at_terminal(records.aileron, "action", "add", "--force", action, answers=[YES, SIGN])

    assert (scripted.code, added.code) == (75, 0), (scripted, added)
    assert "allows more than you agreed to" in flat(added)
    assert "! ALLOWS MORE: inputs reason: new" in flat(added)
    assert '! ALLOWS MORE: inputs if_match: rule: {"pattern": ' in flat(added)


def test_files_are_read_without_approval(files: Desk) -> None:
    """The result has the file's name and content."""
    said = files.must("run", "jupyter-get-api-contents-path", "path=shopping.txt")

    assert (said.json["name"], said.json["content"]) == ("shopping.txt", "milk\n")


def test_a_file_is_created_only_after_approval(files: Desk) -> None:
    """The folder does not have the file after a denied call."""
    words = ("jupyter-put-api-contents-path", "path=plan.txt", "type=file", "format=text", "content=rest\n")
    asked = files.asked(*words)
    refused = at_terminal(files.aileron, "deny", asked, "--reason", "not now", answers=[SIGN])
    denied, _ = files.server.asked("GET", "/api/contents/plan.txt")
    said = at_terminal(files.aileron, "approve", files.asked(*words), answers=CHANGE)

    assert (refused.code, denied, said.code) == (0, 404, 0), (refused, said)
    assert files.server.asked("GET", "/api/contents/plan.txt")[1]["content"] == "rest\n"


def test_a_file_is_deleted_after_the_approver_saw_it(files: Desk) -> None:
    """The card shows the file's own facts, which the agent did not give."""
    said = at_terminal(
        files.aileron,
        "approve",
        files.asked("jupyter-delete-api-contents-path", "path=shopping.txt"),
        answers=DELETE,
    )

    assert said.code == 0, said
    assert "text/plain" in flat(said)
    assert files.server.asked("GET", "/api/contents/shopping.txt")[0] == 404
