"""The key-value store of HashiCorp Vault and OpenBao, spoken by a server of the tests over TLS.

The tests use no real server, because neither is in Debian.
"""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from aileron.config import LiveSettings, Settings
from aileron.egress import Egress
from aileron.model.failure import FailureClass
from aileron.model.names import HostPort
from aileron.secret_stores.fetch import Fetcher
from aileron.secret_stores.key_value import KeyValueStores
from aileron.secret_stores.programs import Programs
from tests.secret_stores.conftest import Nobody, fetched, fetching, unfetched
from tests.support.key_value_store import TOKEN, KeyValueStore, stored
from tests.support.upstream import Authority, Upstream

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("S7")]

VALUE = "canary-in-the-key-value-store"


@pytest.fixture(scope="module")
def store(authority: Authority) -> Iterator[KeyValueStore]:
    """Run a store."""
    with KeyValueStore(VALUE, authority) as made:
        yield made


async def test_a_secret_is_read_from_a_field_of_the_store_with_the_token(
    authority: Authority, store: KeyValueStore
) -> None:
    """The fetch is one GET of the path of version 2."""
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
async def test_each_refusal_of_the_store_is_reported_with_its_fix(
    authority: Authority, store: KeyValueStore, path: str, field: str, code: str, words: str
) -> None:
    """The words are ours; the server's own are not quoted."""
    async with fetching(authority, store.address) as fetcher:
        before = len(store.seen)
        with unfetched(code, words, store.at(path, field)):
            await fetched(fetcher, store.at(path, field), TOKEN)
        assert len(store.seen) == before + 1


async def test_a_refused_token_is_reported_by_the_name_of_its_secret(
    authority: Authority, store: KeyValueStore
) -> None:
    """A token that no header can hold is refused as well."""
    async with fetching(authority, store.address) as fetcher:
        with unfetched("refused", "refuses the token the-token for it (403)", "aileron secret set the-token"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.another-token")
        with unfetched("refused", "holds what no token can"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.a-token\r\nX-Other: 1")


async def test_a_slow_or_missing_server_is_a_network_error(authority: Authority, store: KeyValueStore) -> None:
    """The failure comes within the deadline."""
    async with fetching(authority, store.address, "localhost:1") as fetcher:
        for reference in (store.at("slow"), "vault://localhost:1/secret/mail#password"):
            with unfetched("unreachable", reference, failure_class=FailureClass.NETWORK_ERROR):
                await fetched(fetcher, reference, TOKEN, within_s=0.5)


async def test_an_untrusted_certificate_is_refused_before_the_token_is_sent(
    authority: Authority, store: KeyValueStore
) -> None:
    """The certificate's authority is not trusted here."""
    async with fetching(None, store.address) as fetcher:
        before = len(store.seen)
        with unfetched("unreachable", "certificate", failure_class=FailureClass.NETWORK_ERROR):
            await fetched(fetcher, store.at("mail/home"), TOKEN)
        assert len(store.seen) == before


async def test_a_store_at_a_private_address_needs_the_users_setting(authority: Authority, store: KeyValueStore) -> None:
    """The setting is the one for every private destination."""
    async with fetching(authority) as fetcher:
        before = len(store.seen)
        with unfetched("not_allowed", "egress.private"):
            await fetched(fetcher, store.at("mail/home"), TOKEN)
        assert len(store.seen) == before


async def test_a_store_without_tls_needs_the_users_setting() -> None:
    """HashiCorp's agent on this machine is such a store."""
    with Upstream(lambda _seen: stored(password=VALUE)) as server:
        to = HostPort("localhost", server.port)
        settings = LiveSettings(Settings(egress_private_plain=frozenset({to})))
        egress = Egress(settings.now, Nobody())  # type: ignore[arg-type]
        fetcher = Fetcher(KeyValueStores(egress, settings), Programs(), {})
        assert await fetched(fetcher, f"vault://{to}/secret/mail#password", TOKEN) == VALUE.encode()
        settings.replace(Settings(egress_private=frozenset({to})))
        with unfetched("unreachable", failure_class=FailureClass.NETWORK_ERROR):
            await fetched(fetcher, f"vault://{to}/secret/mail#password", TOKEN, within_s=2)
        await egress.aclose()


async def test_concurrent_fetches_all_get_the_value(authority: Authority, store: KeyValueStore) -> None:
    """Each of the five fetches is a request of its own."""
    async with fetching(authority, store.address) as fetcher:
        got: list[bytes] = []
        before = len(store.seen)

        async def one() -> None:
            got.append(await fetched(fetcher, store.at("mail/home"), TOKEN))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
    assert got == [VALUE.encode()] * 5
    assert [seen.target for seen in store.seen[before:]] == ["/v1/secret/data/mail/home"] * 5
