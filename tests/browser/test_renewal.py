"""Renewal of a grant at a provider whose refresh tokens rotate: in time, once for many runs, and never lost silently.

No test sleeps until an access token has ended: it asks the provider whether the token is still valid.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aileron.client import Answer, Client, DaemonUnreachable
from tests.browser.desk import MINE, Desk, desk
from tests.browser.person import MIRA
from tests.support.browser import Browser
from tests.support.crashing_daemon import crashing_daemon
from tests.support.provider import Provider
from tests.support.skewed_daemon import skewed_daemon
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.jail]
PATIENCE_S = 30.0


@pytest.fixture
def connected(at_desk: Desk, browser: Browser) -> Desk:
    """Provide a home with an account whose access token lasts an hour."""
    at_desk.sign_in(browser)
    return at_desk


@pytest.fixture
def ended(at_desk: Desk, browser: Browser) -> Desk:
    """Provide a home with an account whose first access token has expired; the next ones last an hour."""
    return end_token(at_desk, browser)


def end_token(at_desk: Desk, browser: Browser) -> Desk:
    """Sign in, and wait until the first access token has expired; the next ones last an hour."""
    at_desk.provider.access_ttl(1)
    at_desk.sign_in(browser)
    at_desk.provider.access_ttl(3600)
    (token,) = at_desk.provider.tokens("access_token")
    wait_until(lambda: not at_desk.provider.introspect(token)["active"], "the token ends")
    ends_ms = at_desk.binding()["grant"]["expires_ms"]  # the provider counts whole seconds
    wait_until(lambda: time.time() * 1000 > ends_ms, "the token ends by our account too")
    return at_desk


def in_background(at_desk: Desk) -> tuple[threading.Thread, list[Answer | BaseException]]:
    """Start a run in a thread. Return the thread and the list that gets the outcome."""
    came: list[Answer | BaseException] = []

    def run() -> None:
        try:
            came.append(
                Client(at_desk.home.path).request("POST", "/v1/actions/whoami/run?wait=20", {"args": {}}, wait_s=20)
            )
        except (DaemonUnreachable, OSError, ValueError) as error:  # the daemon it asks is killed
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, came


def test_an_expired_token_is_renewed_before_it_is_sent(ended: Desk) -> None:
    """The service never sees the old token; the provider gave a new refresh token; the next run needs no renewal."""
    first = ended.whoami()
    second = ended.whoami()

    assert first.body["result"]["account"] == second.body["result"]["account"] == MIRA
    assert ended.mail.refused == 0
    assert ended.provider.asked("token") == [200, 200]
    assert len(set(ended.provider.tokens("refresh_token"))) == 2
    assert ended.binding()["refreshed_at"] is not None


def test_many_concurrent_runs_cause_one_token_renewal(ended: Desk) -> None:
    """A rotating provider would end the grant if it got the old refresh token twice."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: Client(ended.home.path).request("POST", _RUN, {"args": {}}, wait_s=20), range(8))
        )

    assert [answer.body["result"]["account"] for answer in answers] == [MIRA] * 8
    assert ended.provider.asked("token") == [200, 200]


_RUN = "/v1/actions/whoami/run?wait=20"


def test_a_refused_token_is_renewed_once_and_the_request_repeated(connected: Desk) -> None:
    """The provider revoked it: after a 401 and a renewal the request is sent once more, and both are recorded."""
    (token,) = connected.provider.tokens("access_token")
    assert connected.provider.revoke_access(token)

    answered = connected.home.run("send", {"text": "hello"})

    assert answered.status == 200, answered.body
    assert connected.mail.sent == [(MIRA, "hello")]
    assert connected.mail.refused == 1
    assert connected.provider.asked("token") == [200, 200]
    types = [event["type"] for event in connected.home.events(answered.body["audit_id"])]
    assert types.count("egress.sending") == 2


def test_a_withdrawn_grant_is_reported_and_fixed_by_a_new_sign_in(connected: Desk, browser: Browser) -> None:
    """The person withdrew it at the provider, so no renewal helps; the error has the command that does."""
    assert connected.provider.revoke_account(MIRA) == 1

    refused = connected.whoami()
    failed = connected.binding()
    connected.sign_in(browser, replace=True)

    error = refused.body["error"]
    assert (error["class"], error["retriable"]) == ("binding_failed", False)
    assert f"aileron binding reauthorize {MINE}" in error["message"]
    assert failed["state"] == "failed"
    assert connected.whoami().body["result"]["account"] == MIRA


def test_a_run_succeeds_again_after_the_providers_outage(ended: Desk) -> None:
    """The failed run says that it can be repeated; later it works without a new sign-in."""
    ended.provider.down()
    failed = ended.home.run("look-again")
    ended.provider.up()

    assert (failed.body["error"]["class"], failed.body["error"]["retriable"]) == ("network_error", True)
    wait_until(lambda: not ended.whoami().is_error, "it works again")


def test_a_run_retries_a_failed_token_renewal_if_its_step_may_be_repeated(ended: Desk) -> None:
    """A step that must not be repeated fails with the reason."""
    ended.provider.fault(status=503)
    failed = ended.whoami()
    again = ended.home.run("look-again")

    assert failed.body["error"]["class"] == "network_error"
    assert "is not working at the moment" in failed.body["error"]["message"]
    assert again.body["result"]["account"] == MIRA
    assert ended.provider.asked("token") == [200, 503, 200]


def test_a_revoked_binding_is_also_revoked_at_the_provider(connected: Desk) -> None:
    """Both tokens are invalid at the provider, and the binding is gone from the vault."""
    access, refresh = (connected.provider.tokens(kind)[0] for kind in ("access_token", "refresh_token"))
    before = connected.provider.introspect(access), connected.provider.introspect(refresh)

    answered = connected.home.must("DELETE", f"/v1/bindings/{MINE}")

    assert [token["active"] for token in before] == [True, True]
    assert answered["at_provider"] == "revoked"
    assert connected.provider.introspect(access) == connected.provider.introspect(refresh) == {"active": False}
    assert connected.whoami().body["error"]["class"] == "binding_required"


def test_a_binding_can_be_revoked_although_the_provider_is_down(connected: Desk) -> None:
    """The response reports the outage, and the tokens are forgotten all the same."""
    connected.provider.down()

    answered = connected.home.must("DELETE", f"/v1/bindings/{MINE}")

    assert answered["at_provider"].startswith("failed: ")
    assert connected.home.must("GET", "/v1/bindings") == {"bindings": []}


def test_revoking_a_binding_reports_that_its_provider_has_no_revocation(
    provider: Provider, browser: Browser, tmp_path: Path
) -> None:
    """The token stays valid there until it expires."""
    with desk(provider, tmp_path, revocation=False) as at_desk:
        at_desk.sign_in(browser)

        answered = at_desk.home.must("DELETE", f"/v1/bindings/{MINE}")

        assert answered["at_provider"] == "not offered"
        assert provider.introspect(provider.tokens("access_token")[0])["active"]


# A daemon that dies


def test_a_kill_before_the_provider_renews_loses_no_token(ended: Desk) -> None:
    """The refresh token is still valid, and the next daemon renews with it."""
    ended.provider.fault(stall=True)
    thread, _came = in_background(ended)
    wait_until(ended.provider.held, "the provider is asked")
    ended.home.kill()
    thread.join(PATIENCE_S)
    ended.provider.release()
    ended.home.unlock()

    assert ended.whoami().body["result"]["account"] == MIRA


def test_a_kill_after_the_provider_renewed_is_reported_by_the_next_run(ended: Desk, browser: Browser) -> None:
    """The new tokens were lost on their way: the error says what to do, and a new sign-in helps."""
    ended.provider.fault(hold=True)
    thread, _came = in_background(ended)
    wait_until(ended.provider.held, "the provider has answered")
    ended.home.kill()
    thread.join(PATIENCE_S)
    ended.provider.release()
    ended.home.unlock()

    refused = ended.whoami()
    ended.sign_in(browser, replace=True)

    error = refused.body["error"]
    assert error["class"] == "binding_failed"
    assert "was interrupted before its answer was stored" in error["message"]
    assert f"aileron binding reauthorize {MINE}" in error["message"]
    assert ended.whoami().body["result"]["account"] == MIRA


@pytest.mark.parametrize(
    ("point", "is_lost"),
    [
        ("before_renewal_note", False),
        ("after_renewal_note", False),
        ("before_new_tokens", True),
        ("after_new_tokens", False),
    ],
)
def test_a_kill_at_each_step_of_a_renewal_is_recovered_or_reported(ended: Desk, point: str, is_lost: bool) -> None:
    """Tokens are lost only between the provider's response and the write, and then the error says so."""
    ended.home.stop()
    with crashing_daemon(ended.home.path, point, 1) as daemon:
        ended.home.unlock()
        thread, _came = in_background(ended)
        daemon.wait(PATIENCE_S)
        thread.join(PATIENCE_S)
    ended.home.unlock()

    answered = ended.whoami()

    if is_lost:
        assert answered.body["error"]["class"] == "binding_failed"
        assert "was interrupted" in answered.body["error"]["message"]
    else:
        assert answered.body["result"]["account"] == MIRA
    assert ended.home.must("GET", "/v1/audit/verify")["ok"]


def test_a_token_renewal_whose_response_was_lost_is_reported(ended: Desk) -> None:
    """The old refresh token is no longer valid, and the error says why."""
    ended.provider.fault(drop=True)

    first = ended.whoami()

    assert first.body["error"]["class"] == "network_error"

    def over() -> bool:
        return bool(ended.whoami().body["error"]["class"] == "binding_failed")

    wait_until(over, "the provider is asked again")
    assert "was interrupted" in ended.whoami().body["error"]["message"]


def test_two_daemons_that_race_for_one_home_renew_only_once(ended: Desk) -> None:
    """The second daemon does not get the home during the first one's renewal; the provider is asked once."""
    ended.home.stop()
    clients = [Client(ended.home.path), Client(ended.home.path)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda client: client.request("GET", "/healthz"), clients))
    ended.home.unlock()
    ended.provider.fault(hold=True)
    thread, came = in_background(ended)
    wait_until(ended.provider.held, "the provider has answered")
    pid = ended.home.daemon_pid
    clients[1].start()
    ended.provider.release()
    thread.join(PATIENCE_S)

    assert ended.home.daemon_pid == pid
    assert isinstance(came[0], Answer)
    assert came[0].body["result"]["account"] == MIRA
    assert ended.provider.asked("token") == [200, 200]


# A clock that is wrong

DAY_S = 86400.0


@pytest.mark.parametrize("offset_s", [DAY_S, -DAY_S])
def test_a_clock_that_is_wrong_by_a_day_costs_only_a_renewal(ended: Desk, offset_s: float) -> None:
    """A day ahead, every token seems expired; a day behind, an expired one is renewed when the service refuses it."""
    ended.home.stop()
    with skewed_daemon(ended.home.path, offset_s):
        ended.home.unlock()
        answers = [ended.whoami() for _ in range(3)]

    assert [answer.body.get("result", answer.body)["account"] for answer in answers] == [MIRA] * 3
    assert ended.mail.refused == (offset_s < 0)
    assert ended.provider.asked("token") == [200, 200]


@pytest.mark.parametrize("offset_s", [DAY_S, -DAY_S])
def test_an_account_can_be_connected_with_a_wrong_clock(at_desk: Desk, browser: Browser, offset_s: float) -> None:
    """The identity check does not compare the provider's times with ours; the account works with the right clock."""
    at_desk.home.stop()
    with skewed_daemon(at_desk.home.path, offset_s):
        at_desk.home.unlock()
        at_desk.sign_in(browser)
        wrong = at_desk.whoami()
    at_desk.home.unlock()

    assert wrong.body["result"]["account"] == MIRA
    assert at_desk.whoami().body["result"]["account"] == MIRA
