"""Sessions of unlocked pages: how long they last, how many there are, and that their keys are wiped, on a test's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aileron.ingress.known import KnownCallers
from aileron.model.failure import AileronError
from aileron.model.preview import Preview, PreviewField
from aileron.web.daemon_port import DaemonPort, Ended
from aileron.web.sessions import (
    LASTS_S,
    MAX_PREVIEW_BYTES,
    MAX_PREVIEWS,
    MAX_SESSIONS,
    Sessions,
    StolenError,
)
from tests.support.waiting import wait_until_async
from tests.web.daemon_port import Key, Process, ToldDesk

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk() -> Any:
    """Return a scripted daemon port."""
    return ToldDesk()


@pytest.fixture
def sessions(desk: Any) -> Sessions:
    """Return the sessions of that daemon port."""
    told: DaemonPort = desk
    return Sessions(told, KnownCallers(), now=lambda: desk.now)


def why(sessions: Sessions, cookies: list[str]) -> Ended | None:
    """Return why the session of these cookies ended."""
    past = sessions.past_of(cookies)
    return None if past is None else past.why


async def test_a_review_page_locks_after_fifteen_minutes_even_if_it_is_in_use(sessions: Sessions, desk: Any) -> None:
    """The key is wiped at that time."""
    key = Key()
    session, cookie = await sessions.open(key, key.key_id, Process(1))
    for _ in range(29):
        desk.now += LASTS_S / 30
        await sessions.end_due()
        await sessions.check(session, Process(1))
    assert sessions.of_cookies([cookie]) is session
    assert not key.is_wiped
    desk.now += LASTS_S / 30
    await sessions.end_due()

    assert (sessions.of_cookies([cookie]), key.is_wiped, why(sessions, [cookie])) == (None, True, "over")


async def test_a_page_session_ends_on_time_even_without_a_request(sessions: Sessions, desk: Any) -> None:
    """The serving task ends it; cancelling that task ends all sessions."""
    first, second = Key(), Key()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.serve)
        await sessions.open(first, first.key_id, Process(1))
        desk.now += LASTS_S
        await sessions.open(second, second.key_id, Process(1))
        await wait_until_async(lambda: first.is_wiped, "the first key is wiped")
        assert not second.is_wiped
        tasks.cancel_scope.cancel()
    assert second.is_wiped
    assert sessions.count == 0


async def test_a_request_from_a_process_other_than_the_browser_locks_the_page(sessions: Sessions, desk: Any) -> None:
    """The session ends at once, before the process gets any answer."""
    key = Key()
    session, cookie = await sessions.open(key, key.key_id, Process(1))
    with pytest.raises(StolenError):
        await sessions.check(session, Process(2))

    assert key.is_wiped
    assert sessions.of_cookies([cookie]) is None
    assert desk.told[1:] == [(session.id, "process"), ("page", "process")]


async def test_a_page_session_beyond_the_limit_ends_the_oldest_page_session(sessions: Sessions) -> None:
    """All other sessions stay open."""
    keys = [Key() for _ in range(MAX_SESSIONS + 1)]
    cookies = [(await sessions.open(key, key.key_id, Process(1)))[1] for key in keys]

    assert [key.is_wiped for key in keys] == [True] + [False] * MAX_SESSIONS
    assert sessions.count == MAX_SESSIONS
    assert why(sessions, [cookies[0]]) == "many"


@pytest.mark.parametrize(
    ("change", "is_locked"),
    [
        (lambda desk: setattr(desk, "key_id", "ed25519:two"), True),
        (lambda desk: desk.__dict__.update(status="none", key_id=None), True),
        (
            lambda desk: desk.__dict__.update(status="locked", key_id=None),
            False,
        ),  # the vault is locked: it names no approver
    ],
)
async def test_replacing_the_approver_locks_the_page(
    sessions: Sessions, desk: Any, change: Callable[[Any], None], is_locked: bool
) -> None:
    """A locked vault names no approver, so it does not lock the page."""
    key = Key()
    await sessions.open(key, key.key_id, Process(1))
    change(desk)
    await sessions.end_due()

    assert key.is_wiped is is_locked


async def test_unlocking_the_page_fails_if_it_cannot_be_recorded(sessions: Sessions, desk: Any) -> None:
    """The key is wiped, and there is no session."""
    desk.is_full, key = True, Key()
    with pytest.raises(AileronError):
        await sessions.open(key, key.key_id, Process(1))

    assert (key.is_wiped, sessions.count) == (True, 0)


async def test_a_page_session_can_exist_without_the_approvers_key(sessions: Sessions, desk: Any) -> None:
    """Such a session shows pages; a change of the approver ends it too."""
    session, cookie = await sessions.open(None, "passkey:one", Process(1))
    await sessions.end_due()

    assert session.key is None
    assert sessions.of_cookies([cookie]) is session
    desk.key_id = "ed25519:two"
    await sessions.end_due()
    assert sessions.of_cookies([cookie]) is None


async def test_the_page_session_of_a_revoked_passkey_ends(sessions: Sessions, desk: Any) -> None:
    """The session of another key stays open."""
    session, cookie = await sessions.open(None, "webauthn:one", Process(1))
    _, other = await sessions.open(Key(), "ed25519:one", Process(1))
    await sessions.end_due()
    assert sessions.of_cookies([cookie]) is session
    desk.passkeys.clear()
    await sessions.end_due()

    assert sessions.of_cookies([cookie]) is None
    assert why(sessions, [cookie]) == "passkey"
    assert sessions.of_cookies([other]) is not None


async def test_a_page_session_does_not_store_its_cookie(sessions: Sessions) -> None:
    """Printing the session does not reveal it either."""
    session, cookie = await sessions.open(Key(), "ed25519:one", Process(1))

    assert cookie not in repr(session)
    assert cookie not in repr(vars(session))


async def test_the_previews_of_a_page_session_are_bounded_in_number_and_size(sessions: Sessions) -> None:
    """The oldest are dropped; the newest stays, however large it is."""
    session, _ = await sessions.open(Key(), "ed25519:one", Process(1))
    for number in range(MAX_PREVIEWS + 1):
        session.keep_preview(f"act-{number}", "d", _preview("x"))
    assert [session.preview_of(f"act-{number}", "d") is None for number in (0, 1, MAX_PREVIEWS)] == [True, False, False]
    session.keep_preview("large", "d", _preview("x" * MAX_PREVIEW_BYTES))
    assert session.preview_of("large", "d") is not None
    assert session.preview_of(f"act-{MAX_PREVIEWS}", "d") is None
    session.wipe()
    assert session.preview_of("large", "d") is None


async def test_the_token_of_a_form_depends_on_each_field_and_on_the_boundaries_between_fields(
    sessions: Sessions,
) -> None:
    """The fields `ab`, `c` differ from `a`, `bc`; and a token of one session is invalid in another."""
    first, second = [(await sessions.open(Key(), "ed25519:one", Process(1)))[0] for _ in range(2)]

    assert first.is_token(first.token("a", "bc"), "a", "bc")
    assert not first.is_token(first.token("ab", "c"), "a", "bc")
    assert not second.is_token(first.token("a", "bc"), "a", "bc")
    assert not first.is_token("", "a")


def _preview(text: str) -> Preview:
    return Preview([PreviewField("x", text, multiline=False)], None, None, "sha256:x")
