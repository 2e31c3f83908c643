"""A connector without a registered client: its sign-in registers one at a real provider, for tokens that are for one
service alone.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Known
from tests.browser.desk import MINE, desk
from tests.browser.person import MIRA, agrees, signs_in
from tests.support.browser import Browser
from tests.support.provider import PUBLIC, Provider, Registered
from tests.support.upstream import Upstream, answer

pytestmark = [pytest.mark.slow, pytest.mark.jail]
_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "publish-a-connector.md"
_DRAFT = "draft-02"
"""Version of OAuth Client ID Metadata Document that this provider implements."""
SCOPES = ("openid", "mail.read", "mail.send")
"""Scopes of the requests; with `openid`, this provider takes a request that names no service for one for its own account page."""


@pytest.fixture
def provider(known: Known, tmp_path: Path) -> Iterator[Provider]:
    """Start a provider that registers any client, and whose tokens are for the service that was named."""
    with Provider(tmp_path, known.authority, files=known.files, registration=True, resources=True) as running:
        yield running


@pytest.mark.abuse_case("O21")
def test_a_sign_in_registers_a_client_whose_tokens_are_for_one_service(
    provider: Provider, browser: Browser, tmp_path: Path
) -> None:
    """Issued and renewed tokens name that service; revoking them needs the client, which nobody else knows."""
    with desk(provider, tmp_path, client=None, scopes=SCOPES, for_service=True) as at_desk:
        code = at_desk.begin(flow="device")
        at_desk.home.must("DELETE", f"/v1/sign-ins/{code['id']}")
        begun = at_desk.begin()
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(begun["authorize_url"]).query))
        signs_in(browser, begun["authorize_url"])
        agrees(browser)
        browser.wait_url("/callback")
        over = at_desk.ended(begun)
        first = at_desk.whoami()
        assert provider.revoke_access(provider.tokens("access_token")[0])
        used = [first, at_desk.whoami()]
        access = provider.tokens("access_token")
        found = [provider.introspect(token) for token in access]
        refresh = provider.tokens("refresh_token")[-1]
        shown = at_desk.binding()
        revoked = at_desk.home.must("DELETE", f"/v1/bindings/{MINE}")

    assert code["user_code"]
    assert provider.asked("registration") == [201, 201]
    assert len(provider.tokens("registration_access_token")) == 2, "so that none may lie in a file of the home"
    assert (over["status"], over["result"]["account"]) == ("done", MIRA)
    assert [response.body["result"]["account"] for response in used] == [MIRA, MIRA]
    assert asked["client_id"] not in ("", PUBLIC.id)
    assert asked["resource"] == at_desk.mail.resource
    assert provider.asked("token") == [200, 200], "issued, and renewed after the service refused the first"
    assert found[-1]["aud"] == asked["resource"]
    assert found[-1]["client_id"] == asked["client_id"]
    assert at_desk.mail.refused == 1
    assert shown["reach"]["client"] == (
        f"registered at {provider.url('registration')} at {provider.url('token')} for {asked['resource']}"
    )
    assert revoked["at_provider"] == "revoked"
    assert provider.introspect(refresh) == {"active": False}


def test_a_publishers_hosted_document_identifies_the_client(known: Known, browser: Browser, tmp_path: Path) -> None:
    """The provider fetches the how-to's document at its own address, allows any port of the redirect, and issues tokens
    for the client.
    """
    said = re.search(r"```json\n(.*?)```", _HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    assert said is not None
    served: list[bytes] = []
    here = Upstream(
        lambda _seen: answer(served[0], "Content-Type: application/json"), known.authority.server_context("localhost")
    )
    with here, Provider(tmp_path, known.authority, files=known.files, documents=_DRAFT) as provider:
        client = Registered(f"https://localhost:{here.port}/oauth/client.json")
        served.append(json.dumps({**json.loads(said[1]), "client_id": client.id}).encode())
        with desk(provider, tmp_path, client=client) as at_desk:
            at_desk.sign_in(browser)
            used = at_desk.whoami()
            (access,) = provider.tokens("access_token")
            found = provider.introspect(access)

    assert used.body["result"]["account"] == MIRA
    assert found["client_id"] == client.id
    assert [seen.target for seen in here.requests] == ["/oauth/client.json"]


def test_a_registered_client_accepts_only_the_declared_issuer(
    provider: Provider, browser: Browser, tmp_path: Path
) -> None:
    """The provider names itself (RFC 9207), and the manifest names another issuer: the code is sent nowhere."""
    with desk(provider, tmp_path, client=None, scopes=SCOPES, issuer=f"{provider.issuer}/other") as at_desk:
        begun = at_desk.begin()
        signs_in(browser, begun["authorize_url"])
        agrees(browser)
        back = browser.wait_url("/callback")
        over = at_desk.ended(begun)

    assert urllib.parse.quote(provider.issuer, safe="") in back
    assert over["error"]["details"]["code"] == "issuer_mismatch"
    assert provider.asked("registration") == [201]
    assert provider.asked("token") == []
