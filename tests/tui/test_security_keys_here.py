"""A security key in the console: offered in place of the passphrase, with a touch for each yes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import msgspec
import pytest

from aileron.approver_key import ctap_channel, security_key
from aileron.approver_key.security_key import OFFER
from aileron.model.decision import DecisionStatement
from aileron.model.passkey import check_assertion
from aileron.model.secret import Secret
from aileron.tui.key_session import SecurityKeyHooks
from tests.approver_key.test_security_key import Hands, entry
from tests.cli.alike import mail
from tests.cli.questions import SUBJECTS, previewed, question, subject_question
from tests.support.security_key import PATIENCE_S, PIN, Plugged, SoftKey
from tests.tui.consoles import World, named

pytestmark = pytest.mark.anyio

TMUX = "this is a terminal of tmux"


class Desk:
    """The console of a home with a plugged-in security key that may sign there."""

    def __init__(self, world: World, port: Plugged) -> None:
        self.world = world
        self.key = port.key
        self.hands = Hands(PIN, PIN, PIN)
        self.is_plugged_in = True
        self.takes: Literal["key", "passphrase"] = "key"
        self.offers: list[str] = []
        self.listed = entry(port.key)
        world.sign()
        world.security_keys = SecurityKeyHooks(
            is_plugged_in=lambda: self.is_plugged_in, ports=lambda: [port.port], offer=self._offer, person=self._person
        )
        world.fake.script("GET", "/v1/passkeys", (200, {"passkeys": [msgspec.to_builtins(self.listed)]}))

    def _offer(self, question: str) -> Secret:
        self.offers.append(question)
        assert not self.world.is_held
        return Secret(b"" if self.takes == "key" else self.world.passphrase.encode())

    @contextlib.contextmanager
    def _person(self) -> Iterator[Hands]:
        assert not self.world.is_held
        yield self.hands

    def check(self, question: dict[str, Any], sent: dict[str, Any]) -> None:
        """Check that the passkey signed the decision, over the question's digest."""
        from aileron.approver_key.security_key import enrolled

        statement = DecisionStatement(
            approval_id=question["approval_id"],
            digest=question["digest"],
            decision="approve",
            reason=None,
            at=sent["at"],
            key_id=self.listed.id,
        )
        assert (sent["key_id"], sent["digest"]) == (self.listed.id, question["digest"])
        assert sent.get("head") is None
        check_assertion(enrolled([self.listed])[0], statement, sent["signature"])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the device: it is a thread of this process, which may be slow."""
    monkeypatch.setattr(ctap_channel, "SILENCE_S", PATIENCE_S)


@pytest.fixture
def desk(world: World) -> Iterator[Desk]:
    """Make a console with one plugged-in key, with a PIN."""
    with Plugged(SoftKey()) as port:
        yield Desk(world, port)


async def test_in_tmux_each_approval_takes_a_pin_and_a_touch_but_no_passphrase(world: World, desk: Desk) -> None:
    """Each prompt has the card above it; the passkey signs what was shown, and opens no key for the next."""
    questions = [named("one", reversible=True), named("two", reversible=True)]
    world.ask(*questions)
    async with world.console(not_kept=TMUX) as shown:
        for count in (1, 2):
            await shown.until("expires in")
            await shown.approve(until=partial(world.has_sent, count))
            await shown.until("✓")
            await shown.press("n")
        assert not shown.app.key_session.is_open

    assert (desk.key.touched, len(desk.hands.asked), world.asked_for) == (2, 2, [])
    assert world.said_above.count(OFFER) == 2
    assert any("mira@example.com" in said for said in world.said_above)
    for asked, sent in zip(questions, world.sent(), strict=True):
        desk.check(asked, sent)
    assert PIN not in "".join(map(str, world.sent())) + "".join(world.said_above)


async def test_each_of_several_requests_that_are_alike_takes_its_own_touch(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card is read once, and each digest is signed. A missing touch stops; the other requests stay pending."""
    asked = [mail(number) for number in (1, 2, 3)]
    world.ask(*asked)
    left = [True, True]

    def touch() -> bool:
        if not left:
            return False
        left.pop()
        if not left:
            monkeypatch.setattr(security_key, "TOUCH_S", 0.5)  # for the touch that does not come
        return True

    desk.key.touch = touch
    async with world.console((100, 40), not_kept=TMUX, until="3 waiting") as shown:
        await shown.press_settled("a", "A", until="approve all 3")
        await shown.press_settled("y", until_told="2 of 3 approved")

    assert (desk.key.touched, len(desk.hands.asked), world.asked_for) == (2, 3, [])
    for request, sent in zip(asked, world.sent(), strict=False):
        desk.check(request, sent)
    assert len(world.sent()) == 2


async def test_a_request_for_a_preview_takes_a_touch_of_the_security_key(world: World, desk: Desk) -> None:
    """The passkey signs the request; the fake daemon cannot seal an answer to the passkey, so the test ends there."""
    asked = question(previewed(), approval_id="act-20261121T040000-seen")
    world.ask(asked)
    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/preview", (200, {"sealed": "AAAA"}))
    async with world.console(not_kept=TMUX, until="expires in") as shown:
        await shown.press("p", until=lambda: len(world.sent("preview")) == 1)

    (sent,) = world.sent("preview")
    assert (sent["key_id"], desk.key.touched, world.asked_for) == (desk.listed.id, 1, [])


async def test_the_passphrase_can_be_typed_at_the_security_keys_prompt(world: World, desk: Desk) -> None:
    """The security key is not touched, and the decision is signed as without one."""
    desk.takes = "passphrase"
    world.ask(named("one", reversible=True))
    async with world.console(not_kept=TMUX, until="expires in") as shown:
        await shown.approve(until="✓")

    (sent,) = world.sent()
    assert (desk.key.touched, len(desk.offers)) == (0, 1)
    assert sent["key_id"] == (world.approver and world.approver.key_id)


async def test_a_security_key_is_offered_only_if_it_is_plugged_in_and_the_approvers_key_is_closed(
    world: World, desk: Desk
) -> None:
    """An open approver's key needs no prompt. Without a security key, passkeys are not even requested."""
    world.ask(named("one", reversible=True), named("two", reversible=True))
    async with world.console(until="expires in") as shown:
        await shown.unlock()
        await shown.approve(until="✓")
        assert (desk.offers, desk.key.touched) == ([], 0)
        await shown.press("L", "n", until="expires in")
        desk.is_plugged_in = False
        await shown.approve(until=lambda: len(world.sent()) == 2)

    assert (desk.offers, len(world.asked_for)) == ([], 2)
    assert world.fake.asked("GET", "/v1/passkeys") == []


async def test_a_consent_that_no_passkey_may_sign_takes_the_passphrase(world: World, desk: Desk) -> None:
    """The case is a change of the settings, on which everything else depends."""
    asked = subject_question(SUBJECTS["settings"])
    world.ask(asked)
    async with world.console(not_kept=TMUX, until="expires in") as shown:
        await shown.approve(word="allow", until=lambda: len(world.sent()) == 1)

    assert (desk.offers, desk.key.touched, len(world.asked_for)) == ([], 0, 1)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda desk: setattr(desk.key.lie, "unverified", True), "the device did not verify the person"),
        (lambda desk: setattr(desk.key.lie, "other_digest", True), "the signature is not from the enrolled key"),
        (lambda desk: setattr(desk.key.lie, "is_busy", True), "Do not touch it"),
        (lambda desk: setattr(desk.key.lie, "garbage", b"\x00\xff"), "cannot be read"),
        (lambda desk: setattr(desk.key, "tries", 0), "blocked"),
    ],
    ids=["unverified", "another digest", "busy", "garbage", "blocked"],
)
async def test_a_faulty_security_key_is_reported_and_decides_nothing(
    world: World, desk: Desk, prepare: Callable[[Desk], None], words: str
) -> None:
    """The console keeps running, and the passphrase still decides."""
    prepare(desk)
    world.ask(named("one", reversible=True))
    async with world.console(not_kept=TMUX, until="expires in") as shown:
        await shown.approve(until_told=words)
        assert world.sent() == []
        shown.rested()
        desk.takes = "passphrase"
        await shown.approve(until=lambda: len(world.sent()) == 1)


async def test_if_the_list_of_passkeys_cannot_be_loaded_the_passphrase_decides(world: World, desk: Desk) -> None:
    """The daemon answers with an error instead of the list."""
    world.fake.script("GET", "/v1/passkeys", (500, {"nothing": "of use"}))
    world.ask(named("one", reversible=True))
    async with world.console(not_kept=TMUX, until="expires in") as shown:
        await shown.approve(until=lambda: len(world.sent()) == 1)

    assert (desk.offers, len(world.asked_for)) == ([], 1)
