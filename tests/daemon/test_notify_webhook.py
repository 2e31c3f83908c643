"""Webhook notices of pending questions: signed, sent only to the URL that a person named, and never in the way of a question."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from aileron.config import Settings
from aileron.daemon.notify.notices import NotifyTiming
from aileron.daemon.notify.notifier import Notifier
from aileron.daemon.notify.webhook import MAX_WAITING, signature
from aileron.egress import Egress
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.vault.vault import Vault
from tests.daemon.asking import PAGE, Asking, Watch
from tests.support.hostile_text import assert_harmless, hostile
from tests.support.upstream import CLOSE, Authority, Seen, Upstream, answer
from tests.support.waiting import jump, wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("T4")]

PASSPHRASE: Final = Secret(b"correct horse battery")
KEY: Final = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OTHER_KEY: Final = "whsec_" + base64.b64encode(b"another key of another receiver.").decode()
QUICK: Final = NotifyTiming(backoff_s=(0.01, 0.01), attempt_s=60.0, unlocked_s=0.01)
REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "notifications.md"
NOW: Final = 1_795_233_600.0


class Receiver:
    """A web server with a certificate for `localhost`; it gives its responses in order, and then repeats the last one."""

    def __init__(self, tls: Any, answers: list[bytes]) -> None:
        self._answers = answers
        self._heard = threading.Semaphore(0)
        self.upstream = Upstream(self._answer, tls)

    @property
    def address(self) -> HostPort:
        """Address on which the receiver listens."""
        return HostPort("localhost", self.upstream.port)

    @property
    def told(self) -> list[dict[str, Any]]:
        """Bodies of the requests so far."""
        return [json.loads(seen.body) for seen in self.upstream.requests]

    async def wait_told(self, count: int) -> None:
        """Wait until `count` more requests have arrived."""
        for _ in range(count):
            heard = await anyio.to_thread.run_sync(lambda: self._heard.acquire(timeout=20))
            assert heard, f"nothing came beside {self.told}"

    def _answer(self, seen: Seen) -> bytes:
        self._heard.release()
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture
def receiver(authority: Authority) -> Iterator[Callable[..., Receiver]]:
    """Yield a function that starts a receiver with these responses, by default 204 for all."""
    with contextlib.ExitStack() as stack:

        def start(*answers: bytes, name: str = "localhost") -> Receiver:
            made = Receiver(authority.server_context(name), list(answers) or [answer(status="204 No Content")])
            stack.enter_context(made.upstream)
            return made

        yield start


@pytest.fixture(scope="module")
def made_vault(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file of a vault with three secrets, made once because a key derivation takes a tenth of a second."""
    path = tmp_path_factory.mktemp("vault") / "home" / "vault.json"
    vault = Vault(path)
    vault.create(PASSPHRASE)
    vault.set_secret("webhook-key", Secret(KEY.encode()))
    vault.set_secret("short", Secret(b"whsec_" + base64.b64encode(b"only sixteen byt")))
    vault.set_secret("password", Secret(b"hunter2-hunter2"))
    vault.lock()
    return path.read_bytes()


@pytest.fixture
def vault(made_vault: bytes, tmp_path: Path) -> Vault:
    """Return that vault, locked."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "vault.json").write_bytes(made_vault)
    (home / "vault.json").chmod(0o600)
    return Vault(home / "vault.json")


@pytest.fixture
def is_genuine() -> Callable[[str, dict[str, str], bytes], bool]:
    """Return the check from the reference page's example, with the clock of these tests."""
    code = re.search(r"```python\n(import base64.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1].replace("time.time()", f"{NOW}"), names)
    verify: Callable[[str, dict[str, str], bytes], bool] = names["is_genuine"]
    return verify


@contextlib.asynccontextmanager
async def notifying(
    vault: Vault,
    url: str,
    authority: Authority | None,
    *,
    private: tuple[HostPort, ...] = (),
    secret: str = "webhook-key",
    pace: NotifyTiming = QUICK,
    clock: Watch | None = None,
    details: bool = False,
) -> AsyncIterator[Asking]:
    """Yield an asker whose notifier serves, and trusts `authority`."""
    settings = Settings(
        egress_private=frozenset(private),
        egress_ca_pem=None if authority is None else authority.ca_pem,
        notify_desktop=False,
        notify_details=details,
        notify_webhook=url,
        notify_webhook_secret=secret,
    )

    class Nobody:
        def is_ready(self, use: object, destination: object) -> bool:
            return use is None

        async def ready(self, use: object, destination: object, deadline: float) -> None:
            raise AssertionError("a notification has no connector's credential")

        async def renew(self, use: object, refused: object, deadline: float) -> bool:
            raise AssertionError("a notification has no connector's credential")

        def lend(self, use: object) -> contextlib.AbstractContextManager[Any]:
            raise AssertionError("a notification has no connector's credential")

        def needles(self, destination: object) -> Any:
            raise AssertionError("what answers a notification goes into no jail")

        def may_be_bound(self, destination: object) -> bool:
            raise AssertionError("a notification is no stream")

    egress = Egress(settings, Nobody())
    asking = Asking()
    asking.clock = clock or Watch(NOW)
    notifier = Notifier(settings, egress, vault, queue=asking.look, page=PAGE, pace=pace, clock=asking.clock)
    asking.notifier = notifier
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notifier.serve)
            with anyio.fail_after(30):
                yield asking
            tasks.cancel_scope.cancel()
    finally:
        await egress.aclose()


def told_to(receiver: Receiver, vault: Vault, authority: Authority, **options: Any) -> Any:
    """Yield the same for a receiver on this machine that the person has allowed."""
    address = receiver.address
    return notifying(vault, f"https://{address}/hook/path-token", authority, private=(address,), **options)


def head_of(seen: Seen) -> dict[str, str]:
    """Return the header fields by lower-case name."""
    return {name.lower(): value for name, value in seen.fields}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return Aileron's messages in the log."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("aileron")]


# What is sent


async def test_a_webhook_notice_has_the_questions_name_and_id_and_a_valid_signature(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
    is_genuine: Callable[[str, dict[str, str], bytes], bool],
) -> None:
    """The notice is one POST. Its signature verifies as the reference page says, and fails with another key, id, time or body."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        await notifier.ask("apr-20261121T035800-0f7c", "send-mail", "action", until=server.wait_told(1))
    (seen,) = server.upstream.requests
    head = head_of(seen)

    assert (seen.method, seen.target) == ("POST", "/hook/path-token")
    assert server.told == [
        {
            "type": "approval.requested",
            "id": "apr-20261121T035800-0f7c",
            "action": "send-mail",
            "agent": "claude",
            "url": "http://localhost:27182/approvals/apr-20261121T035800-0f7c",
            "at": "2026-11-21T04:00:00.000Z",
            "expires_at": "2026-11-21T04:15:00.000Z",
        }
    ]
    assert head["content-type"] == "application/json"
    assert head["webhook-id"] == "apr-20261121T035800-0f7c"
    assert head["webhook-timestamp"] == str(int(NOW))
    assert is_genuine(KEY, head, seen.body)
    assert not is_genuine(OTHER_KEY, head, seen.body)
    assert not is_genuine(KEY, {**head, "webhook-id": "apr-2"}, seen.body)
    assert not is_genuine(KEY, {**head, "webhook-timestamp": str(int(NOW) - 1)}, seen.body)
    assert not is_genuine(KEY, head, seen.body.replace(b"send-mail", b"read-mail"))


@pytest.mark.parametrize("details", [False, True])
async def test_webhook_notices_have_details_only_if_the_setting_is_on(
    details: bool, vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """`notify.details` is off by default; if on, the headline is sent as the agent's words."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority, details=details) as notifier:
        await notifier.ask("apr-1", "delete-event", "action", headline="Delete “Dentist”", until=server.wait_told(1))

    assert [told.get("agent_says") for told in server.told] == ["Delete “Dentist”" if details else None]


async def test_a_webhook_reminder_is_a_notice_with_an_id_of_its_own(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
) -> None:
    """The reminder comes once, three minutes before expiry; a receiver that drops repeated ids does not drop it."""
    vault.unlock(PASSPHRASE)
    server, clock = receiver(), Watch(NOW)
    pace = msgspec.structs.replace(QUICK, remind_look_s=0.01)
    async with told_to(server, vault, authority, clock=clock, pace=pace) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=server.wait_told(1))
        await clock.wait_looked_at()
        clock.now += 721
        await server.wait_told(1)
    first, second = server.told

    assert (first["type"], second["type"]) == ("approval.requested", "approval.expiring")
    assert (first["id"], second["id"], second["expires_at"]) == ("apr-1", "apr-1", first["expires_at"])
    heads = [head_of(seen) for seen in server.upstream.requests]
    assert [head["webhook-id"] for head in heads] == ["apr-1", "apr-1-expiring"]
    assert heads[1]["webhook-signature"] == signature(
        Secret(KEY.encode()), "apr-1-expiring", heads[1]["webhook-timestamp"], server.upstream.requests[1].body
    )


def test_the_webhook_signature_matches_its_specification() -> None:
    """The example is the one that the specification's own libraries are tested with."""
    secret = Secret(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@hostile
async def test_hostile_names_are_escaped_in_a_webhook_notice(
    text: str, vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """Names are validated earlier; even so, a hostile one arrives as one bounded line of visible ASCII."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        await notifier.ask("apr-1", text, "action", agent=text, until=server.wait_told(1))
    (told,) = server.told

    assert_harmless(told["action"])
    assert told["action"].isascii()
    assert len(told["action"]) < 300
    assert "\n" not in told["action"]
    assert told["agent"].isascii()


# Which receiver


async def test_a_webhook_on_this_machine_needs_permission_in_the_settings(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """The notifier does not connect and logs the command that allows it; once allowed, the receiver gets its notice."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with notifying(vault, f"https://{server.address}/", authority) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "add")
    connections = server.upstream.connections
    async with told_to(server, vault, authority) as notifier:
        await notifier.ask("apr-2", "send-mail", "action", until=server.wait_told(1))

    assert connections == 0
    assert f"aileron config add egress.private {server.address}" in said(caplog)[0]
    assert [told["id"] for told in server.told] == ["apr-2"]


async def test_a_webhook_receiver_without_a_trusted_certificate_gets_no_notice(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate is for another name, or of an untrusted authority; a receiver with the right one gets its notice."""
    vault.unlock(PASSPHRASE)
    other, unknown, right = receiver(name="other.example"), receiver(), receiver()
    for server, trusted in ((other, authority), (unknown, None)):
        caplog.clear()
        async with told_to(server, vault, trusted) as notifier:  # type: ignore[arg-type]
            notifier.asked("apr-1", "send-mail", "action")
            await logged(caplog, "CERTIFICATE_VERIFY_FAILED", "certificate")
    async with told_to(right, vault, authority) as notifier:
        await notifier.ask("apr-2", "send-mail", "action", until=right.wait_told(1))

    assert not other.upstream.received
    assert not unknown.upstream.received


async def test_a_webhook_redirect_is_treated_as_a_failure_and_is_not_followed(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A 307 to another trusted receiver causes three tries at the first and none at the other."""
    vault.unlock(PASSPHRASE)
    other = receiver()
    server = receiver(answer(b"", f"Location: https://{other.address}/", status="307 Temporary Redirect"))
    addresses = (server.address, other.address)
    async with notifying(vault, f"https://{server.address}/", authority, private=addresses) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "it answered 307")

    assert len(server.upstream.requests) == 3
    assert other.upstream.connections == 0


def test_a_webhook_url_that_egress_refuses_gets_no_notice(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    """The problem is logged, and agents can still ask questions."""
    settings = Settings(
        notify_desktop=False,
        notify_webhook="https://hooks.example.com/a/../b",
        notify_webhook_secret="webhook-key",
    )
    asking = Asking()
    asking.notifier = Notifier(settings, Egress(settings, None), vault, queue=asking.look, page=PAGE)  # type: ignore[arg-type]
    asking.asked("apr-1", "send-mail", "action")

    assert "notify.webhook is not used: the URL's path has a dot segment" in said(caplog)[0]


# The secret


@pytest.mark.parametrize("secret", ["password", "short", "none-of-that-name"])
async def test_only_a_suitable_webhook_secret_signs_notices(
    secret: str, vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A password, a short key or an unknown name sends nothing. The right secret, used in the same way, signs."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority, secret=secret) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "given up")
    connections = server.upstream.connections
    async with told_to(server, vault, authority) as notifier:
        await notifier.ask("apr-2", "send-mail", "action", until=server.wait_told(1))

    assert connections == 0
    assert ("not a webhook's" in said(caplog)[0]) is (secret != "none-of-that-name")


async def test_webhook_notices_wait_while_the_vault_is_locked(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """The notifier does not connect without a key; once the vault is open, all pending notices are sent in order."""
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await notifier.ask("apr-2", "github://you/connector-notes", "connector", until=anyio.wait_all_tasks_blocked())
        connections = server.upstream.connections
        vault.unlock(PASSPHRASE)
        await server.wait_told(2)

    assert connections == 0
    assert [told["id"] for told in server.told] == ["apr-1", "apr-2"]


async def test_webhook_notices_that_waited_too_long_for_the_vault_are_dropped(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Three notices wait for eleven minutes and are dropped with one line in the log; a new one is sent."""
    server, clock = receiver(), Watch(NOW)
    async with told_to(server, vault, authority, clock=clock) as notifier:
        for number in range(3):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        clock.now += 11 * 60
        await logged(caplog, "dropped")
        notifier.asked("apr-now", "send-mail", "action")
        vault.unlock(PASSPHRASE)
        await server.wait_told(1)

    assert [told["id"] for told in server.told] == ["apr-now"]
    assert said(caplog) == [
        f"webhook at {server.address}: what waited over 600 s is dropped: the vault is locked",
    ]


# Failures


async def test_a_failed_webhook_request_is_retried_with_the_same_id(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
    is_genuine: Callable[[str, dict[str, str], bytes], bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The receiver disconnects, answers 503 and then 200: each of the three is signed, and nothing is logged."""
    vault.unlock(PASSPHRASE)
    server = receiver(CLOSE, answer(status="503 Service Unavailable"), answer(b"thank you"))
    async with told_to(server, vault, authority) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=server.wait_told(3))
        await notifier.ask("apr-2", "send-mail", "action", until=server.wait_told(1))

    assert [told["id"] for told in server.told] == ["apr-1"] * 3 + ["apr-2"]
    assert all(is_genuine(KEY, head_of(seen), seen.body) for seen in server.upstream.requests)
    assert said(caplog) == []


async def test_each_outage_of_the_webhook_receiver_is_logged_once(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Three notices fail, one is sent and two fail: the log has two lines, and neither the URL's path nor the key."""
    vault.unlock(PASSPHRASE)
    bad, good = answer(status="500 Internal Server Error"), answer()
    server = receiver(*[bad] * 9, good, *[bad] * 6, good)
    async with told_to(server, vault, authority) as notifier:
        for number in range(6):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await notifier.ask("apr-last", "send-mail", "action", until=server.wait_told(17))

    assert said(caplog) == [f"webhook at {server.address}: a notice was given up: it answered 500"] * 2
    assert "path-token" not in caplog.text
    assert KEY not in caplog.text


async def test_the_notifier_gives_up_on_a_receiver_that_never_answers(
    vault: Vault, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try has a timeout, and asking a question is not delayed."""
    vault.unlock(PASSPHRASE)
    release = threading.Event()

    def never(_seen: Seen) -> bytes:
        release.wait(20)
        return CLOSE

    with Upstream(never, authority.server_context("localhost")) as silent:
        address = HostPort("localhost", silent.port)
        pace = NotifyTiming(backoff_s=(0.01, 0.01), attempt_s=6.0)

        def has_requests(count: int) -> bool:
            return len(silent.requests) >= count

        async with notifying(vault, f"https://{address}/", authority, private=(address,), pace=pace) as notifier:
            notifier.asked("apr-1", "send-mail", "action")
            for tries in (1, 2, 3):
                await wait_until_async(partial(has_requests, tries), f"{tries} requests come")
                jump(monkeypatch, pace.attempt_s)
            await logged(caplog, "given up")
        release.set()

    assert silent.connections == 3


async def test_the_queue_of_webhook_notices_is_bounded(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand questions arrive while the vault is locked: one log line counts the dropped notices."""
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        for number in range(1000):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        vault.unlock(PASSPHRASE)
        await server.wait_told(MAX_WAITING)
        await notifier.ask("apr-later", "send-mail", "action", until=server.wait_told(1))

    assert [told["id"] for told in server.told] == [*(f"apr-{number}" for number in range(MAX_WAITING)), "apr-later"]
    assert [line for line in said(caplog) if "dropped" in line] == [
        f"webhook at {server.address}: {MAX_WAITING} notices wait already, others are dropped"
    ]


async def logged(caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """Wait until one of these words is in the log."""
    await wait_until_async(
        lambda: any(word in line for line in said(caplog) for word in words), f"{words}", seen=lambda: said(caplog)
    )


@pytest.fixture(autouse=True)
def _log_of_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
