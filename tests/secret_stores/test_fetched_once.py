"""All requests for a secret wait for the same fetch, which is recorded first. They share its failure, not a cancellation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from aileron.audit import events
from aileron.daemon.secrets.kept_in_stores import MOST_AT_ONCE, SecretsInStores
from aileron.model.credential import Reach
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault import Binding, Vault
from tests.secret_stores.conftest import fetching, program
from tests.support.waiting import DEADLINE_S, wait_until_async

pytestmark = pytest.mark.anyio

VALUE = "canary-that-is-fetched-once"
REFERENCE = "op://Private/Mail/password"
THERE = HostPort("api.example", 443)
NAME = BindingName.parse("api_key/mail/me")
PASSPHRASE = Secret(b"correct horse battery")
REACH = Reach(hosts=(str(THERE),), wire="api_key X-Key {key}")
USE = CredentialUse(
    connector="github://o/r",
    binding=NAME,
    need=CredentialNeed(kind="api_key", scope="all", header="X-Key", format="{key}"),
)


class Record:
    """A record of the events, each with the number of program starts at that time."""

    def __init__(self, begun: Path) -> None:
        self._begun = begun
        self.notes: list[tuple[object, int]] = []

    async def note(self, event: object) -> int:
        """Keep the event, and return its number."""
        self.notes.append((event, self.begun))
        return len(self.notes)

    @property
    def begun(self) -> int:
        """Number of times that the program was started."""
        return len(self._begun.read_text().splitlines()) if self._begun.exists() else 0


class Gate:
    """A gate at which a program waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def open(self) -> None:
        """Let one program go on."""
        os.write(self._fd, b"\n")


class World:
    """An open vault with one reference, bound for one host, and its fetcher."""

    def __init__(self, directory: Path, vault: Vault, elsewhere: SecretsInStores, record: Record) -> None:
        self.vault, self.elsewhere, self.record = vault, elsewhere, record
        self._directory = directory

    def says(self, *lines: str) -> None:
        """Replace the program: it records its start, then runs these lines."""
        program(self._directory, "op", f"echo begun >> {self._directory}/begun", *lines)

    def is_held(self, *lines: str) -> None:
        """Replace the program by one that waits for `Gate.open` before these lines."""
        os.mkfifo(self._directory / "gate")
        self.says(f"read _ < {self._directory}/gate", *lines)

    @contextmanager
    def gate(self) -> Iterator[Gate]:
        """Yield the gate of a held program."""
        fd = os.open(self._directory / "gate", os.O_RDWR)
        try:
            yield Gate(fd)
        finally:
            os.close(fd)

    async def begins(self, times: int = 1) -> None:
        """Wait until the program was started this many times."""
        await wait_until_async(lambda: self.record.begun >= times, f"{times} begin", seen=lambda: self.record.begun)

    async def wait(self, within_s: float = 10.0, use: CredentialUse | None = USE) -> str:
        """Wait like a request that is about to be sent. Return `ok`, or the failure's class and code."""
        try:
            await self.elsewhere.ready(use, THERE, anyio.current_time() + within_s)
        except AileronError as error:
            return f"{error.failure.failure_class.value} {error.failure.details.get('code')}"
        return "ok"

    async def all_of(self, count: int, within_s: float = 10.0) -> list[str]:
        """Return the results of this many requests at once."""
        got: list[str] = []

        async def one() -> None:
            got.append(await self.wait(within_s))

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
        return got

    def more(self, count: int) -> None:
        """Add this many secrets for the same host, none of which has been fetched."""
        path = str(self._directory / "op")
        for number in range(count):
            self.vault.set_reference(
                f"mail-{number}",
                Elsewhere(f"op://Private/Mail {number}/password", program=path),
                Secret(VALUE.encode()),
            )
            name = BindingName.parse(f"api_key/mail/{number}")
            self.vault.bind(Binding(name, "github://o/r", "api_key", None, f"mail-{number}", 1_750_000_000.0, REACH))
        self.vault.lock()
        self.vault.unlock(PASSPHRASE)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a world whose vault was locked and opened since it was bound, so no value is known."""
    directory = tmp_path / "bin"
    directory.mkdir(mode=0o755)
    path = str(program(directory, "op"))
    vault = Vault(tmp_path / "home" / "vault.json")
    vault.create(PASSPHRASE)
    vault.set_reference("mail", Elsewhere(REFERENCE, program=path), Secret(VALUE.encode()))
    vault.bind(Binding(NAME, "github://o/r", "api_key", None, "mail", 1_750_000_000.0, REACH))
    vault.lock()
    vault.unlock(PASSPHRASE)
    async with fetching(directories=(str(directory),)) as fetcher:
        record = Record(directory / "begun")
        made = World(directory, vault, SecretsInStores(vault, fetcher, record), record)  # type: ignore[arg-type]
        made.says(f"printf {VALUE}")
        yield made
    vault.lock()


async def test_many_requests_for_a_secret_wait_for_a_single_fetch(world: World) -> None:
    """The record of the fetch is written before the program starts; later requests need no further fetch."""
    assert not world.elsewhere.is_ready(USE, THERE)
    assert await world.all_of(20) == ["ok"] * 20
    assert world.record.begun == 1
    assert world.record.notes == [(events.SecretFetching(name="mail", reference=REFERENCE, binding=str(NAME)), 0)]
    assert world.elsewhere.is_ready(USE, THERE)
    assert await world.wait() == "ok"
    assert world.record.begun == 1


async def test_many_requests_for_a_secret_share_the_failure_of_its_fetch(world: World) -> None:
    """Each waiting request gets an exception object of its own. A later request tries again."""
    world.is_held("echo 'You are not currently signed in' >&2", "exit 1")
    errors: list[AileronError] = []

    async def one() -> None:
        try:
            await world.elsewhere.ready(USE, THERE, anyio.current_time() + 10)
        except AileronError as error:
            errors.append(error)

    with world.gate() as gate:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            gate.open()
    assert [(error.failure.failure_class, error.failure.details["code"]) for error in errors] == [
        (FailureClass.BINDING_FAILED, "locked")
    ] * 20
    assert len({id(error) for error in errors}) == 20
    assert world.record.begun == 1
    assert [event for event, _ in world.record.notes][1:] == [events.SecretFetchFailed(name="mail", code="locked")]
    world.says(f"printf {VALUE}")
    assert await world.wait() == "ok"
    assert world.record.begun == 2


async def test_a_request_without_a_credential_waits_for_the_fetch_of_its_host_s_secret(world: World) -> None:
    """The response must be searched for the secret, so it must be known. A request to another host does not wait."""
    assert world.elsewhere.is_ready(None, HostPort("other.example", 443))
    assert not world.elsewhere.is_ready(None, THERE)
    assert await world.wait(use=None) == "ok"
    assert world.elsewhere.is_ready(None, THERE)


async def test_all_secrets_of_a_request_are_fetched_concurrently(world: World) -> None:
    """Their number is bounded: with each that ends, another begins."""
    world.more(2 * MOST_AT_ONCE)
    world.is_held(f"printf {VALUE}")
    got: list[str] = []

    async def request() -> None:
        got.append(await world.wait(DEADLINE_S))

    with world.gate() as gate:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(request)
            for number in range(MOST_AT_ONCE, 2 * MOST_AT_ONCE + 2):
                await world.begins(number)
                assert world.record.begun == number
                gate.open()
            for _ in range(MOST_AT_ONCE - 1):
                gate.open()
    assert (got, world.record.begun) == (["ok"], 2 * MOST_AT_ONCE + 1)
    assert world.elsewhere.is_ready(None, THERE)


async def test_a_secret_that_cannot_be_fetched_ends_the_other_fetches(world: World) -> None:
    """The request fails anyway; a later request fetches the others again."""
    world.more(2)
    world.says(f'[ "$3" = {REFERENCE} ] || sleep 60', "echo 'You are not currently signed in' >&2", "exit 1")
    with anyio.fail_after(DEADLINE_S):
        assert await world.wait() == "binding_failed locked"
    world.says(f"printf {VALUE}")
    assert await world.wait() == "ok"


async def test_storing_a_reference_to_a_secret_store_times_out_if_the_fetch_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds whatever part of the fetch hangs."""

    class Hanging:
        """A fetcher that does not end by itself."""

        async def fetch(self, *_: object) -> Secret:
            await anyio.sleep_forever()
            raise AssertionError("it does not end")

    monkeypatch.setattr("aileron.daemon.secrets.kept_in_stores.FETCH_S", 0.5)
    elsewhere = SecretsInStores(world.vault, Hanging(), world.record)  # type: ignore[arg-type]
    with anyio.fail_after(DEADLINE_S), pytest.raises(AileronError) as caught:
        await elsewhere.found("other", Elsewhere(REFERENCE, program="/usr/bin/op"))
    assert caught.value.failure.details["code"] == "timed_out"
    assert events.SecretFetchFailed(name="other", code="timed_out") in [event for event, _ in world.record.notes]


async def test_a_fetched_secret_that_changed_since_its_approval_is_refused_and_the_failure_is_recorded(
    world: World,
) -> None:
    """Each fetch of the changed value fails until a person approves the value."""
    world.says("printf another-value-altogether")
    for _ in range(2):
        assert await world.wait() == "binding_failed changed"
    assert events.SecretFetchFailed(name="mail", code="changed") in [event for event, _ in world.record.notes]
    assert not world.elsewhere.is_ready(None, THERE)


async def test_cancelling_a_request_does_not_delay_other_requests_for_the_secret(world: World) -> None:
    """The next request in line fetches the secret."""
    world.is_held(f"printf {VALUE}")
    got: list[str] = []
    given_up = anyio.CancelScope()

    async def first() -> None:
        with given_up:
            await world.wait()

    async def second() -> None:
        got.append(await world.wait())

    with world.gate() as gate:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await world.begins()
            tasks.start_soon(second)
            await anyio.wait_all_tasks_blocked()
            given_up.cancel()
            await world.begins(2)
            gate.open()
    assert (got, world.record.begun) == (["ok"], 2)
    assert events.SecretFetchFailed(name="mail", code="cancelled") in [event for event, _ in world.record.notes]


async def test_a_fetch_that_takes_too_long_times_out(world: World) -> None:
    """The failure is recorded, and the requests waiting behind it fail too."""
    world.says("sleep 60")
    with anyio.fail_after(DEADLINE_S):
        assert set(await world.all_of(3, within_s=1.0)) <= {"binding_failed timed_out"}
    assert events.SecretFetchFailed(name="mail", code="timed_out") in [event for event, _ in world.record.notes]


async def test_a_fetched_secret_that_arrives_after_the_vault_was_locked_is_dropped(world: World) -> None:
    """The vault was locked during the fetch; the next request must fetch the value again."""
    world.is_held(f"printf {VALUE}")
    with world.gate() as gate:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.wait)
            await world.begins()
            world.vault.lock()
            gate.open()
    world.vault.unlock(Secret(b"correct horse battery"))
    assert not world.elsewhere.is_ready(USE, THERE)


@pytest.mark.parametrize("reference", ["env-file:.env", "pass:../x", "https://h/x"])
async def test_an_invalid_reference_is_refused_before_anything_is_fetched(world: World, reference: str) -> None:
    """The failure is `bad_input`."""
    with pytest.raises(AileronError) as caught:
        await world.elsewhere.pinned(reference, None)
    assert caught.value.failure.failure_class is FailureClass.BAD_INPUT
    assert world.record.notes == []
