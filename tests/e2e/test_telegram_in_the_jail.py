"""The Telegram connector as it is released, and python-telegram-bot beside it, in real jails; only Telegram is ours.

The daemon runs on a machine of its own where Telegram's name leads to a server of the test (tests/support/names.py). The
token is in the path of each request, so it could come back in every error, redirect and record: all of them are searched.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.approver import Approver, Office
from tests.support.canary import find, scan
from tests.support.home import daemon_home
from tests.support.jailed_office import look_while
from tests.support.libraries import pack
from tests.support.names import Names
from tests.support.telegram import NAMES, TelegramServer, digest_of
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
CONNECTOR, SOURCE = "github://aileron/connector-telegram", ROOT / "connectors" / "telegram"
LIBRARY, LIBRARY_SOURCE = (
    "github://aileron-tests/telegram-library",
    ROOT / "tests" / "support" / "connectors" / "telegram_library",
)
PACKAGES = ("telegram", "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "typing_extensions")
TOKEN = "110201543:AAHcanary-of-a-bots_token-0123456789"


@dataclasses.dataclass(frozen=True)
class Desk(Office):
    """A bot at Telegram, and a home that reaches it; a person decides what is gated."""

    telegram: TelegramServer

    def run(self, action: str, **args: Any) -> Any:
        """Run an action that is not gated, and return its result; neither it nor the run's record has the token."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        self.check(answer.body)
        return answer.body["result"]

    def failure(self, action: str, **args: Any) -> dict[str, Any]:
        """Run an action that is not gated and must fail, and return its error; neither it nor the run's record has the token."""
        error = self.home.failed(action, **args)
        self.check({"error": error})
        return error

    def check(self, body: dict[str, Any]) -> None:
        """Check that the token is in nothing that an agent or the record has."""
        run = body.get("audit_id") or body["error"]["audit_id"]
        for told in (body, self.home.events(run)):
            assert find(json.dumps(told).encode(), TOKEN.encode()) == []

    def paths(self, run: str) -> list[str]:
        """Return the paths of the run's requests, as the ledger has them."""
        return [event["path"] for event in self.home.events(run) if event["type"] == "egress.sending"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Provide both connectors, their actions, and a binding for each; at the end no file has a token."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    library = tmp_path_factory.mktemp("connector") / "telegram_library"
    shutil.copytree(LIBRARY_SOURCE, library)
    for package in PACKAGES:
        pack(package, library)
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        TelegramServer(authority.server_context(*NAMES), listener=machine.listen()) as telegram,
        daemon_home() as home,
    ):
        home.reach(f"{NAMES[0]}:443", ca_file=authority.ca_file)
        machine.start_daemon(home.path)
        home.unlock(TOKEN.encode())
        for connector, source in ((CONNECTOR, SOURCE), (LIBRARY, library)):
            home.install(source)
            home.bind(connector, f"api_key/{source.name.replace('_', '-')}/me")
        home.add_actions(*(SOURCE / "actions").glob("*/action.md"))
        home.add_probe_action("say", "chat:integer", "text:string", connector=LIBRARY)
        home.add_probe_action("hear", connector=LIBRARY)
        yield Desk(home, Approver.of(home), telegram)
        assert scan([home.path], b"read what my Telegram bot was written"), "the scan finds nothing that is there"
        assert scan([home.path], TOKEN.encode()) == {}


@pytest.fixture(autouse=True)
def group(desk: Desk) -> int:
    """Reset the bot before each test, with a good token and one chat; return the chat's id."""
    desk.telegram.forget_everything()
    desk.telegram.allow(TOKEN)
    return desk.telegram.chat("Releases", members=42, username="releases")


def test_updates_are_read_with_the_token_in_the_path(desk: Desk, group: int) -> None:
    """Telegram gets the token in the path, and the ledger has the path without it."""
    desk.telegram.write(group, "is it out?")
    answer = desk.home.run("telegram-read-updates", {"max_results": 5})

    assert [update["text"] for update in answer.body["result"]["updates"]] == ["is it out?"]
    [asked] = desk.telegram.asked
    assert (asked.token, asked.host, asked.method) == (digest_of(TOKEN), "api.telegram.org", "getUpdates")
    assert desk.paths(answer.body["audit_id"]) == ["/bot{key}/getUpdates"]
    desk.check(answer.body)


def test_a_message_waits_for_approval_and_is_sent_once(desk: Desk, group: int) -> None:
    """The preview shows the chat, its readers and the bot; nothing is sent before approval."""
    question = desk.ask("telegram-send-message", chat="@releases", text="1.2 is out.")
    assert desk.telegram.called() == []
    shown = desk.preview(question)
    assert desk.telegram.sent == []
    settled = desk.decide(question)

    assert shown == {
        "Chat": "Releases",
        "Chat id": str(group),
        "Kind": "supergroup",
        "Members": "42",
        "Seen by": "the members of the group",
        "Sent as": "@release_bot",
    }
    assert settled["status"] == "completed", settled
    assert [(sent.chat, sent.text) for sent in desk.telegram.sent] == [(group, "1.2 is out.")]
    assert {asked.token for asked in desk.telegram.asked} == {digest_of(TOKEN)}


def test_a_denied_message_is_not_sent(desk: Desk) -> None:
    """Telegram is not even asked."""
    question = desk.ask("telegram-send-message", chat="@releases", text="1.2 is out.")

    assert desk.decide(question, "deny")["status"] == "denied"
    assert desk.telegram.asked == []


def test_a_revoked_token_is_reported_with_its_fix(desk: Desk) -> None:
    """The error has the command that fixes it, and Telegram is asked once."""
    desk.telegram.revoke(TOKEN)
    error = desk.failure("telegram-read-updates")

    assert (error["class"], error["details"]["status"], error["retriable"]) == ("external_api_error", 401, False)
    assert "aileron secret set" in error["message"]
    assert len(desk.telegram.asked) == 1


def test_a_read_is_retried_after_a_rate_limit(desk: Desk) -> None:
    """The supervisor waits as long as Telegram's response says."""
    limit = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}
    desk.telegram.disturb("getUpdates", limit, status="429 Too Many Requests")

    assert desk.run("telegram-read-updates")["updates"] == []
    assert desk.telegram.called() == ["GET getUpdates"] * 2


def test_a_token_in_an_echoed_path_is_masked(desk: Desk) -> None:
    """Telegram's error repeats the request's path; the connector gets asterisks in place of the token."""
    desk.telegram.echo = True
    error = desk.failure("telegram-get-chat", chat="@nobody")
    desk.telegram.disturb(
        "getChat", {"ok": False, "error_code": 400, "description": f"/bot{TOKEN}/x"}, status="400 Bad"
    )
    shown = desk.failure("telegram-get-chat", chat="@releases")

    assert error["class"] == "bad_input"
    assert shown["details"]["description"] == f"/bot{'*' * len(TOKEN)}/x"


# An unmodified library


def test_python_telegram_bot_sends_with_a_placeholder_for_its_token(desk: Desk, group: int) -> None:
    """The library uses httpx with Telegram's own address: the token is in the path at Telegram, and nowhere here."""
    said = desk.run("say", chat=group, text="hello")
    desk.telegram.write(group, "hello back")
    heard = desk.home.run("hear")

    assert (said["username"], [sent.text for sent in desk.telegram.sent]) == ("release_bot", ["hello"])
    assert heard.body["result"] == ["hello back"]
    assert {asked.token for asked in desk.telegram.asked} == {digest_of(TOKEN)}
    assert desk.paths(heard.body["audit_id"]) == ["/bot{key}/getMe", "/bot{key}/getUpdates"]


def test_python_telegram_bot_raises_its_own_errors(desk: Desk) -> None:
    """The cause is an error response that contains the path."""
    desk.telegram.echo = True
    error = desk.failure("say", chat=12, text="hello")

    assert (error["class"], error["details"]["status"]) == ("external_api_error", 400)
    assert error["message"].startswith("BadRequest: Chat not found (/bot***")


# Where the token is not


@pytest.mark.parametrize("action", ["telegram-read-updates", "hear"])
def test_no_token_is_in_the_jail_during_a_request_to_telegram(desk: Desk, action: str) -> None:
    """The search runs while Telegram has the token, in all memory below the daemon; it finds the requested path."""
    looked = look_while(desk.home, desk.telegram.gate.held("getUpdates"), lambda: desk.home.run(action))

    assert looked.answer.status == 200, looked.answer.body
    assert len(looked.memories) >= 2
    looked.check(b"bot%7Bkey%7D/getUpdates", TOKEN.encode())
