"""The Telegram connector, as it is built, against a server that answers as Telegram's reference has it; and against lies."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.actions.manifest import parse_action
from aileron.connector_tests.bench import Bench, artifact_of
from aileron.connector_tests.cases import parse_cases
from aileron.model.credential import Reach, wire_words
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron_sandbox.frames import GrantedHost, Log
from tests.support.canary import find
from tests.support.hostile_text import GROUPS, as_in_a_file
from tests.support.plain_host import ROOT, PlainHost, Report, built_in
from tests.support.telegram import NAMES, TelegramServer, digest_of
from tests.support.upstream import Authority

SOURCE = ROOT / "connectors" / "telegram"
NAME = "github://aileron/connector-telegram"
TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
OTHER_TOKEN = "220201543:BBHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
HOSTS = [GrantedHost(name, 443, False) for name in NAMES]
OK = {"ok": True, "result": None}

Call = Callable[..., Report]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the zip that `aileron connector build` makes."""
    return built_in(tmp_path_factory.mktemp("built"), SOURCE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TelegramServer, Authority]]:
    """Return one server for all tests."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with TelegramServer(authority.server_context(*NAMES)) as telegram:
        telegram.allow(TOKEN)
        yield telegram, authority


@pytest.fixture
def telegram(server: tuple[TelegramServer, Authority]) -> TelegramServer:
    """Return the server with a bot that nobody has written to."""
    server[0].forget_everything()
    return server[0]


@pytest.fixture
def host(server: tuple[TelegramServer, Authority], program: Path) -> Callable[[str], Call]:
    """Return a function for operations with a chosen token: host(token)(op, **args)."""
    telegram, authority = server
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    return lambda token: PlainHost(program, hosts=HOSTS, path_key=token, at=("127.0.0.1", telegram.port), tls=tls).call


@pytest.fixture
def call(telegram: TelegramServer, host: Callable[[str], Call]) -> Call:
    """Return a function that runs an operation: call(op, **args)."""
    return host(TOKEN)


# What ships


def test_the_manifest_and_the_actions_are_valid() -> None:
    """They are read as an install would; an action says where it is, and only reads run without approval."""
    manifest = parse_connector_manifest(build(SOURCE).manifest, file="m")
    actions = {
        path.parent.name: parse_action(path.read_text(), file=str(path), allow_placeholder=True)
        for path in (SOURCE / "actions").glob("*/action.md")
    }
    assert (str(manifest.name), manifest.version) == (NAME, "0.0.0-dev")
    assert wire_words(Reach.of(manifest).wire) == "a part of the path of each request: /botKEY/…"
    assert {operation.name for operation in manifest.operations or ()} == set(manifest.intents)

    gated = {name: (action.approval.required, action.steps[0].idempotent) for name, action in actions.items()}
    assert gated == {
        "telegram-read-updates": (False, True),
        "telegram-get-chat": (False, True),
        "telegram-send-message": (True, False),
    }
    for name, action in actions.items():
        previewed = [] if action.preview is None else [action.preview.op]
        assert (action.name, action.source) == (name, f"{NAME}/actions/{name}@{manifest.version}")
        assert [action.steps[0].op, *previewed] == list(action.connectors[0].capabilities)
        assert {spec.name for spec in action.inputs} == {
            parameter.name for parameter in manifest.operation(action.steps[0].op).parameters
        }


@pytest.mark.jail
def test_the_cases_pass_in_the_jail() -> None:
    """A case's path has the placeholder of the key, or the path as requested; any other path does not match."""
    cases = (SOURCE / "tests" / "cases.toml").read_text()
    with Bench(artifact_of(SOURCE, ())) as bench:
        reports = bench.run(parse_cases(cases, file="cases.toml").cases)
        [wrong] = bench.run(
            parse_cases(cases.partition('[[case]]\nname = "a m')[0].replace("{key}", "key"), file="c").cases
        )

    assert [report.problem for report in reports] == [None, None, None]
    assert "no exchange is left for GET api.telegram.org:443/bot{key}/getUpdates?limit=5" in str(wrong.problem)


# Reading


def test_updates_are_kept_until_they_are_acknowledged(telegram: TelegramServer, call: Call) -> None:
    """Updates come again unless `after` acknowledges them. No request waits for new updates."""
    group = telegram.chat("Releases", username="releases")
    first = telegram.write(group, "is it <b>out</b>?", name="Ann")
    second = telegram.write(group, None, kind="edited_message", caption="a photo")
    telegram.updates.append({"update_id": second + 1, "message_reaction": {"chat": telegram.chats[group]}})

    assert call("read_updates", max_results=1).output["last"] == first
    found = call("read_updates").output
    rest = call("read_updates", after=first).output

    told, edited, other = found["updates"]
    assert (told["text"], told["author"]["name"], told["chat"]["id"]) == ("is it <b>out</b>?", "Ann", str(group))
    assert told["time"] == "2023-11-14T22:13:22+00:00"
    assert (edited["kind"], edited["text"]) == ("edited_message", "a photo")
    assert other == {"update_id": second + 1, "kind": "other"}
    assert [update["update_id"] for update in rest["updates"]] == [second, second + 1]
    assert len(telegram.updates) == 2
    assert call("read_updates", after=second + 1).output == {"updates": [], "last": second + 1}
    assert [asked.given.get("timeout") for asked in telegram.asked] == ["0"] * 4
    assert {asked.token for asked in telegram.asked} == {digest_of(TOKEN)}


def test_a_full_page_of_long_messages_fits_into_a_result(telegram: TelegramServer, call: Call) -> None:
    """A sender of long messages cannot keep the others from being read."""
    group = telegram.chat("x" * 300)
    written = [telegram.write(group, "\x01" * (4000 if number else 5000), name="n" * 3000) for number in range(100)]
    found = call("read_updates", max_results=100).output
    rest = call("read_updates", max_results=100, after=found["last"]).output["updates"]

    read = found["updates"]
    assert len(read[0]["text"]) == 4097
    assert 10 < len(read) < 100
    assert [update["update_id"] for update in read + rest] == written[: len(read) + len(rest)]


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_hostile_text_in_a_message_is_returned_as_data_and_not_logged(
    telegram: TelegramServer, call: Call, group: str
) -> None:
    """The surfaces that show it make control characters visible; the log has none of the text."""
    hostile = as_in_a_file(GROUPS[group])
    telegram.write(telegram.chat(hostile[:80]), hostile, name=hostile[:80])
    report = call("read_updates")

    assert report.output["updates"][0]["text"] == hostile
    assert [message for message in report.told if isinstance(message, Log)] == []


def test_a_chat_is_shown_with_its_readers(telegram: TelegramServer, call: Call) -> None:
    """The description also has the bot that sends."""
    group = telegram.chat("Releases", members=42, username="releases")
    person = telegram.chat("Ann", kind="private", last_name="Lee", bio="hi")
    by_name, by_id = call("get_chat", chat="@releases").output, call("get_chat", chat=str(person)).output

    assert (by_name["chat"]["id"], by_name["members"], by_name["seen_by"]) == (
        str(group),
        42,
        "the members of the group",
    )
    assert (by_id["chat"]["name"], by_id["members"], by_id["seen_by"]) == ("Ann Lee", 2, "one person")
    assert by_id["sent_as"] == "@release_bot"


# Sending


def test_a_message_is_sent_unchanged(telegram: TelegramServer, call: Call) -> None:
    """The text is plain, without a preview of its links."""
    group = telegram.chat("Releases")
    done = call(
        "send_message", chat=str(group), text="*1.2* is <b>out</b>\r\nhttps://a.example", reply_to=7, silent=True
    )

    [sent] = telegram.sent
    assert sent.given == {
        "chat_id": group,
        "text": "*1.2* is <b>out</b>\nhttps://a.example",
        "link_preview_options": {"is_disabled": True},
        "disable_notification": True,
        "reply_parameters": {"message_id": 7},
    }
    assert done.output["message"]["message_id"] == sent.message_id


@pytest.mark.parametrize(
    ("op", "args", "argument"),
    [
        ("read_updates", {"max_results": 101}, "max_results"),
        ("read_updates", {"after": -1}, "after"),
        ("get_chat", {"chat": "releases"}, "chat"),
        ("get_chat", {"chat": "12/getMe"}, "chat"),
        ("send_message", {"chat": "12", "text": " \n"}, "text"),
        ("send_message", {"chat": "12", "text": "a\x00b"}, "text"),
        ("send_message", {"chat": "12", "text": "\U0001f600" * 2049}, "text"),
        ("send_message", {"chat": "12", "text": "a", "reply_to": 0}, "reply_to"),
    ],
)
def test_invalid_arguments_are_refused_before_any_request(
    telegram: TelegramServer, call: Call, op: str, args: dict[str, Any], argument: str
) -> None:
    """The failure names the argument."""
    failed = call(op, **args).failure

    assert (failed.failure_class, failed.details["argument"]) == ("bad_input", argument)
    assert telegram.asked == []


# What Telegram refuses


@pytest.mark.parametrize("token", [OTHER_TOKEN, "no-token-at-all"], ids=["unknown", "malformed"])
def test_the_failure_for_a_wrong_token_names_the_binding(
    telegram: TelegramServer, host: Callable[[str], Call], token: str
) -> None:
    """The failure has the command that fixes it; a valid token is the positive control."""
    failed = host(token)("read_updates").failure

    assert (failed.failure_class, failed.details["status"]) == ("external_api_error", 401)
    assert "binding" in failed.message
    assert "aileron secret set" in failed.message
    assert token not in failed.message + json.dumps(failed.details)
    assert host(TOKEN)("read_updates").output == {"updates": [], "last": None}


@pytest.mark.parametrize(
    ("code", "description", "parameters", "expected"),
    [
        (400, "Bad Request: chat not found", {}, ("bad_input", "no such chat")),
        (400, "Bad Request: message is too long", {}, ("bad_input", "longer")),
        (400, "Bad Request: message to be replied not found", {}, ("bad_input", "no such message")),
        (400, "Bad Request: group chat was upgraded to a supergroup chat", {"migrate_to_chat_id": -100}, ("bad_input", "-100")),
        (400, "Bad Request: something new", {}, (400, "refuses")),
        (400, "Bad Request: not enough rights to send text messages to the chat", {}, (400, "not enough rights to send text")),
        (403, "Forbidden: bot was blocked by the user", {}, (403, "blocked by the user")),
        (409, "Conflict: can't use getUpdates method while webhook is active", {}, (409, "webhook")),
        (409, "Conflict: terminated by other getUpdates request", {}, (409, "another program")),
        (429, "Too Many Requests: retry after 35", {"retry_after": 35}, (429, "too many requests")),
        (502, "Bad Gateway", {}, (502, "problem of its own")),
    ],
    ids=["chat", "long", "reply", "moved", "unknown", "rights", "blocked", "webhook", "reader", "rate", "gateway"],
)  # fmt: skip
def test_a_refusal_by_telegram_is_explained_in_words(
    telegram: TelegramServer,
    call: Call,
    code: int,
    description: str,
    parameters: dict[str, int],
    expected: tuple[str | int, str],
) -> None:
    """The words depend on Telegram's code and description, and say how long to wait."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    telegram.disturb("sendMessage", body | ({"parameters": parameters} if parameters else {}), status=f"{code} No")
    failed = call("send_message", chat=str(telegram.chat("x")), text="hi").failure

    kind, words = expected
    if isinstance(kind, str):
        assert failed.failure_class == kind
    else:
        assert (failed.failure_class, failed.details["status"]) == ("external_api_error", kind)
        assert failed.details["description"] == description
        assert failed.details.get("retry_after_s") == parameters.get("retry_after")
        assert ("may be sent" in failed.message) == (kind >= 500)
    assert words in failed.message


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"<html>", b'{"ok":true}', b'{"ok":true,"result":7}', b'{"ok":1,"result":[]}', b"[" * 100_000,
     b'{"ok":true,"result":[{"update_id":"7"}]}', b'{"ok":true,"result":"' + b"a" * (5 << 20) + b'"}'],
    ids=["nothing", "array", "object", "page", "no_result", "number", "ok_is_1", "deep", "id_is_text", "large"],
)  # fmt: skip
def test_an_invalid_answer_is_a_failure(telegram: TelegramServer, call: Call, body: bytes) -> None:
    """The answer is not used in part, and the message does not quote it."""
    telegram.disturb("getUpdates", body)
    failed = call("read_updates").failure

    assert failed.failure_class == "external_api_error"
    assert "cannot read the updates" in failed.message
    assert len(failed.message) < 300


def test_a_lost_answer_after_sending_says_that_the_message_may_be_sent(telegram: TelegramServer, call: Call) -> None:
    """An agent that repeated the call without looking might send it twice."""
    telegram.disturb("sendMessage", b"{")
    failed = call("send_message", chat=str(telegram.chat("x")), text="hi").failure

    assert "may be sent all the same" in failed.message


def test_no_token_and_no_text_of_a_message_reach_the_log(telegram: TelegramServer, call: Call) -> None:
    """The connector's frames have the key's placeholder, and its log has only the length of the message."""
    report = call("send_message", chat=str(telegram.chat("x")), text="a-text-of-the-test")

    assert [request.url for request in report.requests] == ["https://api.telegram.org/bot%7Bkey%7D/sendMessage"]
    [logged] = [message for message in report.told if isinstance(message, Log)]
    assert "a-text-of-the-test" not in repr(logged)
    assert find(repr(report).encode(), TOKEN.encode()) == []
