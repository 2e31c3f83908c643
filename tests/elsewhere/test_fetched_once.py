"""One fetch for all who wait, on record before it begins; its failure is theirs too, and whoever is cancelled holds nobody up."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from aileron.audit import events
from aileron.daemon.secrets.elsewhere import MOST_AT_ONCE, SecretsElsewhere
from aileron.model.credential import Reach
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault import Binding, Vault
from tests.elsewhere.conftest import fetching, program
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
    """What is put down, and how often the program had begun by then."""

    def __init__(self, begun: Path) -> None:
        self._begun = begun
        self.notes: list[tuple[object, int]] = []

    async def note(self, event: object) -> int:
        """Keep it."""
        self.notes.append((event, self.begun))
        return len(self.notes)

    @property
    def begun(self) -> int:
        """How often the program was started."""
        return len(self._begun.read_text().splitlines()) if self._begun.exists() else 0


class Gate:
    """What a program waits at."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def open(self) -> None:
        """Let one program go on."""
        os.write(self._fd, b"\n")


class World:
    """An open vault with one reference, bound for one host, and who fetches it."""

    def __init__(self, directory: Path, vault: Vault, elsewhere: SecretsElsewhere, record: Record) -> None:
        self.vault, self.elsewhere, self.record = vault, elsewhere, record
        self._directory = directory

    def says(self, *lines: str) -> None:
        """What the program does from now on, once it has begun."""
        program(self._directory, "op", f"echo begun >> {self._directory}/begun", *lines)

    def is_held(self, *lines: str) -> None:
        """The same, once `Gate.open` let it go on."""
        os.mkfifo(self._directory / "gate")
        self.says(f"read _ < {self._directory}/gate", *lines)

    @contextmanager
    def gate(self) -> Iterator[Gate]:
        """For a program that is held."""
        fd = os.open(self._directory / "gate", os.O_RDWR)
        try:
            yield Gate(fd)
        finally:
            os.close(fd)

    async def begins(self, times: int = 1) -> None:
        """Return when the program was started so often."""
        await wait_until_async(lambda: self.record.begun >= times, f"{times} begin", seen=lambda: self.record.begun)

    async def wait(self, within_s: float = 10.0, use: CredentialUse | None = USE) -> str:
        """A request that is about to be sent: `ok`, or the failure's class and code."""
        try:
            await self.elsewhere.ready(use, THERE, anyio.current_time() + within_s)
        except AileronError as error:
            return f"{error.failure.failure_class.value} {error.failure.details.get('code')}"
        return "ok"

    async def all_of(self, count: int, within_s: float = 10.0) -> list[str]:
        """As many at once."""
        got: list[str] = []

        async def one() -> None:
            got.append(await self.wait(within_s))

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)
        return got

    def more(self, count: int) -> None:
        """As many other secrets for the same host, of which nothing is known either."""
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
    """The vault was locked and opened since it was bound: nothing is known."""
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
        made = World(directory, vault, SecretsElsewhere(vault, fetcher, record), record)  # type: ignore[arg-type]
        made.says(f"printf {VALUE}")
        yield made
    vault.lock()


async def test_many_wait_for_one_fetch(world: World) -> None:
    """It is on record before the program begins; afterwards nothing has to be fetched."""
    assert not world.elsewhere.is_ready(USE, THERE)
    assert await world.all_of(20) == ["ok"] * 20
    assert world.record.begun == 1
    assert world.record.notes == [(events.SecretFetching(name="mail", reference=REFERENCE, binding=str(NAME)), 0)]
    assert world.elsewhere.is_ready(USE, THERE)
    assert await world.wait() == "ok"
    assert world.record.begun == 1


async def test_many_have_one_failure(world: World) -> None:
    """Each has an exception of its own, whose traceback is its own; who comes later tries again."""
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


async def test_a_request_without_a_credential_waits_too(world: World) -> None:
    """To that host; to another it does not."""
    assert world.elsewhere.is_ready(None, HostPort("other.example", 443))
    assert not world.elsewhere.is_ready(None, THERE)
    assert await world.wait(use=None) == "ok"
    assert world.elsewhere.is_ready(None, THERE)


async def test_all_that_a_request_needs_is_fetched_at_once(world: World) -> None:
    """There is room for some: with each that ends, one more begins."""
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


async def test_one_that_cannot_be_fetched_ends_the_rest(world: World) -> None:
    """Whose values would be for nothing; they are fetched when it can be."""
    world.more(2)
    world.says(f'[ "$3" = {REFERENCE} ] || sleep 60', "echo 'You are not currently signed in' >&2", "exit 1")
    with anyio.fail_after(DEADLINE_S):
        assert await world.wait() == "binding_failed locked"
    world.says(f"printf {VALUE}")
    assert await world.wait() == "ok"


async def test_a_person_who_stores_it_waits_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Than a request does, whatever it is that hangs."""

    class Hanging:
        """A fetcher that does not end by itself."""

        async def fetch(self, *_: object) -> Secret:
            await anyio.sleep_forever()
            raise AssertionError("it does not end")

    monkeypatch.setattr("aileron.daemon.secrets.elsewhere.FETCH_S", 0.5)
    elsewhere = SecretsElsewhere(world.vault, Hanging(), world.record)  # type: ignore[arg-type]
    with anyio.fail_after(DEADLINE_S), pytest.raises(AileronError) as caught:
        await elsewhere.found("other", Elsewhere(REFERENCE, program="/usr/bin/op"))
    assert caught.value.failure.details["code"] == "timed_out"
    assert events.SecretFetchFailed(name="other", code="timed_out") in [event for event, _ in world.record.notes]


async def test_another_value_is_refused_and_on_record(world: World) -> None:
    """Each time, until it is approved."""
    world.says("printf another-value-altogether")
    for _ in range(2):
        assert await world.wait() == "binding_failed changed"
    assert events.SecretFetchFailed(name="mail", code="changed") in [event for event, _ in world.record.notes]
    assert not world.elsewhere.is_ready(None, THERE)


async def test_who_is_cancelled_holds_nobody_up(world: World) -> None:
    """The next in line fetches it."""
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


async def test_what_takes_too_long_is_told_in_time(world: World) -> None:
    """And put down; whoever waits behind it is told as well."""
    world.says("sleep 60")
    with anyio.fail_after(DEADLINE_S):
        assert set(await world.all_of(3, within_s=1.0)) <= {"binding_failed timed_out"}
    assert events.SecretFetchFailed(name="mail", code="timed_out") in [event for event, _ in world.record.notes]


async def test_a_vault_that_is_locked_meanwhile_keeps_nothing(world: World) -> None:
    """What comes then is dropped."""
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
async def test_what_is_no_reference_is_refused_before_anything_is_read(world: World, reference: str) -> None:
    """As bad input."""
    with pytest.raises(AileronError) as caught:
        await world.elsewhere.pinned(reference, None)
    assert caught.value.failure.failure_class is FailureClass.BAD_INPUT
    assert world.record.notes == []
