"""pass(1): the first line of an entry, as its users expect; all of it where it is a key, a certificate or a JSON document.

Rules
- The store and gpg's keys are where the daemon's environment says, as those of the person who started it: HOME, else the
  password database; PASSWORD_STORE_DIR and GNUPGHOME where they are set.
- An entry is a file of the store. A directory is none: `pass show` would print its listing, and end well.
- gpg(1) is never let ask for a passphrase: nobody is there to type it, and a prompt on a screen at any hour is one that people
  learn to answer. What gpg-agent(1) remembers is used.

Source: pass(1), gpg(1) `--pinentry-mode`. Not here: how a program is run (programs.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import anyio.to_thread

from aileron.elsewhere.problems import unfetched
from aileron.elsewhere.programs import Ended, Programs, chosen
from aileron.model.failure import AileronError
from aileron.model.pem import is_document
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference

__all__ = ["from_pass"]

_PASSED_ON: Final = ("HOME", "GNUPGHOME", "PASSWORD_STORE_DIR", "XDG_RUNTIME_DIR", "USER", "LOGNAME")
"""Where the store is, and where gpg finds its keys and its agent."""
_NEVER_ASK: Final = "--batch --no-tty --pinentry-mode=error"


async def from_pass(
    programs: Programs, program: str, reference: SecretReference, environment: Mapping[str, str], deadline: float
) -> Secret:
    """The value of an entry. AileronError(binding_failed)."""
    entry = "/".join(reference.path)
    # Left behind at the deadline: a home directory on a network may never answer.
    is_entry = await anyio.to_thread.run_sync(_is_entry, entry, environment, abandon_on_cancel=True)
    if not is_entry:
        what = "the password store has no such entry"
        raise unfetched(str(reference), "missing", what, _where(entry, environment))
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
    """What helps. Where the store lies is not said: whoever began the run is told this too."""
    cure = f"add it with `pass insert '{entry}'`, or name another"
    if environment.get("PASSWORD_STORE_DIR"):
        return cure
    return f"{cure}; if your store has a place of its own, start the daemon with PASSWORD_STORE_DIR set to it"


def _why(reference: SecretReference, entry: str, ended: Ended) -> AileronError:
    """By what gpg says in English, which is looked through and not shown. A locked key is told like a missing one."""
    shown = f"`pass show '{entry}'`"
    if ended.says(b"no secret key", b"pinentry", b"no passphrase", b"cancelled", b"bad passphrase"):
        what = "gpg has no key for it that is unlocked, and nobody is asked for a passphrase here"
        cure = f"run {shown} in a terminal, so that gpg-agent knows it, then try again"
        return unfetched(str(reference), "locked", what, cure, retriable=True)
    what = f"pass ended with status {ended.status}"
    return unfetched(str(reference), "refused", what, f"see that {shown} works in a terminal of yours")
