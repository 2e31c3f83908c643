"""An MCP server that accepts only tokens for itself: its author signs in to import it, and a user binds it.

Everything is real: the authorization server (npm's oidc-provider, with dynamic registration and resource indicators), the server
(the official SDK), the browser, the daemon and the jail.
"""

from __future__ import annotations

import subprocess
import tomllib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.browser.conftest import Known
from tests.browser.person import MIRA, NOOR, agrees, signs_in
from tests.cli.command import Command
from tests.support.browser import Browser
from tests.support.canary import scan
from tests.support.home import daemon_home
from tests.support.mcp_server import Guarded, app_of, serving
from tests.support.memories import descendants_of, memory_of
from tests.support.provider import Provider
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.jail]
CONNECTOR: Final = "github://mira/connector-notes"
METADATA: Final = "/.well-known/oauth-protected-resource/mcp"
_END_S: Final = 60.0


class Notes:
    """The server, its provider, and the accounts whose tokens it accepted."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.resource = ""
        self.accounts: list[str] = []
        self.app: Guarded = app_of(accepts=self._is_for_us)

    def serve_at(self, port: int) -> None:
        """Set the server's address, and where to sign in."""
        origin = f"https://localhost:{port}"
        self.resource = f"{origin}/mcp"
        self.app.challenge = f'Bearer realm="notes", resource_metadata="{origin}{METADATA}", scope="mail.read"'
        self.app.pages[METADATA] = {"resource": self.resource, "authorization_servers": [self.provider.issuer]}

    @property
    def host(self) -> str:
        """Address of the server as NAME:PORT."""
        return urllib.parse.urlsplit(self.resource).netloc

    def _is_for_us(self, token: str) -> bool:
        found = self.provider.introspect(token)
        is_good = bool(found["active"]) and found.get("aud") == self.resource
        if is_good:
            self.accounts.append(found["sub"])
        return is_good


@pytest.fixture
def notes(known: Known, tmp_path: Path) -> Iterator[Notes]:
    """Start the server and its provider, over TLS."""
    with Provider(tmp_path, known.authority, files=known.files, registration=True, resources=True) as provider:
        made = Notes(provider)
        with serving(made.app, known.files) as port:
            made.serve_at(port)
            yield made


def signed_in(browser: Browser, running: subprocess.Popen[str], account: str) -> str:
    """Open the address that a command prints, sign in and give consent. Return the command's output."""
    assert running.stderr is not None
    address = next(line.strip() for line in running.stderr if line.startswith("https://"))
    signs_in(browser, address, account)
    agrees(browser)
    browser.wait_url("/callback")
    out, err = running.communicate(timeout=_END_S)
    assert running.returncode == 0, out + err
    return out + err


@pytest.mark.abuse_case("O23")
def test_an_mcp_server_that_needs_a_sign_in_is_imported_and_used(
    notes: Notes, browser: Browser, tmp_path: Path
) -> None:
    """Author and user get tokens for this server alone; the author's is revoked, and no file or jail has either."""
    provider, sources = notes.provider, tmp_path / "notes"
    with daemon_home() as home:
        ca_file = provider.authority.ca_file
        home.configure(f'[egress]\nprivate = ["{notes.host}", "{provider.host}"]\nca_file = "{ca_file}"\n')
        aileron = Command(home.path)
        words = ("connector", "import", f"mcp+{notes.resource}", CONNECTOR, str(sources), "--no-browser")
        with aileron.start(*words) as importing:
            said = signed_in(browser, importing, NOOR)
        (author,) = provider.tokens("access_token")
        listed_by = set(notes.accounts)
        manifest = tomllib.loads((sources / "manifest.toml").read_text())["capabilities"]["credential"]["oauth2"]
        author_is_active = provider.introspect(author)["active"]

        browser.forget()
        home.unlock()
        for group, verb in (("connector", "install"), ("action", "add")):
            aileron(group, verb, str(sources)).exits(0)
        notes.accounts.clear()
        notes.app.tokens.clear()
        with aileron.start("binding", "setup", CONNECTOR, "--name", "oauth2/notes/me", "--no-browser") as binding:
            signed_in(browser, binding, MIRA)
        asked = home.asked("notes-add-note", {"text": "milk"})
        before = list(notes.accounts)
        decided = home.decide(asked, "approve")
        answered = home.ask("GET", f"/v1/action-approvals/{asked['approval_id']}/result?wait=20", wait_s=20)
        waiting = home.asked("notes-wait-for-ever")
        notes.app.tokens.clear()
        home.decide(waiting, "approve")
        wait_until(lambda: len(notes.app.tokens) == 2, "the tool is listed and called")
        daemon = home.daemon_pid
        assert daemon is not None
        jails = [memory_of(pid) for pid in descendants_of(daemon)]
        leaks = scan([home.path.parent, sources], *(token.encode() for token in provider.tokens()))

    assert "a sign-in (OAuth 2) at localhost" in " ".join(said.split())
    assert manifest["resource"] == notes.resource
    assert manifest["issuer"] == provider.issuer
    assert manifest["registration_url"] == provider.url("registration")
    assert "mail.read" in manifest["scopes"]
    assert "client_id" not in manifest
    assert listed_by == {NOOR}
    assert not author_is_active
    assert (before, decided.status) == ([], 200)
    assert answered.body["result"] == {"text": "added milk"}, answered.body
    assert set(notes.accounts) == {MIRA}
    assert author not in notes.app.tokens
    assert any(b"wait_for_ever" in memory for memory in jails)
    assert not [token for token in provider.tokens() if any(token.encode() in memory for memory in jails)]
    assert leaks == {}
