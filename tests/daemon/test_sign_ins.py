"""From a sign-in to a request that carries its token: the daemon's routes, renewal, revocation, and who agrees to it."""

from __future__ import annotations

import pytest

from tests.support.approver import Approver
from tests.support.signed_in import CONNECTOR, NAME, World, called_back, state_of
from tests.support.token_server import SCOPES, oauth_error

pytestmark = pytest.mark.jail


def test_a_person_signs_in_and_the_connector_is_served(world: World) -> None:
    """The address is said, the page answers, the binding is there; the request carries the token, the answer does not."""
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


def test_a_device_without_a_browser_is_signed_in_by_code(world: World) -> None:
    """What to type and where is said; the provider is asked until it has an answer."""
    begun = world.begin(flow="device")
    ended = world.end(begun, wait=20.0)

    assert (begun["user_code"], "authorize_url" in begun) == ("WDJB-MJHT", False)
    assert ended["status"] == "done", ended
    assert world.ask().status == 200


def test_what_the_provider_says_no_to_is_told_with_what_to_do(world: World) -> None:
    """The person pressed no: nothing is bound, the class and the sentence say so."""
    begun = world.begin()
    called_back(begun["authorize_url"], error="access_denied", state=state_of(begun["authorize_url"]))
    ended = world.end(begun)

    assert (ended["status"], ended["error"]["class"]) == ("failed", "binding_failed")
    assert f"aileron binding setup {CONNECTOR}" in ended["error"]["message"]
    assert world.home.must("GET", "/v1/bindings")["bindings"] == []


def test_a_sign_in_can_be_given_up_and_begun_again(world: World) -> None:
    """One name once at a time; after it is cancelled its port is closed and the name is free."""
    begun = world.begin()
    busy = world.home.ask("POST", "/v1/sign-ins", {"connector": CONNECTOR, "name": NAME, "flow": "browser"})
    ended = world.home.must("DELETE", f"/v1/sign-ins/{begun['id']}")
    with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
        called_back(begun["authorize_url"])

    assert busy.body["error"]["class"] == "busy"
    assert ended["status"] == "cancelled"
    assert world.sign_in()["status"] == "done"


def test_a_token_that_ended_is_renewed_before_it_is_sent(world: World) -> None:
    """On record before the provider is asked and after; the service sees only what counts."""
    world.provider.lifetime_s = 0
    world.sign_in()
    world.provider.lifetime_s = 3600

    assert world.ask().status == 200
    assert world.service.tokens == [world.provider.access[-1]]
    assert world.types("binding.renewing", "binding.renewed") == ["binding.renewing", "binding.renewed"]
    assert world.binding()["refreshed_at"] is not None


def test_a_token_that_the_service_refuses_is_renewed_once(world: World) -> None:
    """401, a renewal, and the same request again: the connector sees the second answer alone, both are on record."""
    world.sign_in()
    world.service.accepts = {"canary-access-token-2"}
    ran = world.ask()

    assert ran.status == 200, ran.body
    assert "who are you" not in ran.body["result"]["seen"]
    assert world.service.tokens == world.provider.access[:2]
    finished = [e for e in world.home.events(ran.body["audit_id"]) if e["type"] == "egress.finished"]
    assert [event["status"] for event in finished] == [401, 200]


def test_a_grant_that_was_ended_at_the_provider_says_to_sign_in_again(world: World) -> None:
    """`binding_failed` with the command; and that command's route mends it."""
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


def test_a_revoked_sign_in_is_taken_back_at_the_provider_too(world: World) -> None:
    """Both tokens there, the stored ones here; the next run has no credential."""
    world.sign_in()
    answered = world.home.must("DELETE", f"/v1/bindings/{NAME}")

    assert answered["at_provider"] == "revoked"
    assert sorted(world.provider.revoked) == sorted([world.provider.access[0], str(world.provider.refresh)])
    assert [one["name"] for one in world.home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]
    assert world.ask().body["error"]["class"] == "binding_required"


def test_a_connector_cannot_ask_the_provider_itself(world: World) -> None:
    """The endpoint is on a host that it declares; the invocation ends, and the provider hears nothing."""
    world.sign_in()
    before = len(world.provider.asked)
    refused = world.home.run("ask", {"url": world.provider.url("/token"), "method": "POST", "credential": "oauth2"})
    allowed = world.home.run("ask", {"url": world.provider.url("/elsewhere"), "method": "POST", "credential": ""})

    assert refused.body["error"]["class"] == "capability_denied"
    assert refused.body["error"]["details"]["reason"] == "provider_endpoint"
    assert (allowed.status, [one.path for one in world.provider.asked[before:]]) == (200, ["/elsewhere"])


def test_a_version_that_wants_more_scopes_waits_until_the_person_signs_in_again(world: World) -> None:
    """Binding anew is not enough: only the provider can grant a scope."""
    world.sign_in()
    world.install("2.0.0", (*SCOPES, "mail.delete"))
    suspended = world.binding()
    refused = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {})

    assert suspended["suspended"] == ["scope mail.delete"]
    assert refused.body["error"]["class"] == "binding_failed"
    assert f"aileron binding reauthorize {NAME}" in refused.body["error"]["message"]
    assert world.ask().status == 200  # the old version, as it was agreed to


def test_where_somebody_signs_the_tokens_are_stored_when_they_agree(world: World, approver: Approver) -> None:
    """They are shown scopes and hosts; before, nothing is in the vault; after, the connector is served."""
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


def test_a_sign_in_that_the_daemon_forgot_is_not_bound(world: World, approver: Approver) -> None:
    """The tokens were in memory alone: the person is told to sign in again, and nothing is bound."""
    approver.appoint(world.home)
    ended = world.sign_in()
    approval_id = ended["result"]["approval_id"]
    world.home.stop()
    world.home.unlock()
    settled = approver.decide(world.home, approval_id).body

    assert (settled["status"], settled["error"]["class"]) == ("failed", "invalid_request")
    assert "aileron binding setup" in settled["error"]["message"]
    assert world.home.must("GET", "/v1/bindings")["bindings"] == []


def test_a_provider_that_cannot_be_reached_loses_nothing(world: World) -> None:
    """The connector is told that it is the network; and the same grant works once it is back."""
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


def test_a_sign_in_that_logs_in_needs_to_know_as_whom(world: World) -> None:
    """The provider did not name the account: the sign-in says what to add, and with a user name it is bound. Elsewhere a name is
    refused before anybody is sent to a provider.
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
