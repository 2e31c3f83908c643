"""Fetches the public key of an SSH server once, so that the person who binds a login there can compare the key.

Runs in `aileron binding setup`, at a terminal. The server is not believed: any host that answers at that address can present a
key, and the person compares its fingerprint with what the server's administrator publishes.

Rules
- No login happens, no file of the user's (`~/.ssh`) is read or written, and the fetch ends after _WAIT_S.

Source: RFC 4253 section 7, RFC 4251 section 4.1. Not here: the key as text (model/host_key.py), logging in (aileron/logins).
"""

from __future__ import annotations

import asyncio

from aileron.cli.problem import UNREACHED, Problem
from aileron.model.host_key import check_host_key
from aileron.model.login import LoginTarget

__all__ = ["fetched_host_key"]

_WAIT_S = 10.0
"""Maximum seconds for the connection and the key exchange, because a person waits."""
_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
"""Key types in the order of OpenSSH's client, so that the person compares the key that `ssh` would show, which is also the
shortest.
"""


def fetched_host_key(target: LoginTarget) -> str:
    """Return the public key that the SSH server at `target` presents now, as `TYPE BASE64`. Raises Problem if the
    server presents none.
    """
    import asyncssh

    host, port = target.destination.host, target.destination.port

    async def fetch() -> bytes | None:
        key = await asyncssh.get_server_host_key(host, port, server_host_key_algs=_ALGORITHMS, config=None)
        return None if key is None else key.export_public_key("openssh")

    try:
        shown = asyncio.run(asyncio.wait_for(fetch(), _WAIT_S))
    except TimeoutError:
        raise _problem(target, f"no answer within {_WAIT_S:g} s") from None
    except asyncssh.Error as error:
        raise _problem(target, error.reason) from None
    except OSError as error:
        raise _problem(target, error.strerror or str(error)) from None
    try:
        return check_host_key(" ".join((shown or b"").decode("ascii", "replace").split()[:2]))
    except ValueError:
        raise _problem(target, "it has no key of a kind that can be pinned") from None


def _problem(target: LoginTarget, why: str) -> Problem:
    destination = target.destination
    return Problem(
        f"{destination} did not show its public key",
        exit_code=UNREACHED,
        name="network_error",
        why=why,
        fix=f"ssh-keyscan -p {destination.port} {destination.host}, then give --host-key 'TYPE BASE64'",
    )
