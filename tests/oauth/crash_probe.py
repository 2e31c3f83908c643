"""A single renewal in a process that dies, or whose disk is full, at a moment of the test's choice. Run as a program.

    crash_probe.py VAULT PORT CA_FILE POINT

POINT is `before` or `after` and one of `note_renewal`, `answer`, `put_tokens`, to be killed there with SIGKILL; or, as
`full:put_tokens`, for a file size limit of zero from there on, which the kernel enforces as it does a full disk; or `none`.
Prints how it ended.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from aileron.config import LiveSettings, Settings
from aileron.egress import Egress
from aileron.model.failure import AileronError
from aileron.model.names import BindingName, HostPort
from aileron.model.secret import Secret
from aileron.oauth.endpoint import Endpoints
from aileron.oauth.renew import Renewals
from aileron.vault.vault import Vault

PASSPHRASE = Secret(b"correct horse battery")
NAME = BindingName("oauth2", "mail", "work")


class Quiet:
    """A journal that records nothing: the test inspects the vault."""

    async def renewing(self, binding: BindingName, host: str) -> None:
        """Ignore the event."""

    async def renewed(self, binding: BindingName) -> None:
        """Ignore the event."""

    async def failed(self, binding: BindingName, code: str) -> None:
        """Ignore the event."""


def passing(point: str, chosen: str) -> None:
    """Die, or have no disk from here on, if this is the chosen moment."""
    if point == chosen:
        os.kill(os.getpid(), signal.SIGKILL)
    if chosen == f"full:{point.removeprefix('before:')}":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def around(owner: Any, name: str, point: str, chosen: str) -> None:
    """Replace a method by one that passes a moment before and one after it."""
    method: Callable[..., Any] = getattr(owner, name)

    def called(*arguments: Any) -> Any:
        passing(f"before:{point}", chosen)
        done = method(*arguments)
        passing(f"after:{point}", chosen)
        return done

    setattr(owner, name, called)


async def answering(post: Callable[..., Any], chosen: str, *arguments: Any) -> Any:
    """Pass one moment before the provider is asked and one when its answer has arrived."""
    passing("before:answer", chosen)
    answer = await post(*arguments)
    passing("after:answer", chosen)
    return answer


async def main(path: Path, port: int, ca_file: Path, chosen: str) -> None:
    """Renew once."""
    vault = Vault(path)
    vault.unlock(PASSPHRASE)
    settings = Settings(
        egress_private=frozenset({HostPort("localhost", port)}), egress_ca_pem=ca_file.read_text(encoding="ascii")
    )
    endpoints = Endpoints(Egress(settings, None), LiveSettings(settings))  # type: ignore[arg-type] # nothing is lent
    post = endpoints.post
    setattr(endpoints, "post", lambda *arguments: answering(post, chosen, *arguments))  # noqa: B010
    around(vault, "note_renewal", "note_renewal", chosen)
    around(vault, "put_tokens", "put_tokens", chosen)
    renewals = Renewals(vault, endpoints, Quiet(), time.time)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renewals.serve)
        await anyio.wait_all_tasks_blocked()
        stored = vault.tokens(NAME).access
        try:
            is_renewed = await renewals.renew(NAME, stored, anyio.current_time() + 20)
            used = renewals.newest(NAME, vault.tokens(NAME).access)
            print(f"renewed={is_renewed} written={vault.tokens(NAME).access == used} new={used != stored}", flush=True)
        except AileronError as error:
            print(f"failed={error}", flush=True)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    vault_path, port, ca_file, chosen = sys.argv[1:5]
    anyio.run(main, Path(vault_path), int(port), Path(ca_file), chosen)
