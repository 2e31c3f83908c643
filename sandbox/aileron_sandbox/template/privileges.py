"""The steps that give up privilege: no new privileges, no keyring, no terminal, no core, no tracer.

Source: prctl(2), capabilities(7), keyctl(2), setsid(2).
"""

from __future__ import annotations

import os

from aileron_sandbox import kernel

__all__ = ["leave_session", "refuse_new_privileges", "set_dumpable"]


def refuse_new_privileges() -> None:
    """Set no_new_privs, so that no exec gains privileges from here on. seccomp and Landlock require it."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def leave_session() -> None:
    """Start a new session without a controlling terminal, so that neither TIOCSTI nor kill(0) reaches the host's
    process group. Leave the session keyring, too.
    """
    os.setsid()
    kernel.join_new_session_keyring()


def set_dumpable(dumpable: bool) -> None:
    """Set whether another process of the same user may attach, and whether /proc/self/*_map may be written, prctl(2)."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, int(dumpable))
