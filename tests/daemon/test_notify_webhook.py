"""That a question waits, told to a webhook: signed, to the address a person named and no other, and never in anybody's way."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
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

pytestmark = pytest.mark.anyio

PASSPHRASE: Final = Secret(b"correct horse battery")
KEY: Final = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OTHER_KEY: Final = "whsec_" + base64.b64encode(b"another key of another receiver.").decode()
QUICK: Final = NotifyTiming(backoff_s=(0.01, 0.01), attempt_s=60.0, unlocked_s=0.01)
REFERENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "notifications.md"
NOW: Final = 1_795_233_600.0


class Receiver:
    """A web server with a certificate for `localhost`; its answers in order, the last one for all that follow."""

    def __init__(self, tls: Any, answers: list[bytes]) -> None:
        self._answers = answers
        self._heard = threading.Semaphore(0)
        self.upstream = Upstream(self._answer, tls)

    @property
    def address(self) -> HostPort:
        """Where it listens."""
        return HostPort("localhost", self.upstream.port)

    @property
    def told(self) -> list[dict[str, Any]]:
        """The bodies so far."""
        return [json.loads(seen.body) for seen in self.upstream.requests]

    async def wait_told(self, count: int) -> None:
        """Until `count` more requests have come."""
        for _ in range(count):
            heard = await anyio.to_thread.run_sync(lambda: self._heard.acquire(timeout=20))
            assert heard, f"nothing came beside {self.told}"

    def _answer(self, seen: Seen) -> bytes:
        self._heard.release()
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture
def receiver(authority: Authority) -> Iterator[Callable[..., Receiver]]:
    """Start one that gives these answers, by default 204 for all."""
    with contextlib.ExitStack() as stack:

        def start(*answers: bytes, name: str = "localhost") -> Receiver:
            made = Receiver(authority.server_context(name), list(answers) or [answer(status="204 No Content")])
            stack.enter_context(made.upstream)
            return made

        yield start


@pytest.fixture(scope="module")
def made_vault(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a vault with three secrets; a derivation takes a tenth of a second."""
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
    """It, locked."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "vault.json").write_bytes(made_vault)
    (home / "vault.json").chmod(0o600)
    return Vault(home / "vault.json")


@pytest.fixture
def is_genuine() -> Callable[[str, dict[str, str], bytes], bool]:
    """What the reference page tells a receiver to do, with the time of the clock here."""
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
    """Who asks, and a notifier that serves; it trusts `authority`."""
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
    """The same for a receiver on this machine, which the person allowed."""
    address = receiver.address
    return notifying(vault, f"https://{address}/hook/path-token", authority, private=(address,), **options)


def head_of(seen: Seen) -> dict[str, str]:
    """Header fields by name in lower case."""
    return {name.lower(): value for name, value in seen.fields}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What stands in the log."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("aileron")]


# What is sent


async def test_a_question_arrives_with_its_name_and_id_and_a_signature_that_fits(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
    is_genuine: Callable[[str, dict[str, str], bytes], bool],
) -> None:
    """One POST; verified as the reference page says, and not with another key, id, time or body."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-20261121T035800-0f7c", "send-mail", "action")
        await server.wait_told(1)
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
async def test_values_leave_only_where_the_person_wants_it(
    details: bool, vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """`notify.details`, off by default: then the sentence is there, as what the agent says."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority, details=details) as notifier:
        notifier.asked("apr-1", "delete-event", "action", headline="Delete “Dentist”")
        await server.wait_told(1)

    assert [told.get("agent_says") for told in server.told] == ["Delete “Dentist”" if details else None]


async def test_a_reminder_is_another_notice_with_an_id_of_its_own(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
) -> None:
    """Once, three minutes before the end; a receiver that drops what it has seen does not drop it."""
    vault.unlock(PASSPHRASE)
    server, clock = receiver(), Watch(NOW)
    pace = msgspec.structs.replace(QUICK, remind_look_s=0.01)
    async with told_to(server, vault, authority, clock=clock, pace=pace) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await server.wait_told(1)
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


def test_the_signature_is_the_one_of_the_specification() -> None:
    """The example that the specification's own libraries are tested with."""
    secret = Secret(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@hostile
async def test_what_others_write_is_visible_when_it_arrives(
    text: str, vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """Names are ours and plain; should one ever not be, what arrives is one bounded line of visible ASCII."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-1", text, "action", agent=text)
        await server.wait_told(1)
    (told,) = server.told

    assert_harmless(told["action"])
    assert told["action"].isascii()
    assert len(told["action"]) < 300
    assert "\n" not in told["action"]
    assert told["agent"].isascii()


# Where to


async def test_an_address_of_this_machine_is_not_dialled_unless_the_person_allowed_it(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """The same receiver: nothing connects, and the log says what would allow it; allowed, it is told."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with notifying(vault, f"https://{server.address}/", authority) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "add")
    connections = server.upstream.connections
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-2", "send-mail", "action")
        await server.wait_told(1)

    assert connections == 0
    assert f"aileron config add egress.private {server.address}" in said(caplog)[0]
    assert [told["id"] for told in server.told] == ["apr-2"]


async def test_a_receiver_that_cannot_prove_its_name_gets_nothing(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate for another name, and one of an authority nobody trusts; with the right one it is told."""
    vault.unlock(PASSPHRASE)
    other, unknown, right = receiver(name="other.example"), receiver(), receiver()
    for server, trusted in ((other, authority), (unknown, None)):
        caplog.clear()
        async with told_to(server, vault, trusted) as notifier:  # type: ignore[arg-type]
            notifier.asked("apr-1", "send-mail", "action")
            await logged(caplog, "CERTIFICATE_VERIFY_FAILED", "certificate")
    async with told_to(right, vault, authority) as notifier:
        notifier.asked("apr-2", "send-mail", "action")
        await right.wait_told(1)

    assert not other.upstream.received
    assert not unknown.upstream.received


async def test_a_redirect_is_a_failure_and_not_followed(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """307 to another receiver, which would be trusted: three tries here, nothing there."""
    vault.unlock(PASSPHRASE)
    other = receiver()
    server = receiver(answer(b"", f"Location: https://{other.address}/", status="307 Temporary Redirect"))
    addresses = (server.address, other.address)
    async with notifying(vault, f"https://{server.address}/", authority, private=addresses) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "it answered 307")

    assert len(server.upstream.requests) == 3
    assert other.upstream.connections == 0


def test_a_url_that_egress_does_not_take_is_not_used(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is made of it, and asking goes on."""
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
async def test_no_other_secret_of_the_vault_makes_signatures(
    secret: str, vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A password, a key that is too short, a name that is not there: nothing leaves. The right one is used in the same way."""
    vault.unlock(PASSPHRASE)
    server = receiver()
    async with told_to(server, vault, authority, secret=secret) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await logged(caplog, "given up")
    connections = server.upstream.connections
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-2", "send-mail", "action")
        await server.wait_told(1)

    assert connections == 0
    assert ("not a webhook's" in said(caplog)[0]) is (secret != "none-of-that-name")


async def test_while_the_vault_is_locked_it_waits_and_is_sent_when_it_opens(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver]
) -> None:
    """Nothing connects before there is a key; then all that waited comes in order."""
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        notifier.asked("apr-2", "github://you/connector-notes", "connector")
        await anyio.wait_all_tasks_blocked()
        connections = server.upstream.connections
        vault.unlock(PASSPHRASE)
        await server.wait_told(2)

    assert connections == 0
    assert [told["id"] for told in server.told] == ["apr-1", "apr-2"]


async def test_what_waited_too_long_for_the_vault_is_dropped_with_one_line(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Three questions of eleven minutes ago, and one of now, which is told."""
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


# When something is wrong


async def test_a_try_that_fails_is_made_again_under_the_same_id(
    vault: Vault,
    authority: Authority,
    receiver: Callable[..., Receiver],
    is_genuine: Callable[[str, dict[str, str], bytes], bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Cut off, then 503, then 200: three requests with one id, each signed, and nothing in the log."""
    vault.unlock(PASSPHRASE)
    server = receiver(CLOSE, answer(status="503 Service Unavailable"), answer(b"thank you"))
    async with told_to(server, vault, authority) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await server.wait_told(3)
        notifier.asked("apr-2", "send-mail", "action")
        await server.wait_told(1)

    assert [told["id"] for told in server.told] == ["apr-1"] * 3 + ["apr-2"]
    assert all(is_genuine(KEY, head_of(seen), seen.body) for seen in server.upstream.requests)
    assert said(caplog) == []


async def test_an_outage_is_one_line_and_the_next_outage_another(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Three questions fail, one is told, two fail: two lines, and neither the URL's path nor the key in them."""
    vault.unlock(PASSPHRASE)
    bad, good = answer(status="500 Internal Server Error"), answer()
    server = receiver(*[bad] * 9, good, *[bad] * 6, good)
    async with told_to(server, vault, authority) as notifier:
        for number in range(6):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        notifier.asked("apr-last", "send-mail", "action")
        await server.wait_told(17)

    assert said(caplog) == [f"webhook at {server.address}: a notice was given up: it answered 500"] * 2
    assert "path-token" not in caplog.text
    assert KEY not in caplog.text


async def test_a_receiver_that_never_answers_is_left_and_nobody_waits_for_it(
    vault: Vault, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try has a deadline; who asks is not held up meanwhile."""
    vault.unlock(PASSPHRASE)
    release = threading.Event()

    def never(_seen: Seen) -> bytes:
        release.wait(20)
        return CLOSE

    with Upstream(never, authority.server_context("localhost")) as silent:
        address = HostPort("localhost", silent.port)
        pace = NotifyTiming(backoff_s=(0.01, 0.01), attempt_s=6.0)
        async with notifying(vault, f"https://{address}/", authority, private=(address,), pace=pace) as notifier:
            notifier.asked("apr-1", "send-mail", "action")
            for tries in (1, 2, 3):
                await wait_until_async(lambda count=tries: len(silent.requests) >= count, f"{tries} requests come")
                jump(monkeypatch, pace.attempt_s)
            await logged(caplog, "given up")
        release.set()

    assert silent.connections == 3


async def test_a_flood_is_bounded_and_said_once(
    vault: Vault, authority: Authority, receiver: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand questions while the vault is locked: what is kept is told, of the others the log has one line."""
    server = receiver()
    async with told_to(server, vault, authority) as notifier:
        for number in range(1000):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        vault.unlock(PASSPHRASE)
        await server.wait_told(MAX_WAITING)
        notifier.asked("apr-later", "send-mail", "action")
        await server.wait_told(1)

    assert [told["id"] for told in server.told] == [*(f"apr-{number}" for number in range(MAX_WAITING)), "apr-later"]
    assert [line for line in said(caplog) if "dropped" in line] == [
        f"webhook at {server.address}: {MAX_WAITING} notices wait already, others are dropped"
    ]


async def logged(caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """Until one of these stands in the log."""
    await wait_until_async(
        lambda: any(word in line for line in said(caplog) for word in words), f"{words}", seen=lambda: said(caplog)
    )


@pytest.fixture(autouse=True)
def _log_of_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
