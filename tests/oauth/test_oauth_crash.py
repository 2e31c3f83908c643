"""A renewal killed between any two steps, or out of disk: the state that the next daemon finds, and its reaction.

The renewal runs in a process of its own, with the real vault and a provider that rotates strictly, or does not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from aileron.model.failure import AileronError
from aileron.oauth.renew import Renewals
from aileron.vault.vault import Vault
from tests.oauth.conftest import endpoints_to, signed_in
from tests.oauth.crash_probe import NAME, PASSPHRASE, Quiet
from tests.support.token_server import TokenServer
from tests.support.upstream import Authority

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("O10")]

ROOT: Final = Path(__file__).resolve().parents[2]
NOW: Final = 1_795_233_600.0


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Return a new vault."""
    vault = Vault(tmp_path / "home" / "vault.json")
    vault.create(PASSPHRASE)
    return vault


def left_signed_in(vault: Vault, server: TokenServer) -> None:
    """Store a sign-in as a person and their daemon do; lock the vault."""
    signed_in(vault, server, NAME, "github://you/mail", NOW)
    vault.lock()


def probed(vault: Vault, server: TokenServer, authority: Authority, point: str) -> subprocess.CompletedProcess[str]:
    """Run one renewal in a process of its own."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.oauth.crash_probe",
            str(vault.path),
            str(server.address.port),
            str(authority.ca_file),
            point,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def next_daemon(vault: Vault, server: TokenServer, authority: Authority) -> str:
    """Renew as the next daemon; return `fine`, or its message."""
    vault.unlock(PASSPHRASE)
    async with endpoints_to(authority, server) as endpoints, anyio.create_task_group() as tasks:
        renewals = Renewals(vault, endpoints, Quiet(), lambda: NOW)
        tasks.start_soon(renewals.serve)
        await anyio.wait_all_tasks_blocked()
        stored = vault.tokens(NAME).access
        try:
            assert await renewals.renew(NAME, stored, anyio.current_time() + 20)
            said = "fine"
        except AileronError as error:
            said = str(error)
        tasks.cancel_scope.cancel()
    return said


SURVIVES: Final = {
    "before:note_renewal": (0, None),
    "after:note_renewal": (0, "begun"),
    "before:answer": (0, "begun"),
    "after:put_tokens": (1, None),
}


@pytest.mark.parametrize(("point", "asked", "intent"), [(point, *rest) for point, rest in SURVIVES.items()])
async def test_a_kill_before_the_renewal_request_or_after_the_write_loses_no_token(
    point: str, asked: int, intent: str | None, vault: Vault, server: TokenServer, authority: Authority
) -> None:
    """The next daemon renews with the stored tokens."""
    left_signed_in(vault, server)
    ended = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, point))
    asked_by_then, binding = len(server.asked), vault.binding(NAME)
    said = await next_daemon(vault, server, authority)

    assert ended.returncode == -9, ended.stderr
    assert asked_by_then == asked
    assert binding is not None
    assert binding.grant is not None
    assert (binding.grant.renewing_ms is not None) == (intent == "begun")
    assert said == "fine"


@pytest.mark.parametrize("point", ["after:answer", "before:put_tokens"])
async def test_the_next_daemon_explains_a_kill_that_came_before_new_tokens_were_written(
    point: str, vault: Vault, server: TokenServer, authority: Authority
) -> None:
    """The provider replaced the refresh token, and only memory had the new one: the daemon tries once and names the fix."""
    left_signed_in(vault, server)
    ended = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, point))
    said = await next_daemon(vault, server, authority)
    again = await next_daemon(vault, server, authority)

    assert ended.returncode == -9
    for each in (said, again):
        assert "an earlier renewal was interrupted before its answer was stored" in each
        assert "aileron binding reauthorize oauth2/mail/work" in each
    assert len(server.asked) == 2  # the one that was cut off, and one try


@pytest.mark.parametrize("point", ["after:answer", "before:put_tokens"])
async def test_a_kill_during_a_renewal_loses_no_token_if_refresh_tokens_are_not_replaced(
    point: str, vault: Vault, start_server: Callable[..., TokenServer], authority: Authority
) -> None:
    """The process is killed at the same steps; the provider, like Google, keeps the refresh token."""
    server = start_server(rotates=False)
    left_signed_in(vault, server)
    ended = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, point))
    said = await next_daemon(vault, server, authority)

    assert ended.returncode == -9
    assert said == "fine"


async def test_a_new_token_is_used_although_the_disk_is_full(
    vault: Vault, server: TokenServer, authority: Authority
) -> None:
    """The disk fills up between response and write. If it is full earlier, the provider is not asked."""
    left_signed_in(vault, server)
    before = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, "full:note_renewal"))
    asked_before = len(server.asked)
    meanwhile = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, "full:put_tokens"))
    asked_meanwhile = len(server.asked)

    assert before.stdout.startswith("failed="), before.stderr
    assert "vault.json" in before.stdout
    assert asked_before == 0
    assert meanwhile.stdout == "renewed=True written=False new=True\n", meanwhile.stderr
    assert asked_meanwhile == 1
    assert "canary" not in before.stdout + before.stderr + meanwhile.stdout + meanwhile.stderr


async def test_the_tokens_of_a_renewal_without_interruption_are_written(
    vault: Vault, server: TokenServer, authority: Authority
) -> None:
    """The control: the same program without an interruption."""
    left_signed_in(vault, server)
    ended = await anyio.to_thread.run_sync(lambda: probed(vault, server, authority, "none"))

    assert ended.stdout == "renewed=True written=True new=True\n", ended.stderr
    assert await next_daemon(vault, server, authority) == "fine"
