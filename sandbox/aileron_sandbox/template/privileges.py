"""Giving up privilege: no new ones, no capabilities in any set, no keyring, no terminal, no core, no tracer.

Source: prctl(2), capabilities(7), keyctl(2), setsid(2).
"""

from __future__ import annotations

import os

from aileron_sandbox import kernel

__all__ = ["leave_session", "refuse_new_privileges", "set_dumpable"]


def refuse_new_privileges() -> None:
    """No exec gains anything from here on; seccomp and Landlock ask for this."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def leave_session() -> None:
    """A session of its own has no controlling terminal, so no TIOCSTI and no kill(0) that reaches the host's group."""
    os.setsid()
    kernel.join_new_session_keyring()


def set_dumpable(dumpable: bool) -> None:
    """Whether another process of the same user may attach and whether /proc/self/*_map may be written, prctl(2)."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, int(dumpable))
