"""Reads secrets from pass(1). The value is an entry's first line, as users of pass expect; a key, a certificate or JSON is
the complete entry.

Rules
- The daemon's environment, which comes from the person who started it, determines the location of the store and of gpg's
  keys: HOME, or else the password database; PASSWORD_STORE_DIR and GNUPGHOME if they are set.
- An entry is a file of the store. A directory is not: `pass show` would print its listing, and succeed.
- gpg(1) must never ask for a passphrase: no person may be present to type it, and people must not learn to answer a prompt
  that can appear at any time. A passphrase that gpg-agent(1) remembers is used.

Source: pass(1), gpg(1) `--pinentry-mode`. Not here: running a program (programs.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio.to_thread

from aileron.model.failure import AileronError
from aileron.model.pem import is_document
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference
from aileron.secret_stores.problems import unfetched
from aileron.secret_stores.programs import Ended, Programs, chosen

__all__ = ["from_pass"]

_PASSED_ON: Final = ("HOME", "GNUPGHOME", "PASSWORD_STORE_DIR", "XDG_RUNTIME_DIR", "USER", "LOGNAME")
"""Environment variables that determine where the store is, and where gpg finds its keys and its agent."""
_NEVER_ASK: Final = "--batch --no-tty --pinentry-mode=error"


async def from_pass(
    programs: Programs, program: str, reference: SecretReference, environment: Mapping[str, str], deadline: float
) -> Secret:
    """Return the first line of an entry of the password store, or the complete entry if it is a document (PEM or JSON).

    Raises AileronError(binding_failed) if the entry is missing or cannot be decrypted.
    """
    entry = "/".join(reference.path)
    # The thread is abandoned at the deadline: a home directory on a network may never respond.
    is_entry = await anyio.to_thread.run_sync(_is_entry, entry, environment, abandon_on_cancel=True)
    if not is_entry:
        fault = "the password store has no such entry"
        raise unfetched(str(reference), "missing", fault, _where(entry, environment))
    given = {
        **chosen(environment, *_PASSED_ON),
        "PATH": programs.search_path(program),
        "LC_ALL": "C.UTF-8",
        "PASSWORD_STORE_GPG_OPTS": _NEVER_ASK,
    }
    ended = await programs.run((program, "show", "--", entry), given, str(reference), deadline)
    if ended.status != 0:
        raise _why(reference, entry, ended)
    whole = Secret(ended.out)
    return whole if is_document(whole) else Secret(ended.out.partition(b"\n")[0])


def _is_entry(entry: str, environment: Mapping[str, str]) -> bool:
    store = environment.get("PASSWORD_STORE_DIR") or os.path.join(environment["HOME"], ".password-store")
    return os.path.isfile(os.path.join(store, f"{entry}.gpg"))


def _where(entry: str, environment: Mapping[str, str]) -> str:
    """Return the instruction for fixing a missing entry of the password store. It does not say where the store is,
    because an agent that requested the run also reads it.
    """
    fix = f"add it with `pass insert '{entry}'`, or name another"
    if environment.get("PASSWORD_STORE_DIR"):
        return fix
    return f"{fix}; if your store has a place of its own, start the daemon with PASSWORD_STORE_DIR set to it"


def _why(reference: SecretReference, entry: str, ended: Ended) -> AileronError:
    """Return the error for a run of pass(1) that failed, according to gpg's output in English. The output is searched
    but not quoted.

    A locked key and a missing key give the same error.
    """
    shown = f"`pass show '{entry}'`"
    if ended.says(b"no secret key", b"pinentry", b"no passphrase", b"cancelled", b"bad passphrase"):
        fault = "gpg has no key for it that is unlocked, and nobody is asked for a passphrase here"
        fix = f"run {shown} in a terminal, so that gpg-agent knows it, then try again"
        return unfetched(str(reference), "locked", fault, fix, retriable=True)
    fault = f"pass ended with status {ended.status}"
    return unfetched(str(reference), "refused", fault, f"see that {shown} works in a terminal of yours")
