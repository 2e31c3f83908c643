"""Programs that print a secret: found where nobody else can write, run within bounds, and ended with all that they
started.

`op` here is a small program that behaves as 1Password's does, because the original needs an account.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import anyio
import pytest

from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere, SecretReference
from aileron.secret_stores.programs import MAX_OUTPUT_BYTES, Programs
from tests.secret_stores.conftest import fetched, fetching, program, unfetched
from tests.support.key_value_store import TOKEN
from tests.support.waiting import wait_ended, wait_text_async

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("S6")]

REFERENCE = "op://Private/Mail/password"
VALUE = b"canary-from-one-password"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory that counts as the system's."""
    made = tmp_path / "bin"
    made.mkdir(mode=0o755)
    return made


async def answer_of(directory: Path, *lines: str, token: bytes | None = None, within_s: float = 10.0) -> bytes:
    """Return the output of a program with these lines as `op`."""
    program(directory, "op", *lines)
    environment = {"HOME": "/nonexistent", "SECRET_OF_THE_DAEMON": "not for programs", "OP_ACCOUNT": "another"}
    async with fetching(environment=environment, directories=(str(directory),)) as fetcher:
        return await fetched(fetcher, REFERENCE, token, within_s)


async def test_the_1password_program_gets_the_reference_unchanged(directory: Path) -> None:
    """The program's environment has the service account's token, and nothing of the daemon's."""
    lines = [
        'printf "%s|" "$@"',
        'printf "%s|" "$OP_SERVICE_ACCOUNT_TOKEN" "$OP_ACCOUNT$SECRET_OF_THE_DAEMON" "$HOME"',
        "cat",
    ]
    got = (await answer_of(directory, *lines, token=TOKEN)).split(b"|")
    assert got == [b"read", b"--no-newline", REFERENCE.encode(), TOKEN, b"", b"/nonexistent", b""]


@pytest.mark.parametrize(
    "token", [b"ops_\xff\xfe-a-token", b"ops_a token", b"ops_a\x1btoken"], ids=["bytes", "space", "control"]
)
async def test_an_invalid_token_is_not_given_to_the_1password_program(directory: Path, token: bytes) -> None:
    """The program would receive another token, which nobody stored."""
    with unfetched("refused", "the token the-token holds what no token can", "aileron secret set the-token"):
        await answer_of(directory, f"printf {VALUE.decode()}", token=token)


async def test_the_1password_program_gets_no_token_if_none_is_stored(directory: Path) -> None:
    """`op` then asks the 1Password app."""
    assert await answer_of(directory, 'printf "%s" "${OP_SERVICE_ACCOUNT_TOKEN-none given}"') == b"none given"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('[ERROR] 2026/01/02 03:04:05 "Mail" isn\'t an item in the "Private" vault.', "missing"),
        ("[ERROR] 2026/01/02 03:04:05 You are not currently signed in. Please run `op signin --help`", "locked"),
        ("[ERROR] 2026/01/02 03:04:05 No accounts configured for use with 1Password CLI.", "locked"),
        (f"[ERROR] something else about {VALUE.decode()}", "refused"),
    ],
    ids=["missing", "signed-out", "no-account", "other"],
)
async def test_errors_of_the_1password_program_are_reported_in_aileron_s_own_words(
    directory: Path, said: str, code: str
) -> None:
    """Each has its fix, and the program's own words are not quoted."""
    (directory / "said").write_text(said)
    with unfetched(code, f"the secret at {REFERENCE} cannot be fetched"):
        await answer_of(directory, f"cat {directory}/said >&2", "exit 1")
    with pytest.raises(Exception, match="cannot be fetched") as failed:
        await answer_of(directory, f"cat {directory}/said >&2", "exit 1")
    assert VALUE.decode() not in str(failed.value)


async def test_a_program_that_takes_too_long_is_ended_with_its_children(directory: Path, tmp_path: Path) -> None:
    """The program is a shell that waits for a sleep. A longer limit is tried if the shell did not get that far."""
    pids = tmp_path / "pids"
    for within_s in (0.2, 2.0, 20.0):
        with unfetched("timed_out", "did not answer in time", "see that `op read"):
            await answer_of(directory, "sleep 60 &", f"echo $$ $! > {pids}", "wait", within_s=within_s)
        if pids.exists() and pids.read_text().endswith("\n"):
            break
    for pid in pids.read_text().split():
        await anyio.to_thread.run_sync(wait_ended, int(pid))


async def test_a_cancelled_fetch_leaves_no_program_running(directory: Path, tmp_path: Path) -> None:
    """A run that ends during its fetch cancels the fetch."""
    pids = tmp_path / "pids"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_of, directory, "sleep 60 &", f"echo $$ $! > {pids}", "wait")
        await wait_text_async(pids, "\n")
        tasks.cancel_scope.cancel()
    for pid in pids.read_text().split():
        await anyio.to_thread.run_sync(wait_ended, int(pid))


HOLDS = {"in-silence": ">/dev/null 2>&1", "at-its-output": "2>/dev/null", "at-its-errors": ">/dev/null", "at-both": ""}
"""Redirections of a background program, by which of its parent's pipes it keeps open."""


@pytest.mark.parametrize("holds", HOLDS)
async def test_a_background_process_that_the_program_leaves_is_ended(
    directory: Path, tmp_path: Path, holds: str
) -> None:
    """The value is complete by then: Aileron does not wait for the pipes that the process still holds open."""
    pid = tmp_path / "pid"
    lines = (f"sleep 60 {HOLDS[holds]} &", f"echo $! > {pid}", f"printf {VALUE.decode()}")
    assert await answer_of(directory, *lines) == VALUE
    await anyio.to_thread.run_sync(wait_ended, int(pid.read_text()))


@pytest.mark.parametrize("holds", HOLDS)
async def test_a_background_process_in_a_session_of_its_own_is_left_running(
    directory: Path, tmp_path: Path, holds: str
) -> None:
    """gpg-agent is such a program, and others use it too."""
    pid = tmp_path / "pid"
    starts = f"setsid sh -c 'echo $$ > {pid}; exec sleep 60' {HOLDS[holds]} &"
    given = f"until [ -s {pid} ]; do sleep 0.02; done"
    assert await answer_of(directory, starts, given, f"printf {VALUE.decode()}") == VALUE
    agent = os.pidfd_open(int(pid.read_text()))
    try:
        signal.pidfd_send_signal(agent, 0)
        signal.pidfd_send_signal(agent, signal.SIGKILL)
    finally:
        os.close(agent)


async def test_a_program_that_cannot_be_watched_is_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watching needs a file descriptor, and none was left when the program started with the token."""
    started: list[int] = []

    def none_left(pid: int, _flags: int = 0) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with unfetched("not_installed", "op does not start (Too many open files)"):
        await answer_of(directory, "sleep 60", token=TOKEN)
    assert len(started) == 1
    assert not Path(f"/proc/{started[0]}").exists()


async def test_a_failed_program_is_reaped_and_its_exit_status_or_signal_is_reported(
    directory: Path, tmp_path: Path
) -> None:
    """A child process that nobody waits for would stay as a zombie."""
    for ends, status in (("exit 3", "status 3"), ("kill -9 $$", "status -9")):
        pid = tmp_path / "pid"
        with unfetched("refused", f"op ended with {status}"):
            await answer_of(directory, f"echo $$ > {pid}", ends)
        assert not Path(f"/proc/{int(pid.read_text())}").exists()


async def test_the_output_of_a_secret_store_program_is_bounded(directory: Path) -> None:
    """The maximum length passes, one byte more does not, and endless output is stopped."""
    assert len(await answer_of(directory, f"head -c {MAX_OUTPUT_BYTES} /dev/zero | tr '\\0' a")) == MAX_OUTPUT_BYTES
    for lines in (f"head -c {MAX_OUTPUT_BYTES + 1} /dev/zero | tr '\\0' a", "yes"):
        with unfetched("too_large", "prints more than 64 KiB"):
            await answer_of(directory, lines)


async def test_a_large_amount_of_standard_error_output_does_not_block_the_program(directory: Path) -> None:
    """Standard error is read to its end, and only its beginning is kept."""
    assert await answer_of(directory, "head -c 1000000 /dev/zero >&2", f"printf {VALUE.decode()}") == VALUE


async def test_a_missing_secret_store_program_is_reported(directory: Path) -> None:
    """The program is missing when the secret is bound, or gone afterwards."""
    async with fetching(directories=(str(directory),)) as fetcher:
        with unfetched("not_installed", "there is no op of the system's", "install op"):
            await fetched(fetcher, REFERENCE)
        gone = Elsewhere(REFERENCE, program=str(directory / "op"))
        approve = f"approve another with `aileron secret set NAME --from '{REFERENCE}'`"
        with unfetched("not_installed", "is missing, or others than the system can change it", approve):
            await fetcher.fetch(gone, None, anyio.current_time() + 5)


@pytest.mark.parametrize("change", ["writable", "writable-directory", "not-executable", "elsewhere"])
async def test_a_program_that_others_could_have_placed_does_not_run(
    directory: Path, tmp_path: Path, change: str
) -> None:
    """A program in a directory that is not the system's does not run either. Control: the unchanged program."""
    path = program(directory, "op", f"printf {VALUE.decode()}")
    pinned = Elsewhere(REFERENCE, program=str(path))
    async with fetching(directories=(str(directory),)) as fetcher:
        assert (await fetcher.fetch(pinned, None, anyio.current_time() + 5)).reveal() == VALUE
        if change == "writable":
            path.chmod(0o777)
        elif change == "writable-directory":
            directory.chmod(0o777)
        elif change == "not-executable":
            path.chmod(0o644)
        else:
            pinned = Elsewhere(REFERENCE, program=str(program(tmp_path, "op", f"printf {VALUE.decode()}")))
        with unfetched("not_installed"):
            await fetcher.fetch(pinned, None, anyio.current_time() + 5)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
async def test_a_program_owned_by_another_user_is_not_found(directory: Path) -> None:
    """Only root should be able to place programs in the system's directories."""
    path = program(directory, "op", f"printf {VALUE.decode()}")
    assert Programs((str(directory),)).found("op", REFERENCE) == str(path)
    os.chown(path, 65534, 65534)
    with unfetched("not_installed"):
        Programs((str(directory),)).found("op", REFERENCE)


async def test_the_daemon_s_path_variable_is_not_used_to_find_secret_store_programs(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts the daemon chooses its PATH."""
    program(directory, "op", f"printf {VALUE.decode()}")
    monkeypatch.setenv("PATH", str(directory))
    async with fetching() as fetcher:
        with unfetched("not_installed"):
            fetcher.pinned(SecretReference.parse(REFERENCE), None)


def test_a_fetched_value_does_not_show_in_its_repr() -> None:
    """Tracebacks show the repr of a secret."""
    assert VALUE.decode() not in repr(Secret(VALUE))
