"""The key-value store of HashiCorp Vault and OpenBao, as a server of the tests speaks it: the protocol, over TLS.

No real server: neither is in Debian.
"""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from aileron.config import Settings
from aileron.egress import Egress
from aileron.elsewhere.fetch import Fetcher
from aileron.elsewhere.key_value import KeyValueStores
from aileron.elsewhere.programs import Programs
from aileron.model.failure import FailureClass
from aileron.model.names import HostPort
from tests.elsewhere.conftest import Nobody, fetched, fetching, unfetched
from tests.support.key_value_store import TOKEN, KeyValueStore, stored
from tests.support.upstream import Authority, Upstream

pytestmark = pytest.mark.anyio

VALUE = "canary-in-the-key-value-store"


@pytest.fixture(scope="module")
def store(authority: Authority) -> Iterator[KeyValueStore]:
    """One that is up."""
    with KeyValueStore(VALUE, authority) as made:
        yield made


async def test_a_field_is_read_with_the_token(authority: Authority, store: KeyValueStore) -> None:
    """One GET, of the path of version 2."""
    async with fetching(authority, store.address) as fetcher:
        before = len(store.seen)
        assert await fetched(fetcher, store.at("mail/home"), TOKEN) == VALUE.encode()
    (seen,) = store.seen[before:]
    assert (seen.method, seen.target, seen.body) == ("GET", "/v1/secret/data/mail/home", b"")
    assert seen.values("X-Vault-Request") == ["true"]


@pytest.mark.parametrize(
    ("path", "field", "code", "words"),
    [
        ("none", "password", "missing", "has no such secret (404)"),
        ("deleted", "password", "missing", "has no such secret (404)"),
        ("null", "password", "missing", "has no field password"),
        ("mail/home", "pass", "missing", "has no field pass"),
        ("mail/home", "number", "not_text", "the field number is not text"),
        ("sealed", "password", "sealed", "is sealed, or out of service (503); unseal it"),
        ("standby", "password", "redirected", "redirect (307), which is not followed"),
        ("limited", "password", "bad_answer", "answers with status 429"),
        ("broken", "password", "bad_answer", "answers with status 500"),
        ("html", "password", "bad_answer", "not that of a key-value store of version 2"),
        ("version-1", "password", "missing", "has no field password"),
        ("huge", "password", "too_large", "larger than 256 KiB"),
    ],
)
async def test_each_refusal_is_told_with_its_cure(
    authority: Authority, store: KeyValueStore, path: str, field: str, code: str, words: str
) -> None:
    """In our words: nothing that the server said."""
    async with fetching(authority, store.address) as fetcher:
        before = len(store.seen)
        with unfetched(code, words, store.at(path, field)):
            await fetched(fetcher, store.at(path, field), TOKEN)
        assert len(store.seen) == before + 1


async def test_a_token_that_does_not_count_is_told_by_its_name(authority: Authority, store: KeyValueStore) -> None:
    """And the token by no other."""
    async with fetching(authority, store.address) as fetcher:
        with unfetched("refused", "refuses the token the-token for it (403)", "aileron secret set the-token"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.another-token")
        with unfetched("refused", "holds what no token can"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.a-token\r\nX-Other: 1")


async def test_a_server_that_is_slow_or_gone_is_a_network_error(authority: Authority, store: KeyValueStore) -> None:
    """Within the time that there is."""
    async with fetching(authority, store.address, "localhost:1") as fetcher:
        for reference in (store.at("slow"), "vault://localhost:1/secret/mail#password"):
            with unfetched("unreachable", reference, failure_class=FailureClass.NETWORK_ERROR):
                await fetched(fetcher, reference, TOKEN, within_s=0.5)


async def test_another_certificate_is_refused_before_the_token_is_sent(
    authority: Authority, store: KeyValueStore
) -> None:
    """One of nobody that is trusted here."""
    async with fetching(None, store.address) as fetcher:
        before = len(store.seen)
        with unfetched("unreachable", "certificate", failure_class=FailureClass.NETWORK_ERROR):
            await fetched(fetcher, store.at("mail/home"), TOKEN)
        assert len(store.seen) == before


async def test_an_address_of_this_network_needs_the_users_setting(authority: Authority, store: KeyValueStore) -> None:
    """As for any destination."""
    async with fetching(authority) as fetcher:
        before = len(store.seen)
        with unfetched("not_allowed", "egress.private"):
            await fetched(fetcher, store.at("mail/home"), TOKEN)
        assert len(store.seen) == before


async def test_without_tls_only_where_the_user_says_so() -> None:
    """Such as an agent of HashiCorp's on this machine."""
    with Upstream(lambda _seen: stored(password=VALUE)) as server:
        to = HostPort("localhost", server.port)
        settings = Settings(egress_private_plain=frozenset({to}))
        egress = Egress(settings, Nobody())  # type: ignore[arg-type]
        fetcher = Fetcher(KeyValueStores(egress, settings), Programs(), {})
        assert await fetched(fetcher, f"vault://{to}/secret/mail#password", TOKEN) == VALUE.encode()
        fetcher.stores.adopt(Settings(egress_private=frozenset({to})))
        with unfetched("unreachable", failure_class=FailureClass.NETWORK_ERROR):
            await fetched(fetcher, f"vault://{to}/secret/mail#password", TOKEN, within_s=2)
        await egress.aclose()


async def test_the_way_to_it_has_no_other_turn(authority: Authority, store: KeyValueStore) -> None:
    """Many at once are each their own request."""
    async with fetching(authority, store.address) as fetcher:
        got: list[bytes] = []

        async def one() -> None:
            got.append(await fetched(fetcher, store.at("mail/home"), TOKEN))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
    assert got == [VALUE.encode()] * 5
