"""A service that is signed in to: one question covers its connector, its actions and the tokens, and nothing is there before."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.client import Answer
from tests.support.approver import Approver
from tests.support.signed_in import World, called_back, state_of

pytestmark = pytest.mark.jail


def begin(world: World, **changes: Any) -> Answer:
    """Begin a sign-in for the service `post`, which is not installed."""
    body = {"service": "post", "directory": str(world.made_here("post")), "actions": ["post-ask"], "flow": "browser"}
    return world.home.ask("POST", "/v1/services/sign-ins", body | changes)


def services(world: World) -> list[str]:
    """Return the names of the connected accounts, apart from that of the world's own connector."""
    listed = world.home.must("GET", "/v1/services")["services"]
    return [entry["name"] for entry in listed if entry["name"] == "post"]


def asks(world: World) -> Answer:
    """Run the service's action with the credential."""
    url = f"https://localhost:{world.service.upstream.port}/"
    return world.home.run("post-ask", {"url": url, "credential": "oauth2"})


def test_a_service_is_there_after_the_sign_in_and_not_before(world: World) -> None:
    """Connector, action and binding come with the tokens; a run then sends the token."""
    begun = begin(world).body
    before = services(world)
    called_back(begun["authorize_url"])
    ended = world.end(begun)

    assert (before, ended["status"]) == ([], "done"), ended
    assert [action["name"] for action in ended["result"]["actions"]] == ["post-ask"]
    assert [binding["name"] for binding in ended["result"]["bindings"]] == ["oauth2/post/me"]
    assert services(world) == ["post"]
    assert (asks(world).status, world.service.tokens[-1]) == (200, world.provider.access[-1])


def test_one_signature_covers_the_service_and_its_tokens(world: World) -> None:
    """The question has the account and the action; after the approval a run sends the token."""
    person = Approver.of(world.home)
    begun = begin(world).body
    called_back(begun["authorize_url"])
    ended = world.end(begun)
    shown = person.shown(world.home, ended["result"]["approval_id"])
    waiting = services(world)
    decided = person.decide(world.home, ended["result"]["approval_id"])

    assert (shown["kind"], waiting) == ("installation", [])
    assert [binding["name"] for binding in shown["subject"]["bindings"]] == ["oauth2/post/me"]
    assert decided.status == 200, decided.body
    assert (asks(world).status, world.service.tokens[-1]) == (200, world.provider.access[-1])


def test_a_denied_service_leaves_neither_tokens_nor_parts(world: World) -> None:
    """The person signed in and then denied the question: the home has nothing of it, and the service can be added later."""
    person = Approver.of(world.home)
    begun = begin(world).body
    called_back(begun["authorize_url"])
    question = world.end(begun)["result"]["approval_id"]
    assert person.decide(world.home, question, "deny").status == 200
    secrets = [secret["name"] for secret in world.home.must("GET", "/v1/secrets")["secrets"]]

    assert services(world) == []
    assert "post-me" not in secrets
    assert world.home.ask("GET", "/v1/actions/post-ask").status == 404


@pytest.mark.parametrize("how", ["cancelled", "refused"])
def test_half_a_sign_in_leaves_nothing(world: World, how: str) -> None:
    """The person left, or refused at the provider; the message names the command that begins again."""
    begun = begin(world).body
    if how == "refused":
        called_back(begun["authorize_url"], error="access_denied", state=state_of(begun["authorize_url"]))
    else:
        world.home.must("DELETE", f"/v1/sign-ins/{begun['id']}")
    ended = world.end(begun)

    assert ended["status"] == ("failed" if how == "refused" else "cancelled")
    assert how != "refused" or "aileron add post" in str(ended["error"])
    assert services(world) == []


def test_what_cannot_be_added_is_refused_before_anybody_signs_in(world: World) -> None:
    """An unknown action, a relative directory and a connector without a sign-in never reach the provider."""
    directory = str(world.made_here("wrong"))
    unknown = begin(world, directory=directory, service="wrong", actions=["wrong-none"])
    relative = world.home.ask(
        "POST",
        "/v1/services/sign-ins",
        {"service": "post", "directory": "here", "actions": ["post-ask"], "flow": "browser"},
    )
    keyed = world.home.ask(
        "POST", "/v1/services/sign-ins", {"service": "telegram", "actions": ["telegram-get-chat"], "flow": "browser"}
    )

    assert (unknown.status, relative.status, keyed.status) == (404, 400, 400)
    assert world.types("sign_in.started") == []
