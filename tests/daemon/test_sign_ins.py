"""Sign-ins, until a request carries the token: the daemon's routes, renewal, revocation and consent."""

from __future__ import annotations

import pytest

from tests.support.approver import Approver
from tests.support.signed_in import CONNECTOR, NAME, World, called_back, state_of
from tests.support.token_server import SCOPES, oauth_error

pytestmark = pytest.mark.jail


def test_after_a_sign_in_the_connectors_requests_carry_the_token(world: World) -> None:
    """The provider's callback gets a page and the binding exists; the run's result does not contain the token."""
    begun = world.begin()
    page = called_back(begun["authorize_url"])
    ended = world.end(begun)
    ran = world.ask()

    assert b" 200 " in page.splitlines()[0]
    assert (ended["status"], ended["result"]["name"]) == ("done", NAME)
    assert "authorize_url" not in ended
    assert (ran.status, world.service.tokens) == (200, [world.provider.access[0]])
    assert "hello ********" in ran.body["result"]["seen"]
    shown = world.binding()
    assert (shown["state"], shown["grant"]["scopes"], shown["grant"]["refreshable"]) == ("ok", sorted(SCOPES), True)
    assert world.types("sign_in.started", "sign_in.ended", "binding.created") == [
        "sign_in.started",
        "binding.created",
        "sign_in.ended",
    ]


def test_a_sign_in_on_a_device_without_a_browser_uses_a_code(world: World) -> None:
    """The response has the code to type; the daemon polls the provider until the person has finished."""
    begun = world.begin(flow="device")
    ended = world.end(begun, wait=20.0)

    assert (begun["user_code"], "authorize_url" in begun) == ("WDJB-MJHT", False)
    assert ended["status"] == "done", ended
    assert world.ask().status == 200


def test_a_denial_at_the_provider_is_reported_with_what_to_do(world: World) -> None:
    """The person refused at the provider: nothing is bound, and the error names the command."""
    begun = world.begin()
    called_back(begun["authorize_url"], error="access_denied", state=state_of(begun["authorize_url"]))
    ended = world.end(begun)

    assert (ended["status"], ended["error"]["class"]) == ("failed", "binding_failed")
    assert f"aileron binding setup {CONNECTOR}" in ended["error"]["message"]
    assert world.home.must("GET", "/v1/bindings")["bindings"] == []


def test_a_sign_in_can_be_cancelled_and_begun_again(world: World) -> None:
    """A name has one sign-in at a time; after cancellation its port is closed and the name is free."""
    begun = world.begin()
    busy = world.home.ask("POST", "/v1/sign-ins", {"connector": CONNECTOR, "name": NAME, "flow": "browser"})
    ended = world.home.must("DELETE", f"/v1/sign-ins/{begun['id']}")
    with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
        called_back(begun["authorize_url"])

    assert busy.body["error"]["class"] == "busy"
    assert ended["status"] == "cancelled"
    assert world.sign_in()["status"] == "done"


def test_an_expired_token_is_renewed_before_a_request_is_sent(world: World) -> None:
    """The record has an event before the provider is asked and one after; the service sees only the valid token."""
    world.provider.lifetime_s = 0
    world.sign_in()
    world.provider.lifetime_s = 3600

    assert world.ask().status == 200
    assert world.service.tokens == [world.provider.access[-1]]
    assert world.types("binding.renewing", "binding.renewed") == ["binding.renewing", "binding.renewed"]
    assert world.binding()["refreshed_at"] is not None


def test_a_token_that_the_service_refuses_is_renewed_and_the_request_sent_once_more(world: World) -> None:
    """The service answers 401, and the same request is sent again with a new token: the connector sees only the second
    response, and both requests are on record.
    """
    world.sign_in()
    world.service.accepts = {"canary-access-token-2"}
    ran = world.ask()

    assert ran.status == 200, ran.body
    assert "who are you" not in ran.body["result"]["seen"]
    assert world.service.tokens == world.provider.access[:2]
    finished = [e for e in world.home.events(ran.body["audit_id"]) if e["type"] == "egress.finished"]
    assert [event["status"] for event in finished] == [401, 200]


def test_the_error_for_a_sign_in_revoked_at_the_provider_says_to_sign_in_again(world: World) -> None:
    """The error has class `binding_failed` and names the command; signing in again fixes it."""
    world.provider.lifetime_s = 0
    world.sign_in()
    world.provider.says(oauth_error("invalid_grant"))
    refused = world.ask().body["error"]
    failed = world.binding()["state"]
    world.provider.lifetime_s = 3600
    again = world.sign_in(replace=True)

    assert (refused["class"], failed) == ("binding_failed", "failed")
    assert f"aileron binding reauthorize {NAME}" in refused["message"]
    assert again["status"] == "done", again
    assert world.ask().status == 200


def test_revoking_a_binding_also_revokes_its_tokens_at_the_provider(world: World) -> None:
    """The stored tokens are deleted as well, and the next run has no credential."""
    world.sign_in()
    answered = world.home.must("DELETE", f"/v1/bindings/{NAME}")

    assert answered["at_provider"] == "revoked"
    assert sorted(world.provider.revoked) == sorted([world.provider.access[0], str(world.provider.refresh)])
    assert [secret["name"] for secret in world.home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]
    assert world.ask().body["error"]["class"] == "binding_required"


@pytest.mark.abuse_case("O5")
def test_a_connector_cannot_use_the_token_endpoint(world: World) -> None:
    """The manifest names the endpoint's host: the run fails without a request. Other paths are allowed."""
    world.sign_in()
    before = len(world.provider.asked)
    refused = world.home.run("ask", {"url": world.provider.url("/token"), "method": "POST", "credential": "oauth2"})
    allowed = world.home.run("ask", {"url": world.provider.url("/elsewhere"), "method": "POST", "credential": ""})

    assert refused.body["error"]["class"] == "capability_denied"
    assert refused.body["error"]["details"]["reason"] == "provider_endpoint"
    assert (allowed.status, [request.path for request in world.provider.asked[before:]]) == (200, ["/elsewhere"])


@pytest.mark.abuse_case("O6")
def test_a_connector_version_with_more_scopes_waits_for_a_new_sign_in(world: World) -> None:
    """Rebinding is not enough, because only the provider can grant a scope."""
    world.sign_in()
    world.install("2.0.0", (*SCOPES, "mail.delete"))
    suspended = world.binding()
    refused = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {})

    assert suspended["suspended"] == ["scope mail.delete"]
    assert refused.body["error"]["class"] == "binding_failed"
    assert f"aileron binding reauthorize {NAME}" in refused.body["error"]["message"]
    assert world.ask().status == 200  # the old version, with its approved scopes


def test_the_tokens_of_a_sign_in_are_stored_only_after_the_approvers_consent(world: World, approver: Approver) -> None:
    """The question shows scopes and hosts; the vault has nothing before, and the connector is served afterwards."""
    approver.appoint(world.home)
    ended = world.sign_in()
    meanwhile = world.home.must("GET", "/v1/vault/status")
    waiting = world.ask().body["error"]["class"]
    question = approver.shown(world.home, ended["result"]["approval_id"])["subject"]
    settled = approver.decide(world.home, ended["result"]["approval_id"])

    assert (ended["status"], ended["result"]["kind"]) == ("done", "binding")
    assert (meanwhile["secrets"], meanwhile["bindings"], waiting) == (1, 0, "binding_required")
    assert (question["scopes"], question["replaces"]) == (sorted(SCOPES), False)
    assert f"localhost:{world.service.upstream.port}" in question["reaches"]
    assert settled.body["status"] == "completed", settled.body
    assert world.ask().status == 200


def test_a_sign_in_that_waits_for_consent_is_lost_at_a_restart(world: World, approver: Approver) -> None:
    """The tokens were only in memory, so the person is told to sign in again."""
    approver.appoint(world.home)
    ended = world.sign_in()
    approval_id = ended["result"]["approval_id"]
    world.home.stop()
    world.home.unlock()
    settled = approver.decide(world.home, approval_id).body

    assert (settled["status"], settled["error"]["class"]) == ("failed", "invalid_request")
    assert "aileron binding setup" in settled["error"]["message"]
    assert world.home.must("GET", "/v1/bindings")["bindings"] == []


def test_an_outage_of_the_provider_does_not_end_a_sign_in(world: World) -> None:
    """The connector gets a network error; the same grant works once the provider is back."""
    world.provider.lifetime_s = 0
    world.sign_in()
    world.provider.says(oauth_error("server_error", "503 Service Unavailable"))
    down = world.ask().body["result"]["seen"]
    asked = len(world.service.tokens)
    world.provider.lifetime_s = 3600
    world.home.stop()
    world.home.unlock()
    back = world.ask()

    assert "NetworkError" in down, down
    assert (asked, back.status) == (0, 200)


def test_a_sign_in_for_a_login_needs_a_user_name(world: World) -> None:
    """The provider did not name the account: the error says what to add, and with a user name the login is bound. A
    sign-in without a login refuses a user name before the provider is involved.
    """
    refused = world.home.ask(
        "POST", "/v1/sign-ins", {"connector": CONNECTOR, "name": NAME, "flow": "browser", "username": "me@example.com"}
    )
    world.install("2.0.0", logs_in="imap.example:993")
    nobody = world.sign_in()
    nothing = world.home.must("GET", "/v1/bindings")["bindings"]
    somebody = world.sign_in(username="me@example.com")
    again = world.sign_in(replace=True)

    assert refused.body["error"]["class"] == "bad_input"
    assert (nobody["status"], nobody["error"]["class"], nothing) == ("failed", "binding_failed", [])
    assert f"aileron binding setup {CONNECTOR} --name {NAME} --username USER" in nobody["error"]["message"]
    assert (somebody["status"], again["status"]) == ("done", "done")
    shown = world.binding()
    assert shown["username"] == "me@example.com"
    assert shown["reach"]["wire"] == "oauth2 login imap+tls://imap.example:993"
