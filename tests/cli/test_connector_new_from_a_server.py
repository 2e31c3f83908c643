"""`aileron connector import mcp+…`: a connector of a server's tools, tested in the real jail, and updated."""

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
    """Port of an MCP server that requires a token."""
    with serving(app_of(accepts=TOKEN)) as found:
        yield found


def address(port: int) -> str:
    """Return the server's address as the command takes it."""
    return f"mcp+http://127.0.0.1:{port}/mcp"


def test_a_connector_made_from_a_server_passes_its_cases(aileron: Command, tmp_path: Path, port: int) -> None:
    """Every tool waits for a person, and the token that listed the tools is in no file."""
    folder = tmp_path / "notes"
    said = aileron("connector", "import", address(port), NAME, str(folder), "--auth", "bearer", AILERON_MCP_TOKEN=TOKEN)
    tested = aileron("connector", "test", str(folder))

    assert said.code == 0, said.err
    assert "4: 0 run, 4 wait for a person" in " ".join(said.out.split())
    assert tested.code == 0, tested.out + tested.err
    assert "MCP server" in (folder / "README.md").read_text()
    for file in folder.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
    assert TOKEN not in said.out + said.err


def test_imported_tools_need_approval_unless_the_author_opts_out(aileron: Command, tmp_path: Path, port: int) -> None:
    """The author opts out for the whole server, and the command says what that means."""
    words = ("--auth", "bearer", "--trust-read-only", "--ops", "list_notes,delete_note")
    made = ("connector", "import", address(port), NAME, str(tmp_path / "notes"))
    said = aileron(*made, *words, AILERON_MCP_TOKEN=TOKEN)

    assert "2: 1 run, 1 wait for a person" in " ".join(said.out.split()), said.err
    assert "the server says that they only read" in said.err


def test_an_update_reports_what_the_server_changed_in_its_tools(aileron: Command, tmp_path: Path) -> None:
    """A changed description weighs as much as a new input, because a model reads it. Unchanged tools are not mentioned."""
    folder = tmp_path / "notes"
    app = app_of()
    with serving(app) as port:
        aileron("connector", "import", address(port), NAME, str(folder))
        same = aileron("connector", "import", address(port), NAME, str(folder), "--update")
    with serving(app_of(ADDS_NOW)) as port:
        changed = aileron("connector", "import", address(port), NAME, str(folder), "--update")

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
        (("mcp+http://mcp.example.com/mcp",), "on this machine"),
        (("mcp+ftp://mcp.example.com/mcp",), "one SOURCE, mcp+https://"),
        (("mcp+https://a.example/", "--also", "b.json"), "one SOURCE, mcp+https://"),
        (("mcp+https://a.example/", "--tag", "x"), "--tag is for documents"),
        (("mcp+https://a.example/", "--auth", "query:key"), "expected oauth2, bearer, header:NAME or none"),
        (
            ("mcp+https://a.example/", "--auth", "header:a\r\nb"),
            "expected oauth2, bearer, header:NAME or none",
        ),
        (("a.json", "--trust-read-only"), "--trust-read-only is for MCP servers"),
        (("a.json", "--scope", "a"), "--scope is for MCP servers"),
    ],
)
def test_importing_from_a_server_refuses_invalid_options(
    aileron: Command, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    """The command refuses before it sends or writes anything."""
    source, *options = words
    said = aileron("connector", "import", source, NAME, str(tmp_path / "notes"), *options).exits(2)
    assert problem in said.err
    assert list(tmp_path.iterdir()) == []
