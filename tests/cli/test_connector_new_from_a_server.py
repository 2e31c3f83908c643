"""`aileron connector new --from mcp+…`: a connector of a server's tools, tried in the real jail, and updated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.mcp_server import ADDS, ADDS_NOW, app_of, serving

pytestmark = pytest.mark.jail
NAME = "github://acme/connector-notes"
TOKEN = "t0ken-for-listing"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server that wants a token."""
    with serving(app_of(accepts=TOKEN)) as found:
        yield found


def address(port: int) -> str:
    """As it is given to `--from`."""
    return f"mcp+http://127.0.0.1:{port}/mcp"


def test_a_server_becomes_a_connector_whose_cases_pass(aileron: Command, tmp_path: Path, port: int) -> None:
    """Every tool waits for a person, and the token that listed them is nowhere."""
    folder = tmp_path / "notes"
    said = aileron(
        "connector", "new", NAME, str(folder), "--from", address(port), "--auth", "bearer", AILERON_MCP_TOKEN=TOKEN
    )
    tested = aileron("connector", "test", str(folder))

    assert said.code == 0, said.err
    assert "4: 0 run, 4 wait for a person" in " ".join(said.out.split())
    assert tested.code == 0, tested.out + tested.err
    assert "MCP server" in (folder / "README.md").read_text()
    for file in folder.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
    assert TOKEN not in said.out + said.err


def test_tools_run_without_a_person_only_with_the_authors_word(aileron: Command, tmp_path: Path, port: int) -> None:
    """Once, for the server; and it is said what that means."""
    words = ("--from", address(port), "--auth", "bearer", "--trust-read-only", "--ops", "list_notes,delete_note")
    said = aileron("connector", "new", NAME, str(tmp_path / "notes"), *words, AILERON_MCP_TOKEN=TOKEN)

    assert "2: 1 run, 1 wait for a person" in " ".join(said.out.split()), said.err
    assert "the server says that they only read" in said.err


def test_what_a_server_changed_is_told_by_an_update(aileron: Command, tmp_path: Path) -> None:
    """Its words weigh as much as a new input: a model reads them. What did not change is not told."""
    folder = tmp_path / "notes"
    app = app_of()
    with serving(app) as port:
        aileron("connector", "new", NAME, str(folder), "--from", address(port))
        same = aileron("connector", "new", NAME, str(folder), "--from", address(port), "--update")
    with serving(app_of(ADDS_NOW)) as port:
        changed = aileron("connector", "new", NAME, str(folder), "--from", address(port), "--update")

    assert "no operation that you chose has changed" in same.err
    assert changed.code == 0, changed.err
    assert "changed: add_note (more than before)" in changed.err
    assert f"! tool description: {json.dumps(ADDS)} -> {json.dumps(ADDS_NOW)}" in changed.err
    assert "list_notes" not in changed.err
    assert (
        json.loads((folder / "service/tools.json").read_bytes())["tools"]["add_note"]["listed"]["description"]
        == ADDS_NOW
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "mcp+http://mcp.example.com/mcp"), "on this machine"),
        (("--from", "mcp+ftp://mcp.example.com/mcp"), "one --from mcp+https://"),
        (("--from", "mcp+https://a.example/", "--from", "b.json"), "one --from mcp+https://"),
        (("--from", "mcp+https://a.example/", "--tag", "x"), "--tag is for documents"),
        (("--from", "mcp+https://a.example/", "--auth", "query:key"), "expected oauth2, bearer, header:NAME or none"),
        (
            ("--from", "mcp+https://a.example/", "--auth", "header:a\r\nb"),
            "expected oauth2, bearer, header:NAME or none",
        ),
        (("--from", "a.json", "--trust-read-only"), "--trust-read-only requires --from mcp+"),
        (("--from", "a.json", "--scope", "a"), "--scope requires --from mcp+"),
        (("--trust-read-only",), "--trust-read-only requires --from mcp+"),
    ],
)
def test_what_cannot_be_is_said(aileron: Command, tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    """Before anything is asked or written."""
    said = aileron("connector", "new", NAME, str(tmp_path / "notes"), *words)

    assert said.code == 2
    assert problem in said.err
    assert list(tmp_path.iterdir()) == []
