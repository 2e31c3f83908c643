"""A real daemon that kills itself with SIGKILL at one chosen moment of a run, forked as other daemons of tests are (forks.py).

Arguments: HOME READY_FD POINT N. POINT is one of `POINTS` or another that `_wrap` sets; the process dies the N-th time it passes
the point, counted from the first request to the spine, or the first decision. The points are wrapped around the product from
outside, so that it has no hook for them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

from aileron.actions.approved_texts import ApprovedTexts
from aileron.actions.store import ActionStore
from aileron.daemon.begin import begin
from aileron.daemon.consent_service.enrollment import ApproverEnrollment
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.consent_service.service import DecisionService
from aileron.daemon.installed.install import Installer
from aileron.daemon.packages.fetch import FetchJobs
from aileron.executor.channel import FrameChannel
from aileron.home import Home
from aileron.ledger.sqlite import Ledger
from aileron.registry.content import ContentStore
from aileron.registry.staging import Staging
from aileron.runs.spine import Spine
from aileron.vault.vault import Vault
from tests.support import forks

__all__ = ["POINTS", "crashing_daemon"]

_TOLD: Final = 3
POINTS = (
    *("before_commit", "after_commit", "before_send", "after_send", "after_receive"),
    *(
        "before_agreed_text",
        "after_agreed_text",
        "before_vault",
        "after_vault",
        "before_action_file",
        "after_action_file",
    ),
    *(f"{when}_{what}" for what in ("staged", "journal", "connector", "journal_end") for when in ("before", "after")),
)


def crashing_daemon(home: Path, point: str, count: int) -> forks.Child:
    """Start a daemon for `home` that dies at the `count`-th time it passes `point`."""
    ready, told = os.pipe()
    process = forks.start(
        __name__,
        [str(home), str(_TOLD), point, str(count)],
        descriptors={0: 0, 1: 1, 2: 2, _TOLD: told},
        environment=os.environ,
    )
    os.close(told)
    with open(ready, "rb") as pipe:
        said = pipe.read().decode()
    if said != "ready":
        raise AssertionError(f"the daemon did not start: {said or 'it died'}")
    return process


class _Fuse:
    """A countdown that, once armed, kills the process at a point: no cleanup, no flush."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._left = count
        self.armed = False

    def passes(self, point: str) -> None:
        if self.armed and point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _wrap(fuse: _Fuse) -> None:
    commit, send, receive = Ledger.commit, FrameChannel.send, FrameChannel.receive

    async def crashing_commit(self: Ledger, work: Any) -> Any:
        fuse.passes("before_commit")
        done = await commit(self, work)
        fuse.passes("after_commit")
        return done

    async def crashing_send(self: FrameChannel, *arguments: Any) -> None:
        fuse.passes("before_send")
        await send(self, *arguments)
        fuse.passes("after_send")

    async def crashing_receive(self: FrameChannel) -> Any:
        frame = await receive(self)
        fuse.passes("after_receive")
        return frame

    _arm(fuse, Passkeys, "revoke")
    _arm(fuse, FetchJobs, "begin")
    _arm(fuse, ApproverEnrollment, "appoint")
    _arm(fuse, DecisionService, "decide")
    _arm(fuse, Spine, "request")
    _around(fuse, ApprovedTexts, "put", "agreed_text")
    _around(fuse, Vault, "change_consents", "vault")
    _around(fuse, ActionStore, "add", "action_file")
    _around(fuse, Vault, "set_approver", "appointment")
    _around(fuse, Vault, "note_renewal", "renewal_note")
    _around(fuse, Vault, "put_tokens", "new_tokens")
    _around(fuse, Staging, "put", "staged")
    _around(fuse, Installer, "_begin", "journal")
    _around(fuse, ContentStore, "put", "connector")
    _around(fuse, Installer, "_end", "journal_end")
    Ledger.commit = crashing_commit  # type: ignore[method-assign]
    FrameChannel.send = crashing_send  # type: ignore[assignment, method-assign]
    FrameChannel.receive = crashing_receive  # type: ignore[method-assign]


def _arm(fuse: _Fuse, owner: type, method: str) -> None:
    """Arm the fuse with the first call of an async method of a class."""
    original = getattr(owner, method)

    async def arming(self: Any, *arguments: Any) -> Any:
        fuse.armed = True
        return await original(self, *arguments)

    setattr(owner, method, arming)


def _around(fuse: _Fuse, owner: type, method: str, point: str) -> None:
    """Pass a point before and one after a method of a class."""
    original = getattr(owner, method)

    def crashing(self: Any, *arguments: Any, **options: Any) -> Any:
        fuse.passes(f"before_{point}")
        done = original(self, *arguments, **options)
        fuse.passes(f"after_{point}")
        return done

    setattr(owner, method, crashing)


def main(arguments: list[str]) -> int:
    """Run the daemon with the arguments HOME READY_FD POINT N."""
    home, ready, point, count = arguments
    _wrap(_Fuse(point, int(count)))

    def tell(word: str) -> None:
        """Report readiness as aileron.daemon.__main__ does."""
        os.write(int(ready), word.encode())
        os.close(int(ready))

    return begin(Home(Path(home)), tell)
