"""`aileron connector import mcp+…` for a server that requires a sign-in: found, signed in by the author, and frozen.

The authorization server is scripted, the browser a few lines: tests/browser/test_mcp_sign_in.py has real ones.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.support.mcp_server import Guarded, app_of, serving
from tests.support.upstream import Seen, Upstream, answer

NAME = "github://acme/connector-notes"
TOKEN = "canary-token-of-the-author"
METADATA = "/.well-known/oauth-authorization-server"
JSON = "Content-Type: application/json"


class World:
    """An MCP server and its authorization server, both on this machine."""

    accepts = TOKEN
    refused_with = ""
    """Challenge that replaces the server's at the next request with a token, if not empty."""

    def __init__(self, port: int, app: Guarded, provider: Upstream) -> None:
        self.app = app
        self.provider = provider
        self.address = f"http://localhost:{port}/mcp"
        self.issuer = f"http://localhost:{provider.port}"
        self.metadata: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        where = f"http://localhost:{port}/about-signing-in"
        app.challenge = f'Bearer resource_metadata="{where}", scope="notes.read notes.write"'
        app.pages["/about-signing-in"] = {"resource": self.address, "authorization_servers": [self.issuer]}

    @property
    def words(self) -> tuple[str, ...]:
        """The command that imports the server's tools, up to the directory."""
        return ("connector", "import", f"mcp+{self.address}", NAME)

    def is_accepted(self, token: str) -> bool:
        """Return whether the MCP server accepts the token."""
        if token and self.refused_with:
            self.app.challenge, self.refused_with = self.refused_with, ""
        return token == self.accepts

    def forms(self, path: str) -> list[dict[str, str]]:
        """Return the forms that were posted to that path."""
        seen = [request.body.decode() for request in self.provider.requests if request.target == path]
        return [dict(urllib.parse.parse_qsl(body)) for body in seen]

    def said(self, seen: Seen) -> bytes:
        """Return the authorization server's response to a request."""
        answers: dict[str, Any] = {
            METADATA: self.metadata,
            "/register": {"client_id": "registered-1", "redirect_uris": None, "token_endpoint_auth_method": "none"},
            "/token": {"access_token": TOKEN, "token_type": "Bearer", "scope": "notes.read notes.write"},
            "/revoke": {},
        }
        if seen.target not in answers:
            return answer(status="404 Not Found")
        found = answers[seen.target]
        if seen.target == "/register":
            found["redirect_uris"] = json.loads(seen.body)["redirect_uris"]
        return answer(
            json.dumps(found).encode(), JSON, status="201 Created" if seen.target == "/register" else "200 OK"
        )


@pytest.fixture
def world() -> Iterator[World]:
    """Both servers, running."""
    app = app_of(accepts=lambda token: made.is_accepted(token))
    with Upstream(lambda seen: made.said(seen)) as provider, serving(app) as port:
        made = World(port, app, provider)
        yield made


def oauth2_of(folder: Path) -> dict[str, Any]:
    """Return the OAuth section of the manifest."""
    credential = tomllib.loads((folder / "manifest.toml").read_text())["capabilities"]["credential"]
    assert credential["kind"] == "oauth2"
    found: dict[str, Any] = credential["oauth2"]
    return found


def files_with(folder: Path, *values: str) -> list[Path]:
    """Return the files that contain one of the values."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(value.encode() in path.read_bytes() for value in values)]


@pytest.mark.abuse_case("O23")
def test_the_authors_sign_in_stores_the_servers_oauth_metadata_in_the_manifest(
    aileron: Command, home: Path, tmp_path: Path, world: World
) -> None:
    """The sign-in uses PKCE and a newly registered client; its token is revoked afterwards and is in no file."""
    folder = tmp_path / "notes"
    with aileron.start(*world.words, str(folder), "--no-browser") as running:
        asked = _visited(running)
        out, err = running.communicate(timeout=60)

    assert running.returncode == 0, err
    assert "a sign-in (OAuth 2) at localhost" in " ".join(out.split())
    assert f"aileron config add egress.private_plain localhost:{world.provider.port}" in err
    assert (asked["code_challenge_method"], asked["resource"]) == ("S256", world.address)
    assert (asked["client_id"], asked["scope"]) == ("registered-1", "notes.read notes.write")
    (exchanged,) = world.forms("/token")
    assert (exchanged["resource"], exchanged["redirect_uri"]) == (world.address, asked["redirect_uri"])
    assert set(world.app.tokens) == {TOKEN}
    assert [form["token"] for form in world.forms("/revoke")] == [TOKEN]
    assert files_with(tmp_path, TOKEN, "canary-code", exchanged["code_verifier"]) == []
    assert files_with(home, TOKEN) == []
    assert TOKEN not in out + err
    assert oauth2_of(folder) == {
        "authorize_url": f"{world.issuer}/authorize",
        "token_url": f"{world.issuer}/token",
        "registration_url": f"{world.issuer}/register",
        "revocation_url": f"{world.issuer}/revoke",
        "scopes": ["notes.read", "notes.write"],
        "resource": world.address,
        "issuer": world.issuer,
        "issuer_in_answer": False,
    }


def _visited(running: Any) -> dict[str, str]:
    """Read the address that the command prints, grant the access, and return the address's parameters."""
    for line in running.stderr:
        if line.startswith("http"):
            break
    asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(line.strip()).query, strict_parsing=True))
    back = urllib.parse.urlencode({"code": "canary-code", "state": asked["state"]})
    with urllib.request.urlopen(f"{asked['redirect_uri']}?{back}", timeout=30) as page:
        assert page.status == 200
    return asked


def test_a_token_in_the_environment_replaces_the_sign_in(aileron: Command, tmp_path: Path, world: World) -> None:
    """The manifest gets the metadata all the same, and no client is registered. An update reads them again."""
    folder = tmp_path / "notes"
    words = (*world.words, str(folder))
    made = aileron(*words, AILERON_MCP_TOKEN=TOKEN)
    same = aileron(*words, "--update", AILERON_MCP_TOKEN=TOKEN)
    world.metadata["token_endpoint"] = f"{world.issuer}/other"
    world.app.challenge = world.app.challenge.replace("notes.write", "notes.write admin")
    changed = aileron(*words, "--update", AILERON_MCP_TOKEN=TOKEN)

    assert made.code == 0, made.err
    assert {request.target for request in world.provider.requests} == {METADATA}
    assert json.loads((folder / "import.json").read_bytes())["choices"]["auth"] == "oauth2"
    assert "no operation that you chose has changed" in same.err, same
    assert "the connector (more than before)" in changed.err, changed
    assert re.search(r"! sign-in, token_url: \S+/token -> \S+/other", changed.err), changed.err
    assert "! scopes" in changed.err
    assert oauth2_of(folder)["scopes"] == ["notes.read", "notes.write", "admin"]


def test_the_authors_options_override_the_metadata_and_survive_an_update(
    aileron: Command, tmp_path: Path, world: World
) -> None:
    """Options set scopes, an application of the author's own, and one of several authorization servers."""
    folder = tmp_path / "notes"
    other = f"{world.issuer}/other"
    world.app.pages["/about-signing-in"]["authorization_servers"] = ["https://first.example", other]
    world.metadata["issuer"] = other
    words = (*world.words, str(folder))
    with _moved(world):
        made = aileron(*words, "--auth-server", other, "--client-id", "mine", "--scope", "a,b", AILERON_MCP_TOKEN=TOKEN)
        same = aileron(*words, "--update", AILERON_MCP_TOKEN=TOKEN)

    assert made.code == 0, made.err
    assert "no operation that you chose has changed" in same.err, same
    found = oauth2_of(folder)
    assert (found["issuer"], found["client_id"], found["scopes"]) == (other, "mine", ["a", "b"])
    assert "registration_url" not in found


@contextlib.contextmanager
def _moved(world: World) -> Iterator[None]:
    """Serve the metadata of an issuer with a path."""
    said = world.said
    world.said = lambda seen: (  # type: ignore[method-assign]
        answer(json.dumps(world.metadata).encode(), JSON) if seen.target == f"{METADATA}/other" else said(seen)
    )
    yield


def test_a_sign_in_that_cannot_work_is_refused_with_a_fix(aileron: Command, tmp_path: Path, world: World) -> None:
    """Causes are no registration, no terminal, a client address that the server rejects, or no sign-in at all."""
    words = (*world.words, str(tmp_path / "notes"))
    nobody = aileron(*words)
    document = aileron(*words, "--client-id", "https://mine.example/client.json", AILERON_MCP_TOKEN=TOKEN)
    world.metadata["client_id_metadata_document_supported"] = True
    taken = (tmp_path / "taken", "https://mine.example/client.json")
    known = aileron(*world.words, str(taken[0]), "--client-id", taken[1], AILERON_MCP_TOKEN=TOKEN)
    forced = aileron(*words, "--auth", "bearer", "--scope", "a")
    del world.metadata["registration_endpoint"]
    unregistered = aileron(*words, AILERON_MCP_TOKEN=TOKEN)
    world.app.challenge, world.app.pages = "", {}
    without = aileron(*words)
    demanded = aileron(*words, "--auth", "oauth2")
    older = aileron(*words, "--auth", "bearer", AILERON_MCP_TOKEN=TOKEN)

    assert "there is no terminal: give --no-browser" in nobody.err
    assert "does not take the address of a client's metadata" in document.err
    assert (known.code, oauth2_of(taken[0])["client_id"]) == (0, taken[1])
    assert "--scope is for signing in" in forced.err
    assert "http://localhost/callback, and give its --client-id ID" in unregistered.err
    assert "it wants a token: --auth bearer" in without.err
    assert "has no metadata for a sign-in" in demanded.err
    assert demanded.err.count("/.well-known/oauth-protected-resource") == 2, demanded.err
    assert "\\n" not in demanded.err
    assert {refusal.code for refusal in (nobody, document, forced, unregistered, without, demanded)} == {2}
    assert older.code == 0, older.err
    again = aileron(*words, "--update", "--scope", "a", AILERON_MCP_TOKEN=TOKEN)
    assert (again.code, "--auth bearer does not" in again.err) == (2, True), again


BROWSER = """\
import sys, urllib.parse, urllib.request
asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sys.argv[1]).query))
back = urllib.parse.urlencode({"code": "canary-code", "state": asked["state"]})
urllib.request.urlopen(f"{asked['redirect_uri']}?{back}", timeout=30)
"""


@pytest.mark.abuse_case("O23")
def test_a_token_that_the_server_refuses_is_revoked(aileron: Command, tmp_path: Path, world: World) -> None:
    """The error names the scopes that the server requires beyond the requested ones."""
    world.accepts = "another"
    world.app.refusal = 403
    world.app.challenge += ', error="insufficient_scope"'
    (tmp_path / "browser.py").write_text(BROWSER)
    words = (*world.words, str(tmp_path / "notes"))
    browser = {"BROWSER": f"{sys.executable} {tmp_path / 'browser.py'}", "NO_COLOR": "1"}
    same = aileron.at_terminal(*words, variables=browser)
    world.refused_with = world.app.challenge.replace("notes.write", "notes.write admin")
    del world.metadata["revocation_endpoint"]
    more = aileron.at_terminal(*words, variables=browser)
    world.app.challenge = world.app.challenge.replace("insufficient_scope", "other")
    other = aileron(*words, "--no-browser")

    before, opens, _ = " ".join(same.out.split()).partition("Your browser opens")
    where = f"You sign in at {world.issuer} for {world.address}, with the scopes notes.read notes.write."
    assert (where in before, opens != "") == (True, True), same.out
    assert "refuses the token of your sign-in (status 403); tell the service" in " ".join(same.out.split())
    assert "--scope notes.read,notes.write,admin" in " ".join(more.out.split())
    assert "it wants a token: --auth bearer" in other.err
    assert "was not revoked, and ends by itself" in " ".join(more.out.split())
    assert "was not revoked" not in same.out
    assert [form["token"] for form in world.forms("/revoke")] == [TOKEN]
    assert not (tmp_path / "notes").exists()


def test_a_sign_in_can_be_forced_for_a_server_without_a_challenge(
    aileron: Command, tmp_path: Path, world: World
) -> None:
    """The server answers 400 to a request without a token, and its metadata are at the well-known path."""
    world.app.refusal, world.app.challenge = 400, ""
    world.app.pages["/.well-known/oauth-protected-resource/mcp"] = world.app.pages["/about-signing-in"]
    words = (*world.words, str(tmp_path / "notes"))
    unasked = aileron(*words, AILERON_MCP_TOKEN=TOKEN)
    demanded = aileron(*words, "--auth", "oauth2", AILERON_MCP_TOKEN=TOKEN)

    assert unasked.code == 2
    assert "400" in unasked.err
    assert demanded.code == 0, demanded.err
    assert oauth2_of(tmp_path / "notes")["scopes"] == []


def test_sign_in_options_are_refused_for_a_server_that_needs_no_sign_in(aileron: Command, tmp_path: Path) -> None:
    """A server that lists its tools to every client gets a sign-in only with --auth oauth2."""
    with serving(app_of()) as port:
        said = aileron(
            "connector",
            "import",
            f"mcp+http://localhost:{port}/mcp",
            NAME,
            str(tmp_path / "notes"),
            "--scope",
            "a",
        )

    assert said.code == 2
    assert "--scope: the server lists its tools without a sign-in" in said.err
    assert "--auth oauth2" in said.err
