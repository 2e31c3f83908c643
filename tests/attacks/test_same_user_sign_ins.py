"""Attacks of a same-user process that wants a connector to act under another account, or a token, where decisions are signed.

It has the operator socket, the record, the ports of this machine and every file. Its requests wait for the person; it learns
no token, and nothing with which it could sign in in their place.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.attacks.tally import Attack
from tests.support.approver import Approver
from tests.support.signed_in import CONNECTOR, NAME, World, called_back, signed_world, state_of
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail


@pytest.fixture
def world(authority: Authority, tmp_path: Path, approver: Approver) -> Iterator[World]:
    """Provide a home whose person has signed in, given consent to it, and decides from now on."""
    with signed_world(authority, tmp_path) as made:
        assert made.sign_in()["status"] == "done"
        approver.appoint(made.home)
        yield made


@pytest.fixture(scope="module")
def approver() -> Approver:
    """Return the person's approver key."""
    return Approver()


@pytest.mark.abuse_case("O1")
def test_a_sign_in_to_another_account_needs_the_persons_approval(
    attack: Attack, world: World, approver: Approver
) -> None:
    """The attacker tries a new sign-in under the same or another name, another secret, and another binding."""
    world.home.must("PUT", "/v1/secrets/theirs", {"value_base64": base64.b64encode(b"a-token-of-theirs").decode()})
    before = world.binding()
    tries = {
        "the same name signed in by somebody else": world.sign_in(replace=True)["result"],
        "another name signed in by somebody else": world.sign_in("oauth2/mail/other")["result"],
        "another secret under the name": world.home.ask("PATCH", f"/v1/bindings/{NAME}", {"secret": "theirs"}).body,
        "a secret bound beside it": world.home.ask(
            "POST", "/v1/bindings", {"connector": CONNECTOR, "name": "oauth2/mail/third", "secret": "theirs"}
        ).body,
    }
    for name, answer in tries.items():
        word = answer.get("status") or answer["error"]["class"]
        is_as_before = world.binding() == before
        expected = "binding_failed" if name.startswith("another secret") else "pending_approval"
        attack.answered(name, (expected, True), (word, is_as_before), f"{word}, and nothing is changed")
    world.ask()
    sent = world.service.tokens[-1]
    attack.answered("what the service is sent meanwhile", world.provider.access[0], sent, "the person's own token")
    question = approver.shown(world.home, tries["the same name signed in by somebody else"]["approval_id"])
    attack.control("the person is shown that it replaces what they have", True, question["subject"]["replaces"])
    settled = approver.decide(world.home, question["approval_id"]).body
    attack.worked("what the person agrees to is bound", "completed", settled["status"])


@pytest.mark.abuse_case("O2")
def test_an_attacker_cannot_complete_the_persons_sign_in(attack: Attack, world: World) -> None:
    """The sign-in URL is shown only once and recorded nowhere; wrong guesses of its state do not end the sign-in."""
    begun = world.begin("oauth2/mail/second")
    state = state_of(begun["authorize_url"])
    looked = {
        "the sign-in itself": world.home.must("GET", f"/v1/sign-ins/{begun['id']}"),
        "the record": world.home.must("GET", "/v1/audit?limit=1000"),
        "the bindings": world.home.must("GET", "/v1/bindings"),
        "the status": world.home.must("GET", "/v1/status"),
    }
    for name, found in looked.items():
        attack.answered(f"the state of a sign-in, in {name}", False, state in json.dumps(found), "it is not there")
    for path in (world.home.path / "logs" / "daemon.log", world.home.path / "ledger.db"):
        attack.answered(f"the same in {path.name}", False, state.encode() in path.read_bytes(), "it is not there")
    guesses = [
        "",
        "x",
        state[:-1],
        state[:-1] + ("A" if state[-1] != "A" else "B"),
        state.swapcase(),
        state + "=",
        "%00",
    ]
    for guess in guesses:
        page = called_back(begun["authorize_url"], code="a-code-of-theirs", state=guess)
        attack.answered(f"a code with the state {guess[:4]!r}…", b"400", page.split(b" ", 2)[1])
    called_back(begun["authorize_url"])
    attack.worked("the person's own answer ends it well", "done", world.end(begun)["status"])


@pytest.mark.abuse_case("O3")
def test_no_route_or_file_contains_a_token(attack: Attack, world: World) -> None:
    """Routes, ledger, log and every other file of the home are searched for the tokens."""
    world.ask()
    secrets = [world.provider.access[0], str(world.provider.refresh)]
    routes = ("bindings", f"bindings/{NAME}", "secrets", "audit?limit=1000", "status", "connectors", "vault/status")
    for route in routes:
        said = json.dumps(world.home.must("GET", f"/v1/{route}"))
        attack.answered(f"a token in GET /v1/{route}", [], [secret for secret in secrets if secret in said])
    for path in sorted(world.home.path.rglob("*")):
        if path.is_file():
            found = [secret for secret in secrets if secret.encode() in path.read_bytes()]
            attack.denied(f"a token in {path.name}", {()}, tuple(found))
    said = world.home.must("GET", f"/v1/bindings/{NAME}")
    attack.control("what may be said is said", True, said["grant"]["refreshable"])


@pytest.mark.abuse_case("O4")
def test_a_connector_version_with_another_oauth_application_does_not_get_the_tokens(
    attack: Attack, world: World, approver: Approver
) -> None:
    """A newer version names another application and is approved as a connector: its binding is suspended, and no token
    requested.
    """
    asked = world.install("2.0.0", client_id="client-of-theirs")
    approver.agree(world.home, asked)
    shown = world.binding()
    attack.answered("another application under the same name", "suspended", shown["state"])
    refused = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {})
    attack.answered("bound anew without signing in", "binding_failed", refused.body["error"]["class"])
    attack.worked("the version that was agreed to goes on", 200, world.ask().status)
    world.provider.lifetime_s = 3600
    forms = [request.form.get("client_id") for request in world.provider.to("/token")]
    attack.answered(
        "what the provider heard of the other application",
        [],
        [client_id for client_id in forms if client_id != forms[0]],
    )


@pytest.mark.abuse_case("O2")
def test_the_callback_port_of_a_sign_in_reveals_no_state(attack: Attack, world: World) -> None:
    """A callback with a wrong state gets status 400; the port closes when the sign-in is cancelled."""
    begun = world.begin("oauth2/mail/fourth")
    back = urlsplit(parse_qs(urlsplit(begun["authorize_url"]).query)["redirect_uri"][0])
    state = state_of(begun["authorize_url"]).encode()
    page = called_back(begun["authorize_url"], code="x", state="y")
    attack.answered("an answer of the port", False, state in page, "it is not there")
    status = re.match(rb"HTTP/1\.1 (\d+)", page)
    attack.answered("its status", b"400", status[1] if status else b"")
    attack.control("the port is there", True, back.port is not None)
    ended = world.home.must("DELETE", f"/v1/sign-ins/{begun['id']}")
    attack.control("and it ends when it is given up", "cancelled", ended["status"])
