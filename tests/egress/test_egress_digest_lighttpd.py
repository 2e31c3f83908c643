"""HTTP Digest at Debian's lighttpd: MD5, SHA-256, hashed names, a wrong password."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from aileron.egress import Meter, RequestReport
from aileron.egress.attempts import PAUSE_S
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from tests.egress.conftest import HOST, Got, World, use
from tests.egress.test_egress_leaks import assert_clean
from tests.support.lighttpd import REALMS, Lighttpd

pytestmark = pytest.mark.anyio
USER, PASSWORD = "Mufasa", b"Circle of Life"


@pytest.fixture(scope="module")
def lighttpd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lighttpd]:
    """Start lighttpd with one user."""
    with Lighttpd(tmp_path_factory.mktemp("lighttpd"), USER, PASSWORD.decode()) as server:
        yield server


def at(
    server: Lighttpd, world: World, password: bytes = PASSWORD, user: str = USER
) -> Callable[..., AsyncIterator[Got]]:
    """Return a function that requests paths from the server with this password."""
    world.vault.secret, world.vault.username = password, user
    destination = HostPort(HOST, server.port)
    grant = world.grant(destination, credential=use("digest"), plain=True)
    meter = Meter(grant.budget)

    async def ask(*paths: str) -> AsyncIterator[Got]:
        for path in paths:
            url = f"http://{destination}/{path}"
            yield await world.ask(None, url=url, credential="digest", grant=grant, meter=meter)

    return ask


def statuses(world: World) -> list[int | None]:
    """Return the statuses of all exchanges, as the ledger has them."""
    return [row.status for row in world.journal.rows if isinstance(row, RequestReport)]


@pytest.mark.parametrize("path", REALMS)
async def test_lighttpd_accepts_the_answer_and_challenges_only_once(
    world: World, lighttpd: Lighttpd, path: str
) -> None:
    """Cases: MD5, SHA-256, a choice of both, and a hashed user name. Only the first request is challenged."""
    got = [response async for response in at(lighttpd, world)(*[f"{path}/page"] * 3)]

    assert [(response.status, response.body) for response in got] == [(200, REALMS[path].encode())] * 3
    assert statuses(world) == [401, 200, 200, 200]


@pytest.mark.abuse_case("E44")
async def test_a_wrong_password_is_tried_at_lighttpd_only_once(world: World, lighttpd: Lighttpd) -> None:
    """The next request with that password fails without a try; another password is tried."""
    wrong = at(lighttpd, world, b"not the password")
    for expected in ("refused the user name or the password", f"is not tried again for {PAUSE_S:.0f} s"):
        with pytest.raises(AileronError) as caught:
            _ = [response async for response in wrong("sha/page")]
        failure = caught.value.failure
        assert (failure.failure_class, failure.boundary) == (FailureClass.BINDING_FAILED, Boundary.USER)
        assert expected in failure.message
        assert "aileron secret set" in failure.message
        assert_clean(failure, b"not the password")
    assert statuses(world) == [401, 401]

    assert [response.status async for response in at(lighttpd, world)("sha/page")] == [200]


@pytest.mark.abuse_case("E45")
async def test_no_credential_is_sent_to_a_service_that_asks_for_basic_instead(world: World, lighttpd: Lighttpd) -> None:
    """A downgrade to Basic would send the password itself."""
    with pytest.raises(AileronError, match='asks for Basic, not Digest; the connector needs kind = "basic"'):
        _ = [response async for response in at(lighttpd, world)("basic/page")]
    assert statuses(world) == [401]


async def test_two_realms_of_one_host_are_answered_in_turn(world: World, lighttpd: Lighttpd) -> None:
    """Only the last realm's challenge is cached: each change of realm costs an exchange, but locks no account."""
    got = [response.status async for response in at(lighttpd, world)("md5/page", "sha/page", "md5/page")]

    assert got == [200, 200, 200]
    assert statuses(world) == [401, 200, 401, 200, 401, 200]
