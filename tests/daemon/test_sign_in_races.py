"""Changes while a person is at the provider, or before they approve: nothing is bound that they were not shown.

Minutes pass between a sign-in and its binding, and its question is in a file that other programs of the user can write.
"""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import threading
from typing import Any

import msgspec
import pytest

from aileron.client import Answer
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.failure import AileronError
from tests.support.approver import Approver
from tests.support.signed_in import CONNECTOR, NAME, World, called_back
from tests.support.token_server import id_token, json_answer, tokens_answer

pytestmark = pytest.mark.jail

OWN = "canary-access-token-of-the-person"
THEIRS = "canary-access-token-of-somebody-else"


def signed_in_as(world: World, account: str, access: str, name: str = NAME, **more: Any) -> dict[str, Any]:
    """Sign in with an account that the provider names, and return the result."""
    claims = {"iss": world.provider.url(""), "aud": "client-of-the-publisher", "email": account}
    said = tokens_answer(access_token=access, refresh_token=f"{access}-refresh", id_token=id_token(claims))
    world.provider.says(json_answer(said))
    ended = world.sign_in(name, **more)
    assert ended["status"] == "done", ended
    result: dict[str, Any] = ended["result"]
    return result


def store(world: World, name: str, value: bytes) -> Answer:
    """Store a secret."""
    return world.home.ask("PUT", f"/v1/secrets/{name}", {"value_base64": base64.b64encode(value).decode()})


def sent(world: World) -> str:
    """Return the token that the service is sent."""
    world.service.accepts = {OWN, THEIRS}
    world.ask()
    return world.service.tokens[-1]


def subject_of(world: World, approval_id: str) -> dict[str, Any]:
    """Return the subject of a question."""
    found: dict[str, Any] = world.home.must("GET", f"/v1/action-approvals/{approval_id}")["subject"]
    return found


def forge(world: World, approval_id: str, about: dict[str, Any]) -> None:
    """Replace a question's subject, as a program could that writes the ledger's file."""
    with contextlib.closing(sqlite3.connect(world.home.path / "ledger.db")) as ledger, ledger:
        ledger.execute(
            "UPDATE approvals SET subject = ?, digest = ? WHERE id = ?",
            (msgspec.json.encode(about, order="sorted"), sha256_digest(canonical_json(about)), approval_id),
        )


def outcome(answer: Answer) -> tuple[Any, Any]:
    """Return how an approved question ended, and its failure class."""
    return answer.body.get("status"), (answer.body.get("error") or {}).get("class")


@pytest.mark.abuse_case("O17")
def test_a_binding_made_during_a_sign_in_is_not_replaced(world: World) -> None:
    """A sign-in for a free name replaces nothing; once the name is free again, it binds."""
    begun = world.begin()
    assert not store(world, "own", OWN.encode()).is_error
    world.home.must("POST", "/v1/bindings", {"connector": CONNECTOR, "name": NAME, "secret": "own"})
    called_back(begun["authorize_url"])
    ended = world.end(begun)

    assert (ended["status"], ended["error"]["class"]) == ("failed", "invalid_request"), ended
    assert (world.binding()["secret"], sent(world)) == ("own", OWN)
    world.home.must("DELETE", f"/v1/bindings/{NAME}")
    assert world.sign_in()["status"] == "done"


@pytest.mark.abuse_case("O17")
def test_a_binding_revoked_during_a_sign_in_stays_revoked(world: World) -> None:
    """Signing in again is for that binding only; once it is gone, nothing takes its place."""
    world.sign_in()
    begun = world.begin(replace=True)
    world.home.must("DELETE", f"/v1/bindings/{NAME}")
    called_back(begun["authorize_url"])
    ended = world.end(begun)

    assert (ended["status"], ended["error"]["class"]) == ("failed", "not_found"), ended
    assert world.home.must("GET", "/v1/bindings")["bindings"] == []
    assert [secret["name"] for secret in world.home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]


@pytest.mark.abuse_case("O17")
def test_two_pending_sign_ins_for_one_name_are_not_mixed_up(world: World, approver: Approver) -> None:
    """A person approves both: the first is bound, and the second fails without changing its account or token."""
    approver.appoint(world.home)
    first = signed_in_as(world, "me@example.test", OWN)
    second = signed_in_as(world, "other@example.test", THEIRS)

    agreed = [outcome(approver.decide(world.home, sign_in["approval_id"])) for sign_in in (first, second)]

    assert agreed == [("completed", None), ("failed", "hash_mismatch")]
    assert (world.binding()["account"], sent(world)) == ("me@example.test", OWN)


@pytest.mark.abuse_case("O17")
def test_a_sign_in_does_not_overwrite_a_secret_that_took_its_name_meanwhile(world: World, approver: Approver) -> None:
    """The question names where the tokens would be stored; when it is approved, another secret has that name.

    A person has approved that as well: while a question names the secret, another value is not stored without approval.
    """
    approver.appoint(world.home)
    question = signed_in_as(world, "me@example.test", OWN)
    name = subject_of(world, question["approval_id"])["secret"]
    theirs = store(world, name, THEIRS.encode())
    assert theirs.status == 202
    approver.agree(world.home, theirs)
    agreed = outcome(approver.decide(world.home, question["approval_id"]))
    world.home.must("POST", "/v1/bindings", {"connector": CONNECTOR, "name": NAME, "secret": name})

    assert agreed == ("failed", "invalid_request")


@pytest.mark.abuse_case("O18")
def test_an_approved_rebind_fails_if_the_bindings_account_changed_after_the_question(
    world: World, approver: Approver
) -> None:
    """The name is bound to another account while the question is pending: the approval must not apply to that."""
    signed_in_as(world, "me@example.test", OWN)
    approver.appoint(world.home)
    stale = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {}).body["approval_id"]
    other = signed_in_as(world, "other@example.test", THEIRS, replace=True)
    assert outcome(approver.decide(world.home, other["approval_id"])) == ("completed", None)
    shown = subject_of(world, stale)["account"]
    late = outcome(approver.decide(world.home, stale))
    anew = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {})

    assert (shown, late) == ("me@example.test", ("failed", "hash_mismatch"))
    assert approver.agree(world.home, anew)["status"] == "completed"  # the control
    assert world.binding()["account"] == "other@example.test"


@pytest.mark.abuse_case("O18")
@pytest.mark.parametrize("lie", ["account", "connector", "name", "secret", "replaces"])
def test_the_tokens_of_a_sign_in_are_bound_only_as_shown(world: World, approver: Approver, lie: str) -> None:
    """A question with forged text about the same tokens is approved: nothing is bound. The true question binds."""
    approver.appoint(world.home)
    question = signed_in_as(world, "other@example.test", THEIRS)
    true = subject_of(world, question["approval_id"])
    lies = {
        "account": "me@example.test",
        "connector": "github://aileron-tests/another",
        "name": "oauth2/mail/boss",
        "secret": "pw",
        "replaces": True,
    }
    forge(world, question["approval_id"], {**true, lie: lies[lie]})
    status, _ = outcome(approver.decide(world.home, question["approval_id"]))
    bound = world.home.must("GET", "/v1/bindings")["bindings"]
    again = signed_in_as(world, "me@example.test", OWN)

    assert (status, bound) == ("failed", [])
    assert outcome(approver.decide(world.home, again["approval_id"])) == ("completed", None)


@pytest.mark.abuse_case("O18")
def test_the_tokens_of_a_sign_in_cannot_be_stored_as_an_ordinary_secret(world: World, approver: Approver) -> None:
    """A forged question names the tokens as a secret's new value; a service would then be sent all of them."""
    assert not store(world, "own", OWN.encode()).is_error
    plain = {"connector": CONNECTOR, "name": "oauth2/mail/plain", "secret": "own"}
    world.home.must("POST", "/v1/bindings", plain)
    approver.appoint(world.home)
    waits = signed_in_as(world, "me@example.test", THEIRS)
    commitment = subject_of(world, waits["approval_id"])["commitment"]
    asked = store(world, "own", b"canary-another-value").body["approval_id"]
    forge(world, asked, {**subject_of(world, asked), "commitment": commitment})
    lied = outcome(approver.decide(world.home, asked))

    assert lied == ("failed", "invalid_request")
    assert sent(world) == OWN
    kept = outcome(approver.decide(world.home, waits["approval_id"]))
    assert kept == ("completed", None)  # they are bound by their own question


@pytest.mark.abuse_case("O18")
def test_the_tokens_of_a_denied_sign_in_are_discarded(world: World, approver: Approver) -> None:
    """A copy of its question, forged in the place of another and approved by mistake, finds no tokens to bind."""
    approver.appoint(world.home)
    denied = signed_in_as(world, "other@example.test", THEIRS)
    about = subject_of(world, denied["approval_id"])
    assert outcome(approver.decide(world.home, denied["approval_id"], "deny"))[0] == "denied"
    other = signed_in_as(world, "me@example.test", OWN, "oauth2/mail/other")
    forge(world, other["approval_id"], about)
    again = outcome(approver.decide(world.home, other["approval_id"]))
    waits = signed_in_as(world, "me@example.test", OWN)

    assert again == ("failed", "invalid_request")
    assert outcome(approver.decide(world.home, waits["approval_id"])) == ("completed", None)  # the control


def test_a_revocation_is_recorded_although_the_daemon_stops_meanwhile(world: World) -> None:
    """The daemon stops while the provider is asked to revoke: the binding is gone, and the record has the revocation."""
    world.sign_in()
    asked = len(world.provider.asked)
    world.provider.hold()

    def revoke() -> None:
        with contextlib.suppress(OSError, AileronError, AssertionError):
            world.home.ask("DELETE", f"/v1/bindings/{NAME}")

    asking = threading.Thread(target=revoke)
    asking.start()
    world.provider.wait_asked(asked + 1)
    world.home.stop()
    world.provider.release()
    asking.join(20)
    world.home.unlock()

    assert world.home.must("GET", "/v1/bindings")["bindings"] == []
    assert world.types("binding.revoked") == ["binding.revoked"]
