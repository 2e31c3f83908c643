"""The provider and the browser of these tests do what the other tests rely on, without any code of ours in between."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.browser.person import MIRA, agrees, signs_in, types_a_code
from tests.support.browser import Browser, BrowserError, needs_browser
from tests.support.provider import CONFIDENTIAL, PUBLIC, Provider

pytestmark = pytest.mark.slow
_REDIRECT = "http://localhost:9/callback"
"""Address of the redirect: no program listens on port 9 (discard), and only the address matters here."""
_VERIFIER = "a-verifier-of-a-test-that-is-long-enough-to-be-one"
_CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(_VERIFIER.encode()).digest()).rstrip(b"=").decode()


def _ask(**more: str) -> dict[str, str]:
    asked = {
        "client_id": PUBLIC.id,
        "redirect_uri": _REDIRECT,
        "response_type": "code",
        "scope": "openid email mail.send",
        "state": "a-state",
        "code_challenge": _CHALLENGE,
        "code_challenge_method": "S256",
    }
    return {**asked, **more}


def _address(provider: Provider, **more: str) -> str:
    return f"{provider.url('authorization')}?{urllib.parse.urlencode(_ask(**more))}"


def _come_back(browser: Browser) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(browser.wait_url("localhost:9/callback")).query))


def _redeem(provider: Provider, code: str, **more: str) -> dict[str, Any]:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": _REDIRECT, "client_id": PUBLIC.id}
    return provider.post("token", {**form, "code_verifier": _VERIFIER, **more})


def _renew(provider: Provider, token: str) -> dict[str, Any]:
    return provider.post("token", {"grant_type": "refresh_token", "refresh_token": token, "client_id": PUBLIC.id})


def _give(browser: Browser, answer: str = "allow") -> None:
    with contextlib.suppress(BrowserError):  # nobody listens where it is sent to
        agrees(browser, answer)


def test_the_test_provider_accepts_an_authorization_code_only_once_and_only_with_its_verifier(
    provider: Provider, browser: Browser
) -> None:
    """The redirect has `state` and `iss`. Another verifier is refused; a second use is too, and revokes what the first gave."""
    signs_in(browser, _address(provider))
    _give(browser)
    back = _come_back(browser)

    wrong = _redeem(provider, back["code"], code_verifier="x" * 43)
    right = _redeem(provider, back["code"])
    was_active = provider.introspect(right["access_token"])["active"]
    again = _redeem(provider, back["code"])

    assert (back["state"], back["iss"]) == ("a-state", provider.issuer)
    assert (wrong["error"], again["error"]) == ("invalid_grant", "invalid_grant")
    assert right["scope"] == "openid email mail.send"
    assert provider.tokens() == [back["code"], right["access_token"], right["refresh_token"], right["id_token"]]
    assert (was_active, provider.introspect(right["access_token"])["active"]) == (True, False)


def test_a_denial_at_the_test_provider_redirects_with_access_denied(provider: Provider, browser: Browser) -> None:
    """The redirect has no code, and no token is issued."""
    signs_in(browser, _address(provider))
    _give(browser, "deny")

    back = _come_back(browser)

    assert back["error"] == "access_denied"
    assert "code" not in back
    assert provider.tokens() == []


def test_the_test_provider_does_not_grant_a_scope_that_was_unticked(provider: Provider, browser: Browser) -> None:
    """A person may grant less than was requested."""
    signs_in(browser, _address(provider))
    browser.click('input[value="mail.send"]')
    _give(browser)

    assert _redeem(provider, _come_back(browser)["code"])["scope"] == "openid email"


def test_using_a_refresh_token_twice_ends_the_grant_at_the_test_provider(provider: Provider, browser: Browser) -> None:
    """A rotation replaces the refresh token; the new one works until the old one is used again."""
    signs_in(browser, _address(provider))
    _give(browser)
    first = _redeem(provider, _come_back(browser)["code"])

    second = _renew(provider, first["refresh_token"])
    third = _renew(provider, second["refresh_token"])
    replayed = _renew(provider, first["refresh_token"])

    assert len({first["refresh_token"], second["refresh_token"], third["refresh_token"]}) == 3
    assert replayed["error"] == "invalid_grant"
    assert _renew(provider, third["refresh_token"])["error"] == "invalid_grant"


def test_the_provider_can_revoke_a_token_and_a_whole_account(provider: Provider, browser: Browser) -> None:
    """The provider revokes an access token by itself, and then everything of an account."""
    signs_in(browser, _address(provider))
    _give(browser)
    first = _redeem(provider, _come_back(browser)["code"])

    assert provider.revoke_access(first["access_token"])
    gone = provider.introspect(first["access_token"])
    second = _renew(provider, first["refresh_token"])
    assert "access_token" in second
    assert provider.revoke_account(MIRA) == 1

    assert gone == provider.introspect(second["access_token"]) == {"active": False}
    assert _renew(provider, second["refresh_token"])["error"] == "invalid_grant"


def test_a_device_gets_tokens_after_the_person_has_typed_the_code(provider: Provider, browser: Browser) -> None:
    """The request is pending before, and has tokens after; the device is a public application here."""
    asked = provider.post("device_authorization", {"client_id": PUBLIC.id, "scope": "openid email"})
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": asked["device_code"],
        "client_id": PUBLIC.id,
    }

    before = provider.post("token", form)
    types_a_code(browser, asked["verification_uri"], asked["user_code"])
    agrees(browser)
    after = provider.post("token", form)

    assert before["error"] == "authorization_pending"
    assert after["scope"] == "openid email"


def test_the_browser_forgets_what_an_earlier_test_did(provider: Provider, browser: Browser) -> None:
    """Cookies, which all ports of a name share, stored data, appearance and tabs are all gone."""
    kept = "return [document.cookie, localStorage.length, sessionStorage.length]"
    looks = "return [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]"
    page = f"{provider.issuer}/.well-known/openid-configuration"
    first, at_first = browser.tab, browser.script(looks)
    browser.open(page)
    for store in ("localStorage", "sessionStorage"):
        browser.script(f"{store}.setItem('a', 'b')")
    browser.script("document.cookie = 'a=b; max-age=3600; secure'")
    browser.look(dark=True, width=700, height=900)
    before = browser.script(kept), browser.script(looks)
    browser.new_tab()

    browser.forget()
    blank, at_last = browser.url, browser.script(looks)
    browser.open(page)

    assert before == (["a=b", 1, 1], [700, True])
    assert (blank, at_last) == ("about:blank", at_first)
    assert browser.tabs == [browser.tab] == [first]
    assert browser.script(kept) == ["", 0, 0]


def test_the_test_provider_can_go_down_and_come_back_unchanged(provider: Provider) -> None:
    """The port stays the same; a fault is for one response; an application with a secret needs the secret."""
    provider.fault(status=503)
    assert provider.post("token", {}) == {}
    assert provider.post("token", {"client_id": CONFIDENTIAL.id})["error"] == "invalid_client"
    assert provider.asked("token") == [503, 401]
    provider.down()
    with pytest.raises(OSError, match="refused"):
        provider.introspect("x")

    provider.up()

    assert provider.introspect("x") == {"active": False}


def test_the_browser_trusts_only_the_given_key(provider: Provider, tmp_path: Path) -> None:
    """The page is shown if its key is trusted; a browser that trusts another key shows a warning."""
    needs_browser()
    (tmp_path / "other").mkdir()
    _key, other = provider.authority.server_files(tmp_path / "other", "localhost")
    url = f"{provider.issuer}/.well-known/openid-configuration"

    with Browser([provider.certificate]) as browser:
        browser.open(url)
        assert provider.issuer in browser.text()
    with Browser([other]) as browser:
        browser.open(url)
        assert "ERR_CERT_AUTHORITY_INVALID" in browser.text()
