"""The template and its children, for an event loop: start, wait for a child's end without blocking, start again if it dies.

Runs in the daemon. One task (`serve`) reads what the template says and wakes whoever waits for a child. The template is
started in the daemon's main thread, before the loop or, should it have died, on the loop itself (60 ms, once): started in a
worker thread it would be killed when that thread ends (PR_SET_PDEATHSIG, prctl(2)).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron_sandbox.ending import Ending, JailUnavailable, Signalled, Usage
from aileron_sandbox.jail import Child, Template, TemplateGone
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime

__all__ = ["Jailed", "Jails"]

_REAP_DEADLINE_S: Final = 10.0
"""From SIGKILL to reaped takes a millisecond; past this something is wrong with the machine, and the run says so."""
_log = logging.getLogger(__name__)


class Jailed:
    """One running connector: the pipes of its Child, and its end as something to await."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = anyio.Event()
        self._lost: Ending | None = None

    @property
    def child(self) -> Child:
        """The host ends of the pipes."""
        return self._child

    async def wait_ended(self) -> Ending:
        """Wait until every process of the child is gone."""
        await self._ended.wait()
        ending = self._child.ending or self._lost
        if ending is None:
            raise RuntimeError("woken without an ending")
        return ending

    def _changed(self) -> None:
        if self._child.ending is not None:
            self._ended.set()

    def _template_died(self) -> None:
        import signal

        self._lost = Signalled(signal.SIGKILL, Usage(0, 0))
        self._ended.set()


class Jails:
    """Owns the template. `serve` must run in a task group for as long as jails are opened."""

    def __init__(self, runtime: PythonRuntime) -> None:
        self._runtime = runtime
        self._template = Template.start(runtime)
        self._running: dict[int, Jailed] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers in force for every jail."""
        return self._template.layers

    async def serve(self) -> None:
        """Wake those who wait. Ends only by cancellation."""
        while True:
            try:
                await anyio.wait_readable(self._template.fileno())
                for child in self._template.pump():
                    jailed = self._running.get(id(child))
                    if jailed is not None:
                        jailed._changed()
            except TemplateGone as gone:
                _log.warning("%s; starting another", gone)
                self._replace()

    @asynccontextmanager
    async def open(self, program: int, policy: Policy) -> AsyncIterator[Jailed]:
        """A jailed run of `program`; killed and reaped when the block is left, however it is left.

        AileronError: busy when too many are running, sandbox_unavailable when there is no template to be had.
        """
        jailed = Jailed(self._open_child(program, policy))
        child = jailed.child
        self._running[id(child)] = jailed
        try:
            yield jailed
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_REAP_DEADLINE_S) as scope:
                if child.ending is None:
                    child.kill()
                await jailed.wait_ended()
            del self._running[id(child)]
            child.close()
            if scope.cancelled_caught:
                _log.error("a jail was not reaped %s s after SIGKILL", _REAP_DEADLINE_S)

    def close(self) -> None:
        """End the template and every child."""
        self._template.close()

    def _open_child(self, program: int, policy: Policy) -> Child:
        try:
            return Child.open(self._template, program, policy)
        except BlockingIOError as error:
            raise AileronError(
                FailureClass.BUSY, "as many connectors as this machine takes are running: try again", retriable=True
            ) from error
        except (TemplateGone, OSError) as error:
            raise AileronError(
                FailureClass.SANDBOX_UNAVAILABLE,
                f"no jail can be started: {error}; run `aileron doctor`",
                boundary=Boundary.SANDBOX,
                retriable=isinstance(error, TemplateGone),
            ) from error

    def _replace(self) -> None:
        for jailed in list(self._running.values()):
            jailed._template_died()
        self._template.close()
        try:
            self._template = Template.start(self._runtime)
        except JailUnavailable:
            _log.exception("no template can be started: the daemon stops")
            raise
