"""The key-value store of HashiCorp Vault and OpenBao, as a server of the tests speaks it: the protocol, over TLS.

No real server: neither is in Debian.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import anyio
import pytest

from aileron.config import Settings
from aileron.egress import Egress
from aileron.elsewhere.fetch import Fetcher
from aileron.elsewhere.key_value import MAX_ANSWER_BYTES, KeyValueStores
from aileron.elsewhere.programs import Programs
from aileron.model.failure import FailureClass
from aileron.model.names import HostPort
from tests.elsewhere.conftest import TOKEN, Nobody, fetched, fetching, unfetched
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = pytest.mark.anyio

VALUE = "canary-in-the-key-value-store"


def stored(**fields: Any) -> bytes:
    """The answer to a read, as the API's page has it."""
    metadata = {"created_time": "2026-01-02T03:04:05.678Z", "deletion_time": "", "destroyed": False, "version": 2}
    said = {"request_id": "x", "lease_id": "", "renewable": False, "data": {"data": fields, "metadata": metadata}}
    return answer(json.dumps(said).encode(), "Content-Type: application/json")


def says(errors: list[str], status: str) -> bytes:
    """An answer that is an error."""
    return answer(json.dumps({"errors": errors}).encode(), "Content-Type: application/json", status=status)


class Store:
    """A server whose answers are by path; a token that is not its own is refused."""

    def __init__(self, authority: Authority) -> None:
        self.goes_on = threading.Event()
        self.seen: list[Seen] = []
        self.server = Upstream(self._answer, tls=authority.server_context("localhost"))
        self.address = f"localhost:{self.server.port}"

    def at(self, path: str, field: str = "password") -> str:
        """A reference."""
        return f"vault://{self.address}/secret/{path}#{field}"

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        self.seen.append(seen)
        if seen.values("X-Vault-Token") != [TOKEN.decode()]:
            return says(["permission denied"], "403 Forbidden")
        match seen.target.removeprefix("/v1/secret/data/"):
            case "mail/home":
                return stored(password=VALUE, user="me", number=7)
            case "deleted":
                said = {"data": {"data": None, "metadata": {"destroyed": False, "version": 3}}}
                return answer(json.dumps(said).encode(), status="404 Not Found")
            case "null":
                return answer(json.dumps({"data": {"data": None}}).encode())
            case "sealed":
                return says(["Vault is sealed"], "503 Service Unavailable")
            case "standby":
                return answer(
                    b"", f"Location: https://{self.address}/v1/secret/data/mail/home", status="307 Temporary Redirect"
                )
            case "limited":
                return says(["quota exceeded"], "429 Too Many Requests")
            case "broken":
                return says(["internal"], "500 Internal Server Error")
            case "html":
                return answer(b"<html>not a store</html>")
            case "version-1":
                return answer(json.dumps({"data": {"password": VALUE}}).encode())
            case "huge":
                return stored(password=VALUE, more="x" * MAX_ANSWER_BYTES)
            case "slow":
                self.goes_on.wait(10)
                return stored(password=VALUE)
        return says([], "404 Not Found")


@pytest.fixture(scope="module")
def store(authority: Authority) -> Iterator[Store]:
    """One that is up."""
    made = Store(authority)
    with made.server:
        yield made
        made.goes_on.set()


async def test_a_field_is_read_with_the_token(authority: Authority, store: Store) -> None:
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
    authority: Authority, store: Store, path: str, field: str, code: str, words: str
) -> None:
    """In our words: nothing that the server said."""
    async with fetching(authority, store.address) as fetcher:
        before = len(store.seen)
        with unfetched(code, words, store.at(path, field)):
            await fetched(fetcher, store.at(path, field), TOKEN)
        assert len(store.seen) == before + 1


async def test_a_token_that_does_not_count_is_told_by_its_name(authority: Authority, store: Store) -> None:
    """And the token by no other."""
    async with fetching(authority, store.address) as fetcher:
        with unfetched("refused", "refuses the token the-token for it (403)", "aileron secret set the-token"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.another-token")
        with unfetched("refused", "holds what no header can carry"):
            await fetched(fetcher, store.at("mail/home"), b"hvs.a-token\r\nX-Other: 1")


async def test_a_server_that_is_slow_or_gone_is_a_network_error(authority: Authority, store: Store) -> None:
    """Within the time that there is."""
    async with fetching(authority, store.address, "localhost:1") as fetcher:
        for reference in (store.at("slow"), "vault://localhost:1/secret/mail#password"):
            with unfetched("unreachable", reference, failure_class=FailureClass.NETWORK_ERROR):
                await fetched(fetcher, reference, TOKEN, within_s=0.5)


async def test_another_certificate_is_refused_before_the_token_is_sent(authority: Authority, store: Store) -> None:
    """One of nobody that is trusted here."""
    async with fetching(None, store.address) as fetcher:
        before = len(store.seen)
        with unfetched("unreachable", "certificate", failure_class=FailureClass.NETWORK_ERROR):
            await fetched(fetcher, store.at("mail/home"), TOKEN)
        assert len(store.seen) == before


async def test_an_address_of_this_network_needs_the_users_setting(authority: Authority, store: Store) -> None:
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


async def test_the_way_to_it_has_no_other_turn(authority: Authority, store: Store) -> None:
    """Many at once are each their own request."""
    async with fetching(authority, store.address) as fetcher:
        got: list[bytes] = []

        async def one() -> None:
            got.append(await fetched(fetcher, store.at("mail/home"), TOKEN))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
    assert got == [VALUE.encode()] * 5
