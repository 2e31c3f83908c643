"""How long an unlocked page lasts, how many there are, and that its key is gone afterwards. On a clock of the test's own."""

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
    """The daemon."""
    return ToldDesk()


@pytest.fixture
def sessions(desk: Any) -> Sessions:
    """Of that daemon."""
    told: DaemonPort = desk
    return Sessions(told, KnownCallers(), now=lambda: desk.now)


def why(sessions: Sessions, cookies: list[str]) -> Ended | None:
    """Why the session of these is over."""
    past = sessions.past_of(cookies)
    return None if past is None else past.why


async def test_a_page_is_locked_after_fifteen_minutes_however_busy(sessions: Sessions, desk: Any) -> None:
    """Not a moment later, used or not, and its key is wiped then."""
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


async def test_its_end_comes_without_anybody_asking(sessions: Sessions, desk: Any) -> None:
    """The task that serves them ends it; and when that is cancelled, all of them."""
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


async def test_another_process_locks_it(sessions: Sessions, desk: Any) -> None:
    """At once, before it is answered anything."""
    key = Key()
    session, cookie = await sessions.open(key, key.key_id, Process(1))
    with pytest.raises(StolenError):
        await sessions.check(session, Process(2))

    assert key.is_wiped
    assert sessions.of_cookies([cookie]) is None
    assert desk.told[1:] == [(session.id, "process"), ("page", "process")]


async def test_one_more_than_there_can_be_ends_the_oldest(sessions: Sessions) -> None:
    """And no other."""
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
        ),  # the vault: it decides nothing meanwhile
    ],
)
async def test_another_approver_locks_it(
    sessions: Sessions, desk: Any, change: Callable[[Any], None], is_locked: bool
) -> None:
    """A vault that is locked names nobody, and contradicts nobody."""
    key = Key()
    await sessions.open(key, key.key_id, Process(1))
    change(desk)
    await sessions.end_due()

    assert key.is_wiped is is_locked


async def test_what_is_not_on_record_is_not_unlocked(sessions: Sessions, desk: Any) -> None:
    """The key is wiped, and there is no session."""
    desk.is_full, key = True, Key()
    with pytest.raises(AileronError):
        await sessions.open(key, key.key_id, Process(1))

    assert (key.is_wiped, sessions.count) == (True, 0)


async def test_a_page_may_be_opened_without_a_key(sessions: Sessions, desk: Any) -> None:
    """It shows; what unlocks it in another way signs in another way."""
    session, cookie = await sessions.open(None, "passkey:one", Process(1))
    await sessions.end_due()

    assert session.key is None
    assert sessions.of_cookies([cookie]) is session
    desk.key_id = "ed25519:two"
    await sessions.end_due()
    assert sessions.of_cookies([cookie]) is None


async def test_what_a_passkey_unlocked_ends_with_that_passkey(sessions: Sessions, desk: Any) -> None:
    """Revoked, or while the vault that knows is locked; what another unlocked goes on."""
    session, cookie = await sessions.open(None, "webauthn:one", Process(1))
    _, other = await sessions.open(Key(), "ed25519:one", Process(1))
    await sessions.end_due()
    assert sessions.of_cookies([cookie]) is session
    desk.passkeys.clear()
    await sessions.end_due()

    assert sessions.of_cookies([cookie]) is None
    assert why(sessions, [cookie]) == "passkey"
    assert sessions.of_cookies([other]) is not None


async def test_a_cookie_is_not_kept(sessions: Sessions) -> None:
    """Nor said by anything that might be printed."""
    session, cookie = await sessions.open(Key(), "ed25519:one", Process(1))

    assert cookie not in repr(session)
    assert cookie not in repr(vars(session))


async def test_previews_are_bounded_in_number_and_size(sessions: Sessions) -> None:
    """The oldest go; the newest stays however large."""
    session, _ = await sessions.open(Key(), "ed25519:one", Process(1))
    for number in range(MAX_PREVIEWS + 1):
        session.keep_preview(f"act-{number}", "d", _preview("x"))
    assert [session.preview_of(f"act-{number}", "d") is None for number in (0, 1, MAX_PREVIEWS)] == [True, False, False]
    session.keep_preview("large", "d", _preview("x" * MAX_PREVIEW_BYTES))
    assert session.preview_of("large", "d") is not None
    assert session.preview_of(f"act-{MAX_PREVIEWS}", "d") is None
    session.wipe()
    assert session.preview_of("large", "d") is None


async def test_a_forms_token_is_of_its_words_and_their_borders(sessions: Sessions) -> None:
    """`ab`, `c` is not `a`, `bc`; and one session's is not another's."""
    first, second = [(await sessions.open(Key(), "ed25519:one", Process(1)))[0] for _ in range(2)]

    assert first.is_token(first.token("a", "bc"), "a", "bc")
    assert not first.is_token(first.token("ab", "c"), "a", "bc")
    assert not second.is_token(first.token("a", "bc"), "a", "bc")
    assert not first.is_token("", "a")


def _preview(text: str) -> Preview:
    return Preview([PreviewField("x", text, multiline=False)], None, None, "sha256:x")
