"""A process of the same user wants a connector to act under another account, or a token for itself, where somebody signs.

It has the operator's socket, the record, the ports of this machine and every file. What it asks for waits for the person; what
it learns is no token and nothing to sign in with in their place.
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
    """The person has signed in, agreed to it, and decides from now on."""
    with signed_world(authority, tmp_path) as made:
        assert made.sign_in()["status"] == "done"
        approver.appoint(made.home)
        yield made


@pytest.fixture(scope="module")
def approver() -> Approver:
    """The person."""
    return Approver()


def test_another_account_waits_for_the_person(attack: Attack, world: World, approver: Approver) -> None:
    """Signed in anew by the attacker, under the same name and another; another secret; bound for more: each is a question."""
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


def test_a_sign_in_of_the_person_is_not_signed_in_by_another(attack: Attack, world: World) -> None:
    """Where they go is said once. Neither the record nor the routes repeat it; wrong guesses do not end it either."""
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


def test_tokens_are_nowhere_to_be_read(attack: Attack, world: World) -> None:
    """No route, no file, no environment or memory of the daemon gives one."""
    world.ask()
    secrets = [world.provider.access[0], str(world.provider.refresh)]
    routes = ("bindings", f"bindings/{NAME}", "secrets", "audit?limit=1000", "status", "connectors", "vault/status")
    for route in routes:
        said = json.dumps(world.home.must("GET", f"/v1/{route}"))
        attack.answered(f"a token in GET /v1/{route}", [], [one for one in secrets if one in said])
    for path in sorted(world.home.path.rglob("*")):
        if path.is_file():
            found = [one for one in secrets if one.encode() in path.read_bytes()]
            attack.denied(f"a token in {path.name}", {()}, tuple(found))
    said = world.home.must("GET", f"/v1/bindings/{NAME}")
    attack.control("what may be said is said", True, said["grant"]["refreshable"])


def test_a_connector_of_theirs_does_not_get_the_grant_of_another(
    attack: Attack, world: World, approver: Approver
) -> None:
    """A newer version of another application, agreed to as a connector: the binding is suspended, nothing is asked for it."""
    asked = world.install("2.0.0", client_id="client-of-theirs")
    approver.agree(world.home, asked)
    shown = world.binding()
    attack.answered("another application under the same name", "suspended", shown["state"])
    refused = world.home.ask("PATCH", f"/v1/bindings/{NAME}", {})
    attack.answered("bound anew without signing in", "binding_failed", refused.body["error"]["class"])
    attack.worked("the version that was agreed to goes on", 200, world.ask().status)
    world.provider.lifetime_s = 3600
    forms = [one.form.get("client_id") for one in world.provider.to("/token")]
    attack.answered("what the provider heard of the other application", [], [one for one in forms if one != forms[0]])


def test_the_port_of_a_sign_in_says_nothing(attack: Attack, world: World) -> None:
    """Found by looking at every port, asked by other names, with other methods: no state, no code, no token in any answer."""
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
