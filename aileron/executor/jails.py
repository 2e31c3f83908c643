"""Management of templates and jails on an event loop: start them, wait for their end without blocking, restart a
template that ended.

Runs in the daemon. One task for each template (below `serve`) reads its messages and wakes the tasks that wait for a
child. One template is for Python; it ends when it has been unused for long. Others are started when they are first
needed, and only a few run at a time: one for each set of libraries of compiled programs, shared by all static programs,
and one for Python that may fork, whose children have control groups.

A template is replaced after _RENEW_AFTER children, because all children share the template's memory layout and hash
seed. The old template stays until its last child has ended.

A template is started in the daemon's main thread, before the event loop or on the loop itself: a template that a worker
thread started would be killed when that thread ends (PR_SET_PDEATHSIG, prctl(2)). The start takes 100 ms. The loop
waits for the first Python template when it is first needed. While a later Python template starts, the loop continues
(`prepare`).
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.threads import in_thread
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, NetworkAttempt, Signalled, Usage
from aileron_sandbox.jail import WATCH_PERIOD_S, Child, Starting, Template, TemplateGone, check_possible
from aileron_sandbox.policy import Mode, Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["IDLE_S", "Jailed", "Jails"]

IDLE_S: Final = 600.0
"""Seconds after which an unused template ends. A template holds 50 MiB with its children and the copy of Python in
their root, and saves 100 ms of the next run. Between two calls of an active agent, a model thinks for seconds, and a
person takes minutes to decide.
"""
_LOOKS: Final = 10
"""Number of checks for unused templates within IDLE_S, so that a template ends at most a minute late."""
_START_S: Final = 20.0
"""Maximum seconds to wait for a template that starts without blocking the loop. After that, the run that needs the
template fails with the reason.
"""

_REAP_DEADLINE_S: Final = 10.0
"""Maximum seconds from SIGKILL until a connector is reaped; usually this takes a millisecond. If it takes longer,
something is wrong with the machine, and this is logged.
"""
_MAX_RUNNING: Final = 64
"""Maximum number of running connectors of one template, in addition to its spares. Two cores are saturated by eight."""
_FEW_RUNNING: Final = 4
"""Number of running connectors at which the processors count as busy. From then on, new jails do not report that their
connector has left: the report is extra work, and returning before a jail is reaped would make no result faster.
"""
_MAX_LEAVING: Final = 8
"""Maximum number of connectors of one template that have left and are reaped in the background: enough for eight callers that
leave at once. Reaping one takes 1 to 2 ms. Beyond this number `end` waits, so that such connectors never pile up.
"""
_MAX_STARTED: Final = 4
"""Maximum number of templates in addition to Python's: for the sets of libraries in use, and for Python that may fork.
Each is a process of 10 MiB with two children that wait. Most compiled connectors are static and share one template.
"""
_RENEW_AFTER: Final = 10_000
"""Number of children after which a template is replaced. On a machine of two cores this happens at most every ten
seconds, and costs 100 ms each time.
"""
_TREES: Final = "trees"
_Kind = ElfRuntime | Literal["trees"]
"""Kind of a template that is started on demand: for compiled programs with these libraries (ElfRuntime), or for Python
programs that may fork (`trees`).
"""
_log = logging.getLogger(__name__)


class Jailed:
    """A running connector: the pipes of its Child, and methods that wait for its end. `is_spare` is True until a run
    takes the connector. `is_leaving` is True once the connector's run is over and it only has to be reaped.
    """

    def __init__(self, child: Child, warm: _Warm, *, is_spare: bool) -> None:
        self._child = child
        self._warm: Final = warm
        self.is_spare = is_spare
        self.is_leaving = False
        self._left = anyio.Event()
        self._ended = anyio.Event()
        self._watching: Final = anyio.CancelScope()
        self._lost: Ending | None = None

    @property
    def child(self) -> Child:
        """The child, which has the host ends of the pipes."""
        return self._child

    @property
    def ending(self) -> Ending | None:
        """The connector's ending; None until all of its processes have been reaped."""
        return self._child.ending or self._lost

    @property
    def is_outdated(self) -> bool:
        """True if the connector's template has ended or is being replaced."""
        return self._warm.is_retired

    @property
    def has_left(self) -> bool:
        """True once the connector has stopped running: none of its processes can make another system call.

        The processes may still exist (`Child.has_left`).
        """
        return self._child.has_left or self._lost is not None

    async def wait_left(self) -> None:
        """Wait until the connector has stopped running (`has_left`), which is at the latest when its processes have ended."""
        await self._left.wait()

    async def wait_ended(self) -> Ending:
        """Wait until all processes of the child have been reaped, and return how the child ended."""
        await self._ended.wait()
        ending = self.ending
        if ending is None:
            raise RuntimeError("woken without an ending")
        return ending

    async def _watch(self) -> None:
        """Measure all processes of the connector periodically while it runs, and end it if they exceed a limit. Do
        nothing if the kernel enforces the limits itself.
        """
        with self._watching:
            period_s = WATCH_PERIOD_S
            while self._child.ending is None:
                try:
                    tree = self._child.tree()
                    if tree is not None:
                        # In a thread: it reads files of every process of the machine.
                        period_s = self._child.judge(await in_thread(tree.used))
                except Exception:  # noqa: BLE001 - an error of one jail must not end the task of all
                    _log.exception("a jail cannot be watched and is killed")
                    self._child.kill()
                    return
                await anyio.sleep(period_s)

    def _changed(self) -> None:
        if self._child.has_left:
            self._left.set()
        if self._child.ending is not None:
            self._ended.set()

    def _template_died(self) -> None:
        self._lost = Signalled(signal.SIGKILL, Usage(0, 0))
        self._left.set()
        self._ended.set()


class _Warm:
    """A running template, and the connectors whose jails were forked from it."""

    def __init__(self, template: Template, used_at: float) -> None:
        self.template = template
        self.used_at = used_at
        """Time of the template's last use, by the clock of its Jails."""
        self.running: dict[int, Jailed] = {}
        self.opened = 0
        self.is_retired = False
        self.is_dead = False
        self._scope: anyio.CancelScope | None = None  # set by `wake`, which runs in the event loop
        self._is_stopped = False

    @property
    def in_use(self) -> int:
        """Number of connectors that are working for a run now."""
        return sum(not (jailed.is_spare or jailed.is_leaving) for jailed in self.running.values())

    @property
    def leaving(self) -> int:
        """Number of connectors whose run is over and that only have to be reaped."""
        return sum(jailed.is_leaving for jailed in self.running.values())

    @property
    def is_full(self) -> bool:
        """True if no more connectors can run in the template."""
        return self.in_use >= _MAX_RUNNING

    def is_unused_since(self, time: float) -> bool:
        """Return whether the template has no connector, and was last used at or before `time`."""
        return not self.running and self.used_at <= time

    async def wake(self) -> None:
        """Wake the tasks that wait for a change of a child of this template. Ends on cancellation or after `stop`.
        Raises TemplateGone if the template has ended.
        """
        with anyio.CancelScope() as self._scope:
            while not self._is_stopped:
                await anyio.wait_readable(self.template.fileno())
                for child in self.template.pump():
                    jailed = self.running.get(id(child))
                    if jailed is not None:
                        jailed._changed()

    def stop(self) -> None:
        """Make `wake` return, because no task waits for a child of this template any longer."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

    def retire(self) -> None:
        """Open no more connectors in this template, and call `stop` once the last child has ended."""
        self.is_retired = True
        self._stop_if_left()

    def forget(self, jailed: Jailed) -> None:
        """Remove a connector that has ended."""
        del self.running[id(jailed.child)]
        self._stop_if_left()

    def _stop_if_left(self) -> None:
        if self.is_retired and not self.running:
            self.stop()

    def died(self) -> None:
        """Record that the template has ended, and with it all its connectors."""
        self.is_retired = self.is_dead = True
        for jailed in list(self.running.values()):
            jailed._template_died()
        self.template.close()


class Jails:
    """The jails of connectors, and the templates that they are forked from. `serve` must run in a task group while
    jails are opened.
    """

    def __init__(
        self,
        runtime: PythonRuntime,
        mode: Mode = "namespaces",
        *,
        renew_after: int = _RENEW_AFTER,
        starting: Starting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to start the template for Python, unless `starting` is given: a template whose start was begun earlier.
        Raises JailUnavailable if no template can be started.

        `clock` returns seconds since any fixed time, and determines when unused templates end.
        """
        self._runtime = runtime
        self._mode: Final = mode
        self._renew_after: Final = renew_after
        self._clock: Final = clock
        self._python: _Warm | None = None
        self._starting: Starting | None = starting or Template.begin(runtime, mode=mode)
        self._asked_at = clock()
        self._is_waited_for = anyio.Lock()
        self._waiting: anyio.CancelScope | None = None
        self._retired: set[_Warm] = set()
        self._started: OrderedDict[_Kind, _Warm] = OrderedDict()  # the most recently used is last
        self._tasks: TaskGroup | None = None

    @property
    def mode(self) -> Mode:
        """Mode in which the jails are confined: `namespaces` or `landlock`."""
        return self._mode

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers in force for every jail of a Python connector. Raises the errors of `layers_of`."""
        return self.layers_of(Policy(), None)

    def wait_until_ready(self) -> None:
        """Wait until the template of Python connectors is ready. Raises JailUnavailable, with the fix, if this machine
        cannot make jails.
        """
        self._python_now()

    async def prepare(self, policy: Policy, runtime: ElfRuntime | None) -> None:
        """Wait for the template of Python without blocking the event loop, if a jail with these arguments needs that template
        and it is not running.

        Raises the errors of `open`.
        """
        if runtime is not None or policy.profile != "python" or self._has_python:
            return
        self._start_ahead()
        async with self._is_waited_for:
            starting = self._starting
            if starting is None:  # it is there by now, or cannot be started
                return
            with anyio.move_on_after(_START_S) as self._waiting:
                await anyio.wait_readable(starting)
            if self._waiting.cancelled_caught and self._starting is starting:
                self._starting = None
                starting.close()
                raise _no_jail(TimeoutError(f"no answer within {_START_S:.0f} s"), may_pass=True)
            self._warm(policy, runtime)

    def layers_ahead(self, policy: Policy) -> tuple[str, ...] | None:
        """Return the confinement layers of a Python connector's jail with this policy, as `layers_of` does. Return None
        if the template has ended, and begin to start another. Raises the errors of `open`.
        """
        if policy.profile == "python" and not self._has_python:
            self._start_ahead()
            return None
        return self.layers_of(policy, None)

    def layers_of(self, policy: Policy, runtime: ElfRuntime | None) -> tuple[str, ...]:
        """Return the confinement layers in force for a jail that is opened with the same arguments. Start the template
        if necessary. Raises the errors of `open`.
        """
        return self._warm(policy, runtime).template.layers(policy.profile)

    def is_current(self, jailed: Jailed, runtime: ElfRuntime | None) -> bool:
        """Return whether a new connector of this kind would be started in the same template as `jailed`. `runtime` is
        None for Python.
        """
        if jailed.is_outdated:
            return False
        if runtime is not None:
            return jailed._warm is self._started.get(runtime)
        return jailed._warm is self._python and jailed._warm is self._warm(Policy(), None)

    async def serve(self) -> None:
        """Wake the tasks that wait for children, and end unused templates. Ends only on cancellation."""
        try:
            async with anyio.create_task_group() as self._tasks:
                if self._python is not None:
                    self._tasks.start_soon(self._serve_python, self._python)
                while True:
                    await anyio.sleep(IDLE_S / _LOOKS)
                    self.end_unused()
        finally:
            self._tasks = None

    def end_unused(self) -> None:
        """End the templates in which no connector ran for IDLE_S. The next run starts a new template."""
        before = self._clock() - IDLE_S
        if self._starting is not None and self._asked_at <= before and not self._is_waited_for.locked():
            self._starting.close()
            self._starting = None
        for kind in [kind for kind, warm in self._started.items() if warm.is_unused_since(before)]:
            self._retire(self._started.pop(kind))
        if self._python is not None and self._python.is_unused_since(before):
            python, self._python = self._python, None
            self._retire(python)

    @property
    def running(self) -> int:
        """Number of connectors that are now working for a run."""
        return sum(warm.in_use for warm in self._all())

    def _all(self) -> list[_Warm]:
        python = [] if self._python is None else [self._python]
        return [*python, *self._started.values(), *self._retired]

    @asynccontextmanager
    async def open(self, program: int, policy: Policy, runtime: ElfRuntime | None) -> AsyncIterator[Jailed]:
        """Open a jailed run of `program`, and `end` it when the block is left, however that happens. `runtime` is None
        for Python. Raises the errors of `begin`.
        """
        async with self.ended(self.begin(program, policy, runtime)) as jailed:
            yield jailed

    @asynccontextmanager
    async def ended(self, jailed: Jailed) -> AsyncIterator[Jailed]:
        """Yield `jailed`, a jail from `begin`, and `end` it when the block is left."""
        try:
            yield jailed
        finally:
            await self.end(jailed)

    def begin(self, program: int, policy: Policy, runtime: ElfRuntime | None, *, is_spare: bool = False) -> Jailed:
        """Start a jail; the caller must `end` it. On return, `program` is no longer needed.

        Raises AileronError: busy if too many jails are running, sandbox_unavailable if no template or jail can be
        started.
        """
        warm = self._warm(policy, runtime)
        if warm.is_full and not is_spare:
            raise _busy()
        listens = is_spare or warm.in_use < _FEW_RUNNING
        jailed = Jailed(_open_child(warm.template, program, policy, listens=listens), warm, is_spare=is_spare)
        warm.running[id(jailed.child)] = jailed
        warm.opened += 1
        if jailed.child.is_watched:
            self._serving().start_soon(jailed._watch)
        return jailed

    def hand_over(self, spare: Jailed) -> None:
        """Turn a spare into a run's connector, which counts as running. Raises AileronError(busy) if too many
        connectors are running.
        """
        if spare._warm.is_full:
            raise _busy()
        spare.is_spare = False

    async def end(self, jailed: Jailed) -> None:
        """Kill the connector if necessary, and wait until it is reaped, also while the caller is being cancelled. A
        connector that has already left can do nothing, so it is reaped in the background, unless _MAX_LEAVING already are.
        """
        jailed._watching.cancel()
        is_harmless = jailed.has_left and jailed.ending is None
        if is_harmless and self._tasks is not None and jailed._warm.leaving < _MAX_LEAVING:
            jailed.is_leaving = True
            self._tasks.start_soon(self._reap, jailed)
            return
        with anyio.CancelScope(shield=True):
            await self._reap(jailed)

    async def _reap(self, jailed: Jailed) -> None:
        """Kill the connector, wait until it is reaped, and release the connector's resources."""
        if jailed.ending is None:
            jailed.child.kill()
        try:
            with anyio.move_on_after(_REAP_DEADLINE_S) as scope:
                await jailed.wait_ended()
        finally:
            jailed.child.close()
            jailed._warm.forget(jailed)
        if jailed.is_leaving and isinstance(
            jailed.ending, NetworkAttempt
        ):  # the attempt was made while the process was dying, after the result was returned
            _log.warning("a connector tried to connect to %s in the moment of its end", jailed.ending.destination)
        if scope.cancelled_caught:
            _log.error("a jail was not reaped %s s after it was killed or had left", _REAP_DEADLINE_S)

    def close(self) -> None:
        """End all templates, and with them every child."""
        if self._starting is not None:
            self._starting.close()
        for warm in self._all():
            warm.template.close()

    def _warm(self, policy: Policy, runtime: ElfRuntime | None) -> _Warm:
        if runtime is not None:
            return self._started_for(runtime)
        if policy.profile == "elf-subprocess":
            return self._started_for(_TREES)
        try:
            python = self._python_now()
        except JailUnavailable as error:
            raise _no_jail(error, may_pass=True) from error
        if python.opened >= self._renew_after:
            python = self._renew_python(python)
        python.used_at = self._clock()
        return python

    def _start_ahead(self) -> None:
        """Begin to start the template of Python, if there is none. Errors are raised in the run that needs the template."""
        if not self._has_python and self._starting is None:
            self._asked_at = self._clock()
            with contextlib.suppress(JailUnavailable):
                self._starting = Template.begin(self._runtime, mode=self._mode)

    @property
    def _has_python(self) -> bool:
        return self._python is not None and not self._python.is_dead

    def _python_now(self) -> _Warm:
        """Return the template of Python. Start the template and wait for it if there is none. Raises JailUnavailable if
        it cannot be started.
        """
        if self._python is None or self._python.is_dead:
            starting, self._starting = self._starting or Template.begin(self._runtime, mode=self._mode), None
            return self._use(starting)
        return self._python

    def _use(self, starting: Starting) -> _Warm:
        """Wait until the starting template is ready, return it, and use it for all further Python connectors. Raises
        JailUnavailable if it could not be started.
        """
        if self._waiting is not None:
            self._waiting.cancel()  # that task waits for the template's message, which is read here
        self._python = python = _Warm(starting.finish(), self._clock())
        if self._tasks is not None:
            self._tasks.start_soon(self._serve_python, python)
        return python

    def _started_for(self, kind: _Kind) -> _Warm:
        if kind in self._started and self._started[kind].opened >= self._renew_after:
            self._retire(self._started.pop(kind))
        if kind not in self._started:
            self._start(kind)
        self._started.move_to_end(kind)
        self._started[kind].used_at = self._clock()
        return self._started[kind]

    def _serving(self) -> TaskGroup:
        if self._tasks is None:
            raise RuntimeError("jails are not available")
        return self._tasks

    def _start(self, kind: _Kind) -> None:
        tasks = self._serving()
        if len(self._started) >= _MAX_STARTED:
            self._end_the_idlest()
        try:
            warm = _Warm(self._template_for(kind), self._clock())
        except JailUnavailable as error:
            raise _no_jail(error) from error
        self._started[kind] = warm
        tasks.start_soon(self._serve_started, kind, warm)

    def _template_for(self, kind: _Kind) -> Template:
        if isinstance(kind, ElfRuntime):
            return Template.start(kind, mode=self._mode)
        # Programs that fork need a control group. A single process is limited without one, and entering one is costly (ADR 16).
        check_possible("elf-subprocess", self._mode, is_compiled=False)
        return Template.start(self._runtime, mode=self._mode, memory_by="groups")

    def _end_the_idlest(self) -> None:
        """End the least recently used template that no run uses, with its spares. Raises AileronError(busy) if all
        templates are in use.
        """
        idle = next((kind for kind, warm in self._started.items() if not warm.in_use), None)
        if idle is None:
            raise _busy()
        self._started.pop(idle).stop()

    def _retire(self, warm: _Warm) -> None:
        self._retired.add(warm)
        warm.retire()

    def _renew_python(self, old: _Warm) -> _Warm:
        """Start a template of Python that replaces `old`, and return it. The connectors in `old` run to their end
        there. If no template can be started, return `old`, which stays in use.
        """
        old.opened = 0
        try:
            renewed = self._use(Template.begin(self._runtime, mode=self._mode))
        except JailUnavailable:
            _log.exception("cannot start another template: the old one stays in use")
            return old
        self._retire(old)
        return renewed

    async def _serve_python(self, warm: _Warm) -> None:
        try:
            await warm.wake()
        except TemplateGone as gone:
            if warm is self._python:
                _log.warning("%s; starting another", gone)
                self._replace_python(warm)
        if warm in self._retired:
            self._retired.discard(warm)
            warm.died()

    async def _serve_started(self, kind: _Kind, warm: _Warm) -> None:
        try:
            await warm.wake()
        except TemplateGone as gone:
            _log.warning("%s; the next program of its kind starts a new one", gone)
        finally:
            if self._started.get(kind) is warm:
                del self._started[kind]
            self._retired.discard(warm)
            warm.died()

    def _replace_python(self, dead: _Warm) -> None:
        dead.died()
        try:
            self._python_now()
        except JailUnavailable:  # it may be transient, such as a lack of descriptors
            _log.exception("cannot start another template: the next run tries again")


def _open_child(template: Template, program: int, policy: Policy, *, listens: bool) -> Child:
    try:
        return Child.open(template, program, policy, listens=listens)
    except ValueError as error:  # this mode has no jail for the program
        raise _no_jail(error) from error
    except BlockingIOError as error:
        raise _busy() from error
    except (TemplateGone, JailUnavailable, OSError) as error:
        raise _no_jail(error, may_pass=isinstance(error, TemplateGone)) from error


def _busy() -> AileronError:
    return AileronError(FailureClass.BUSY, "the maximum number of connectors is running: try again", retriable=True)


def _no_jail(error: Exception, *, may_pass: bool = False) -> AileronError:
    return AileronError(
        FailureClass.SANDBOX_UNAVAILABLE,
        f"cannot start a jail: {error}; run `aileron doctor`",
        boundary=Boundary.SANDBOX,
        retriable=may_pass,
    )
