"""A Hub is built, served over TLS by a file server, and read through the daemon; other Hubs send false data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.config import HubSettings, LiveSettings, Settings
from aileron.daemon.packages.forge_web import ForgeWeb
from aileron.egress import Egress
from aileron.model.names import Fqn, HostPort
from aileron.model.text import hidden_at
from aileron.registry.forges.hub import Hub
from aileron.registry.hub import build_site
from tests.oauth.conftest import Nobody
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home, word
from tests.support.hub import CONNECTOR, KEY, OTHER, SEND, Release, static
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = pytest.mark.jail
ENTRY = {
    "name": CONNECTOR,
    "kind": "connector",
    "version": "1.0.0",
    "versions": [{"version": "1.0.0", "hash": "sha256:" + "ab" * 32}],
    "about": {},
}


class Served:
    """A site, its server, and the responses that replace its files."""

    def __init__(self, site: Path, tls: Any) -> None:
        self.site = site
        self.instead: dict[str, bytes | list[bytes]] = {}
        """Bodies, or whole responses in pieces, by path."""
        self._files = static(site)
        self.server = Upstream(self._answer, tls)

    @property
    def url(self) -> str:
        """Value of `hub.url`."""
        return f"https://localhost:{self.server.port}/hub"

    def toml(self, authority: Authority) -> str:
        """Return lines of a config.toml for this Hub."""
        return (
            f'[egress]\nprivate = ["localhost:{self.server.port}"]\nca_file = "{authority.ca_file}"\n'
            f'[hub]\nurl = "{self.url}"\n'
        )

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        instead = self.instead.get(seen.target.removeprefix("/hub/"))
        if isinstance(instead, bytes):
            return answer(instead)
        return self._files(seen) if instead is None else instead


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def served(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Build and serve a Hub with three versions of a connector (the older two signed), an action, and an unsigned connector."""
    folder = tmp_path_factory.mktemp("hub")
    release = Release(folder / "out")
    release.key()
    pin = release.connector(version="1.0.0", signed_by=KEY)
    release.connector(version="1.1.0", signed_by=KEY, edit=lambda text: text.replace("mail.example", "new.example"))
    release.connector(version="2.0.0-rc.1+b")
    chat = {"Acme Mail": "Zeta", "send_email": "post_message", "Send mail": "Chat", "mail.example": "chat.example"}
    release.connector("hub://zeta/chat", "0.1.0", edit=lambda text: _replaced(text, chat))
    release.action(needs=(CONNECTOR, "1.0.0", pin), signed_by=KEY)
    build_site(release.path, folder / "site", parse_action)
    made = Served(folder / "site", authority.server_context("localhost"))
    with made.server:
        yield made


@pytest.fixture(scope="module")
def running(served: Served, authority: Authority) -> Iterator[DaemonHome]:
    """Start a home that knows this Hub."""
    with daemon_home() as home:
        home.configure(served.toml(authority))
        yield home


@pytest.fixture
def own(running: DaemonHome, served: Served) -> Iterator[DaemonHome]:
    """Return the running home, with the Hub's own files served again."""
    served.instead.clear()
    yield running
    served.instead.clear()


def names(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how each entry matches, and its name."""
    return [(entry["match"], entry["name"]) for entry in found["entries"]]


def test_the_hub_is_searched_by_intent_and_word(own: DaemonHome, served: Served) -> None:
    """Each entry shows the hosts and the signature of its newest version, and the response says how old the index is."""
    found = own.must("GET", "/v1/hub?text=send%20email")

    assert names(found) == [("intent", CONNECTOR), ("name", SEND)]
    assert (found["hub"], found["total"]) == (served.url, 2)
    assert found["as_of"].endswith("Z")
    assert found["entries"][0] == {
        "name": CONNECTOR,
        "kind": "connector",
        "version": "1.1.0",
        "match": "intent",
        "signature": {"status": "signed", "key": KEY.public.fingerprint},
        "publisher": "Acme Mail",
        "description": None,
        "intents": ["send_email", "list_folders"],
        "hosts": ["new.example.com:443"],
        "credential": {"kind": "api_key", "scope": "Send mail as you"},
        "requires": [],
    }
    assert names(own.must("GET", "/v1/hub?text=send&kind=action")) == [("name", SEND)]
    assert names(own.must("GET", "/v1/hub?text=zeta")) == [("name", "hub://zeta/chat")]
    assert own.must("GET", "/v1/hub?text=chat")["entries"][0]["signature"] == {"status": "unsigned", "key": None}
    assert len(own.must("GET", "/v1/hub")["entries"]) == 3


def test_the_hub_shows_any_version_of_an_artifact_in_full(own: DaemonHome) -> None:
    """Hosts and other facts come from the version's own manifest; this home decides whether its key is trusted."""
    newest = own.must("GET", f"/v1/hub/entry?name={CONNECTOR}")
    old = own.must("GET", f"/v1/hub/entry?name={CONNECTOR}@1.0.0")
    candidate = own.must("GET", f"/v1/hub/entry?name={CONNECTOR}@2.0.0-rc.1%2Bb")
    action = own.must("GET", f"/v1/hub/entry?name={SEND}")

    assert (newest["version"], newest["newest"], newest["hosts"]) == ("1.1.0", "1.1.0", ["new.example.com:443"])
    assert (old["version"], old["newest"], old["hosts"]) == ("1.0.0", "1.1.0", ["mail.example.com:443"])
    assert [version["version"] for version in old["versions"]] == ["1.0.0", "1.1.0", "2.0.0-rc.1+b"]
    assert old["install"] == f"aileron connector install {CONNECTOR}@1.0.0"
    assert old["signature"] == {"status": "signed", "key": KEY.public.fingerprint, "trusted": "no"}
    assert candidate["signature"] == {"status": "unsigned", "key": None, "trusted": None}
    assert (action["description"], action["requires"]) == (
        "Writes a letter and sends it at once.",
        [f"{CONNECTOR}@1.0.0"],
    )
    assert action["install"] == f"aileron action add {SEND}@1.0.0"
    assert own.must("GET", "/v1/hub/entry?name=hub://zeta/chat")["publisher_key"] is None


def test_a_hub_entry_is_trusted_only_if_this_home_trusts_its_exact_key(served: Served, authority: Authority) -> None:
    """Neither another key of the publisher nor the key under another name counts; a locked vault says `unknown`."""
    approver = Approver()
    with daemon_home() as home:
        home.configure(served.toml(authority))
        body = {"authority": "hub://acme", "source": "a test"}
        home.must("POST", "/v1/keyring", {**body, "key": OTHER.public.to_pem()})
        for stranger in ("hub://zeta", "github://acme", f"{CONNECTOR}-2"):
            home.must("POST", "/v1/keyring", {**body, "authority": stranger, "key": KEY.public.to_pem()})
        asked = f"/v1/hub/entry?name={CONNECTOR}"
        assert home.must("GET", asked)["signature"]["trusted"] == "no"
        home.must("POST", "/v1/keyring", {**body, "key": KEY.public.to_pem()})
        assert home.must("GET", asked)["signature"]["trusted"] == "yes"
        home.unlock()
        approver.appoint(home)
        assert home.must("GET", asked)["signature"]["trusted"] == "yes"
        home.must("POST", "/v1/vault/lock")
        assert home.must("GET", asked)["signature"]["trusted"] == "unknown"


@pytest.mark.anyio
async def test_a_fetch_from_the_hub_returns_the_published_bytes(served: Served, authority: Authority) -> None:
    """The archive, the list of versions and the index are those that the build wrote."""
    place = HostPort("localhost", served.server.port)
    settings = Settings(egress_private=frozenset({place}), egress_ca_pem=authority.ca_pem)
    egress = Egress(settings, Nobody())  # type: ignore[arg-type]
    hub = Hub(ForgeWeb(egress, LiveSettings(settings)), HubSettings(url=served.url))
    name = Fqn.parse(CONNECTOR)
    try:
        versions = await hub.versions(name)
        archives = [await hub.archive(name, version) for version in versions]
        found = await hub.index()
    finally:
        await egress.aclose()

    assert versions == ("1.0.0", "1.1.0", "2.0.0-rc.1+b")
    assert archives == [(served.site / "acme/mail" / version / "aileron.tar.gz").read_bytes() for version in versions]
    assert [published.version for published in found.content.entries[0].versions] == list(versions)


def test_the_error_for_a_name_missing_on_the_hub_says_what_exists(own: DaemonHome) -> None:
    """The error says what to do if nothing similar exists."""
    for asked, expected, told in (
        ("hub://acme/none", "not_found", "has no hub://acme/none: `aileron hub search none`"),
        (f"{CONNECTOR}@3.0.0", "not_found", "the newest are 2.0.0-rc.1+b, 1.1.0, 1.0.0"),
        (f"{CONNECTOR}@latest", "invalid_request", "is not a SemVer version"),
        ("github://acme/mail", "invalid_request", "is not on a Hub"),
        ("hub://acme/../mail", "invalid_request", "path segment '..'"),
        ("", "invalid_request", "no known scheme"),
    ):
        said = own.ask("GET", f"/v1/hub/entry?name={asked}")
        assert (word(said), told in said.body["error"]["message"]) == (expected, True), said.body
    for query, told in (
        ("kind=plugin", "expected connector or action"),
        ("text=" + "x" * 201, "201 characters"),
        ("text=a&text=b", "each at most once"),
        ("page=2", "'page' in the query"),
    ):
        said = own.ask("GET", f"/v1/hub?{query}")
        assert (word(said), told in said.body["error"]["message"]) == ("invalid_request", True), said.body


@pytest.mark.abuse_case("B12")
def test_agents_cannot_query_the_hub(own: DaemonHome, served: Served) -> None:
    """An agent's request causes no request to the Hub; the same request of a person does."""
    before = served.server.connections, len(served.server.requests)
    for path in ("/v1/hub?text=mail", f"/v1/hub/entry?name={CONNECTOR}"):
        assert word(own.agent.request("GET", path)) == "unauthorized"
    assert (served.server.connections, len(served.server.requests)) == before
    own.must("GET", "/v1/hub?text=mail")
    assert len(served.server.requests) == before[1] + 1


def test_without_a_hub_the_error_names_the_setting_that_configures_it() -> None:
    """Searching and showing an entry give the same error."""
    with daemon_home() as home:
        for path in ("/v1/hub", f"/v1/hub/entry?name={CONNECTOR}"):
            said = home.ask("GET", path)
            assert (said.status, '[hub] url = "https://…"' in said.body["error"]["message"]) == (400, True)


# Hubs that send false data


def index(*entries: dict[str, Any]) -> bytes:
    """Return an index with these entries."""
    return json.dumps({"version": 1, "entries": entries}).encode()


@pytest.mark.abuse_case("B11")
@pytest.mark.parametrize(
    ("data", "expected", "told"),
    [
        (b"<html>", "invalid_request", "the index is not valid"),
        (b'{"version": 9, "entries": []}', "invalid_request", "version 9 of the format"),
        (index({**ENTRY, "name": "github://acme/mail"}), "invalid_request", "is not a name of a Hub"),
        (index({**ENTRY, "url": "https://evil.example"}), "invalid_request", "unknown field `url`"),
        (index({**ENTRY, "\u202e\x1b[2J": 1}), "invalid_request", "unknown field `\\u202e\\x1b[2J`"),
        (index({**ENTRY, "about": {"publisher": "\u202eA\x1b[2J"}}), "invalid_request", "an invisible character"),
        (b" " * ((8 << 20) + 1), "resource_limit_exceeded", "sent more than 8388608 bytes"),
        (index(*[{**ENTRY, "name": f"hub://a/m{n:05}"} for n in range(20_001)]), "invalid_request", "at most 20000"),
    ],
    ids=[
        "a page",
        "another format",
        "another scheme",
        "an address",
        "a hidden key",
        "hidden words",
        "too large",
        "too many",
    ],
)
def test_an_invalid_hub_index_is_refused_as_a_whole(
    own: DaemonHome, served: Served, data: bytes, expected: str, told: str
) -> None:
    """The error escapes hidden characters; the daemon reads the index again once it is valid."""
    served.instead["index.json"] = data
    for path in ("/v1/hub?text=mail", f"/v1/hub/entry?name={CONNECTOR}"):
        said = own.ask("GET", path)
        message = said.body["error"]["message"]
        assert (word(said), told in message, hidden_at(message)) == (expected, True, None), said.body

    served.instead.clear()
    assert own.must("GET", "/v1/hub?text=mail")["total"] == 2


def test_a_search_in_a_large_hub_returns_few_entries(own: DaemonHome, served: Served) -> None:
    """The response says how many match."""
    served.instead["index.json"] = index(*[{**ENTRY, "name": f"hub://a/m{n:05}"} for n in range(20_000)])

    found = own.must("GET", "/v1/hub?text=m", wait_s=60)

    assert (found["total"], len(found["entries"])) == (20_000, 50)
    assert names(own.must("GET", "/v1/hub?text=m19999", wait_s=60)) == [("name", "hub://a/m19999")]


@pytest.mark.abuse_case("B11")
def test_redirects_of_a_hub_are_refused(own: DaemonHome, served: Served) -> None:
    """This holds for the index and for documents, even within one server."""
    for path, asked in (
        ("index.json", "/v1/hub"),
        ("acme/mail/1.1.0/manifest.toml", f"/v1/hub/entry?name={CONNECTOR}"),
    ):
        served.instead = {path: [answer(b"", f"Location: {served.url}/other", status="302 Found")]}
        said = own.ask("GET", asked)
        assert (word(said), "which is not followed" in said.body["error"]["message"]) == ("capability_denied", True)
    assert not [seen for seen in served.server.requests if "other" in seen.target]


@pytest.mark.abuse_case("B11")
def test_a_hub_document_that_differs_from_the_index_is_refused(own: DaemonHome, served: Served) -> None:
    """The document is another version's manifest, another action, too large, or invalid."""
    mail, send = f"/v1/hub/entry?name={CONNECTOR}", f"/v1/hub/entry?name={SEND}"
    older = (served.site / "acme/mail/1.0.0/manifest.toml").read_bytes()
    text = (served.site / "acme/mail/actions/send-email/1.0.0/action.md").read_bytes()
    for path, data, asked, told in (
        ("acme/mail/1.1.0/manifest.toml", older, mail, f"it describes itself as {CONNECTOR}@1.0.0"),
        ("acme/mail/1.1.0/manifest.toml", b"x" * 300_000, mail, "sent more than"),
        ("acme/mail/1.1.0/manifest.toml", b"\xff", mail, "not valid UTF-8"),
        ("acme/mail/1.1.0/manifest.toml", older + b"\nx = 1", mail, "unknown key"),
        ("acme/mail/actions/send-email/1.0.0/action.md", text + b"\n", send, "the Hub contradicts itself"),
        ("acme/mail/keys/publisher.pub", b"no key", mail, "it is not an Ed25519 public key"),
    ):
        served.instead = {path: data}
        said = own.ask("GET", asked)
        assert told in said.body["error"]["message"], (path, said.body)
        assert hidden_at(said.body["error"]["message"]) is None
    served.instead.clear()
    assert own.must("GET", send)["kind"] == "action"


def test_an_index_that_names_missing_files_is_reported_as_out_of_date(own: DaemonHome, served: Served) -> None:
    """The Hub has no manifest for a version that its index names. The error says to try again."""
    file = served.site / "acme/mail/1.1.0/manifest.toml"
    aside = shutil.move(file, served.site.parent / "aside")
    try:
        said = own.ask("GET", f"/v1/hub/entry?name={CONNECTOR}")
    finally:
        shutil.move(aside, file)

    assert (word(said), "the index is out of date, try again" in said.body["error"]["message"]) == ("not_found", True)
    assert own.must("GET", f"/v1/hub/entry?name={CONNECTOR}")["version"] == "1.1.0"
