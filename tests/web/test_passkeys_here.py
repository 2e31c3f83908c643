"""Passkeys at the page, without a browser: the checks before a challenge is given, and again when it is answered."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.home import DaemonHome
from tests.support.paged import Form, PageClient, Reply, port_of
from tests.support.passkeys import Device
from tests.support.told import state
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

_SHARED = """
import http.client, os, signal, sys, time
port, is_shared = int(sys.argv[1]), sys.argv[2] == "1"
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
connection.connect()
child = os.fork() if is_shared else None
if child == 0:
    time.sleep(30)
    os._exit(0)
fields = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}", "Content-Type": "application/x-www-form-urlencoded"}
connection.request("POST", "/approvals/passkeys/unlocking", b"", fields)
answer = connection.getresponse()
print(answer.status, answer.headers["Content-Type"].split()[0])
if child:
    os.kill(child, signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def device(home: DaemonHome) -> Device:
    """Make a device with a passkey that the approver's key enrolled on the page."""
    made = Device(home)
    asked = made.made().body
    person = PageClient(home)
    confirm = person.submit(person.unlock(to=asked["approval_id"]).form("/approve")).form("/decide")
    person.submit(confirm, **({"word": "allow"} if "word" in confirm.fields else {}))
    assert [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]] == [made.key_id]
    return made


def answered(device: Device, told: dict[str, Any]) -> dict[str, str]:
    """Return the fields that the page's script adds to a form."""
    (asked,) = told["statements"]
    signature = device.answer(asked["publicKey"]["challenge"]).spelled()
    return {"at": told["at"], "key_id": asked["key_id"], "signature": signature}


def touched(stranger: PageClient, device: Device, to: str = "", **lie: str) -> Reply:
    """Unlock the page with the passkey, or try to with false fields."""
    told = json.loads(stranger.post("/approvals/passkeys/unlocking", {}).text)
    fields = {"to": to, "nonce": told["nonce"], **answered(device, told), **lie}
    answer = stranger.post("/approvals/passkeys/unlock", fields)
    return stranger.get(answer.headers["location"]) if answer.status == 303 else answer


def challenged(client: PageClient, form: Form, **values: str) -> Reply:
    """Return what the page's script is told for a form."""
    return client.post(form.action.replace("/decide", "/challenge"), {**form.fields, **values})


def test_reloading_a_preview_makes_earlier_passkey_challenges_invalid(
    home: DaemonHome, stranger: PageClient, device: Device, upstream: CountingServer
) -> None:
    """The earlier form gets no challenge, and an answer to an earlier challenge decides nothing."""
    upstream.page = "90 to mira"
    asked = home.asked("previewed", {"path": "/effect/anew"})
    page = touched(stranger, device, asked["approval_id"])
    assert "90 to mira" in page.words
    old = page.form("/decide", decision="deny")
    told = json.loads(challenged(stranger, old).text)
    upstream.page = "9000 to mira"
    page = stranger.submit(page.form("/preview"))
    assert "9000 to mira" in page.words
    refused = challenged(stranger, old)
    assert refused.status == 409
    assert "has changed since the page was shown" in refused.words
    refused = stranger.post(old.action, {**old.fields, **answered(device, told)})
    assert refused.status == 409
    assert state(home, asked) == "pending_approval"
    new = page.form("/decide", decision="deny")
    told = json.loads(challenged(stranger, new).text)
    assert stranger.post(new.action, {**new.fields, **answered(device, told)}).status == 303
    assert state(home, asked) == "denied"


def test_a_passkey_challenge_needs_the_token_and_the_typed_word_of_the_form(
    home: DaemonHome, stranger: PageClient, device: Device
) -> None:
    """The checks are those of the decision: a wrong token, another form's token, a missing word, an unsigned reason."""
    asked = home.asked("gated")
    page = touched(stranger, device, asked["approval_id"])
    confirm = stranger.submit(page.form("/approve")).form("/decide")
    deny = page.form("/decide", decision="deny")
    for form, values in (
        (confirm, {"token": "0" * 64, "word": "yes"}),
        (confirm, {"token": deny.fields["token"], "word": "yes"}),
        (confirm, {"word": "ye"}),
        (confirm, {"digest": f"sha256:{'0' * 64}", "word": "yes"}),
    ):
        refused = challenged(stranger, form, **values)
        assert refused.status in (400, 403), (values, refused.status)
        assert "text/html" in refused.headers["content-type"]  # a page that says why
    told = json.loads(challenged(stranger, deny, reason="no").text)
    other = stranger.post(deny.action, {**deny.fields, **answered(device, told), "reason": "yes"})
    assert other.status == 401
    told = json.loads(challenged(stranger, confirm, word="yes").text)
    without = stranger.post(confirm.action, {**confirm.fields, **answered(device, told)})
    assert without.status == 400
    assert state(home, asked) == "pending_approval"
    done = stranger.post(confirm.action, {**confirm.fields, **answered(device, told), "word": "yes"})
    assert done.status == 303
    assert home.result(asked)["status"] == "completed"


def test_a_page_unlocked_by_a_passkey_decides_nothing_without_a_touch(
    home: DaemonHome, stranger: PageClient, device: Device
) -> None:
    """The session has no key, so a form without the passkey's answer is refused."""
    asked = home.asked("mild")
    form = touched(stranger, device, asked["approval_id"]).form("/decide", decision="deny")
    refused = stranger.post(form.action, form.fields)
    assert refused.status == 403
    assert "needs a passkey" in refused.words
    assert state(home, asked) == "pending_approval"


def test_a_passkeys_answer_unlocks_the_page_once_and_only_for_its_nonce(home: DaemonHome, device: Device) -> None:
    """The answer is refused if it is repeated, has another nonce, time or key, or comes from another site."""
    first, second = PageClient(home), PageClient(home)
    told = json.loads(first.post("/approvals/passkeys/unlocking", {}).text)
    fields = {"to": "", "nonce": told["nonce"], **answered(device, told)}
    assert first.post("/approvals/passkeys/unlock", fields).status == 303
    assert second.post("/approvals/passkeys/unlock", fields).status == 401
    for lie in ({"nonce": "0" * 32}, {"at": "2026-01-01T00:00:00.000Z"}, {"key_id": f"webauthn:{'0' * 32}"}):
        assert touched(second, device, **lie).status == 401
    for path in ("unlocking", "unlock", "options", "register", "revoke"):
        for headers in ({"Origin": None}, {"Origin": "http://localhost:1"}, {"Sec-Fetch-Site": "same-site"}):
            assert first.post(f"/approvals/passkeys/{path}", {}, **headers).status == 403
    assert second.cookie is None


def test_adding_and_revoking_a_passkey_takes_the_page_sessions_token(
    home: DaemonHome, person: PageClient, device: Device
) -> None:
    """Adding also takes the approver's key, which a session of a passkey does not have."""
    page = person.get("/approvals/passkeys")
    add, revoke = page.form("/register"), page.form("/revoke", key_id=device.key_id)
    for path, fields in (
        ("options", {"token": revoke.fields["token"], "name": "mine"}),
        ("register", {**add.fields, "token": "0" * 64, "client_data": "", "attestation": "", "made": ""}),
        ("revoke", {"token": add.fields["token"], "key_id": device.key_id}),
    ):
        assert person.post(f"/approvals/passkeys/{path}", fields).status == 403
    told = person.post("/approvals/passkeys/options", {"token": add.fields["token"], "name": "mine"})
    assert json.loads(told.text)["publicKey"]["authenticatorSelection"]["userVerification"] == "required"
    without = PageClient(home)
    touched(without, device)
    assert not [form for form in without.get("/approvals/passkeys").forms if "register" in form.action]
    assert [passkey["id"] for passkey in home.must("GET", "/v1/passkeys")["passkeys"]] == [device.key_id]


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_a_process_that_cannot_be_identified_gets_no_passkey_challenge(
    home: DaemonHome, device: Device, is_shared: bool
) -> None:
    """Two processes share a connection, or the process hides, so nobody can say which one would be unlocked."""
    port = port_of(home)
    since = len(home.must("GET", "/v1/audit?type=approval.refused&limit=1000")["events"])
    words = [sys.executable, "-c", _SHARED, str(port), str(int(is_shared))]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    refused = home.must("GET", "/v1/audit?type=approval.refused&limit=1000&order=oldest")["events"][since:]

    assert said == (["403", "text/html;"] if is_shared else ["200", "application/json"])
    assert [(event["decision"], event["reason"]) for event in refused] == ([("unlock", "process")] if is_shared else [])
