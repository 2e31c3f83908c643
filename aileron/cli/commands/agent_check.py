"""The checks of `aileron doctor AGENT`, in order: configured, started, tools, call. The first failure ends them.

The checks use a session of their own, which ends with the command. The daemon is started if none runs, as the agent would start
it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aileron.api.daemon import Status
from aileron.api.sessions import EndSession, NewSession, OpenSession, Session
from aileron.cli.commands.check import Check
from aileron.cli.commands.launch import (
    LOCKED,
    agent_of,
    asked_of,
    folder,
    gateway_of,
    is_vault_locked,
    is_vault_needed,
    program_of,
)
from aileron.cli.problem import Problem, local_work
from aileron.cli.supervisor import Supervisor, path_of
from aileron.launch.start import child_environment

if TYPE_CHECKING:
    from aileron.launch.agent import Agent
    from aileron.launch.check import Connection

__all__ = ["checks_of"]

_VERSION_S = 60.0
"""Seconds to wait for an agent to print its version; the slowest agent takes two on an idle machine."""
_SESSION_S = 300
"""Seconds after which the session of the checks ends by itself, longer than all checks together may take."""
_SHOWN_CHARACTERS = 100
_RELAY_FIX = "aileron daemon logs"


def checks_of(name: str, given: str | None) -> Iterator[Check]:
    """Check an agent's connection to the actions: yield each check that passes, then the first that fails, with its fix."""
    agent = agent_of(name)
    try:
        path = program_of(agent, given)
        version = _version(path)
    except Problem as problem:
        yield Check("configured", "bad", problem.what + (f": {problem.why}" if problem.why else ""), problem.fix)
        return
    supervisor = Supervisor()
    try:
        body = OpenSession(agent=agent.name, folder=folder(), for_s=_SESSION_S, pid=os.getpid())
        session = supervisor.fetch(NewSession, "POST", "/v1/sessions", body)
    except Problem as problem:
        yield Check("session", "bad", problem.why or problem.what, problem.fix)
        return
    try:
        yield from _in_session(supervisor, agent, f"{path}, {version}", session.token)
    finally:
        supervisor.fetch(Session, "POST", path_of("v1", "sessions", session.id, "end"), EndSession())


def _in_session(supervisor: Supervisor, agent: Agent, found: str, token: str) -> Iterator[Check]:
    from aileron.launch.check import READ_ONLY, connected
    from aileron.model.failure import AileronError

    running = supervisor.fetch(Status, "GET", "/v1/status")
    gateway = gateway_of(running)
    asked = asked_of(supervisor, agent, gateway, (), token)
    try:
        with local_work():
            setup = agent.setup(asked)
    except Problem as problem:
        yield Check("configured", "bad", problem.what, problem.fix)
        return
    yield Check("configured", "ok", found)
    yield from (Check("configured", "note", note) for note in setup.notes)
    if is_vault_locked(running) and is_vault_needed(supervisor, gateway):
        yield Check("vault", "note", LOCKED, "aileron vault unlock")
    step = "started"
    try:
        with connected(asked.server, child_environment(os.environ, asked.server.environment(token))) as server:
            yield Check(step, "ok", f"{asked.server.command[0]}: {server.initialize()}")
            step = "tools"
            yield Check(step, "ok", _tools(server))
            step = "call"
            yield Check(step, "ok", f"{READ_ONLY}: {_shortened(server.call(READ_ONLY))}")
    except AileronError as failed:
        yield Check(step, "bad", str(failed), _RELAY_FIX)


def _tools(server: Connection) -> str:
    names = server.tools()
    return f"{len(names)} listed: {', '.join(names)}"


def _shortened(text: Any) -> str:
    """Return the text of a tool's answer on one line, shortened, without the JSON that follows the text."""
    words = " ".join(str(text).partition("\n{")[0].split())
    return words if len(words) <= _SHOWN_CHARACTERS else words[: _SHOWN_CHARACTERS - 1] + "…"


def _version(path: str) -> str:
    """Return the version that the agent reports. Raises Problem if the agent does not start."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_S,
            env=child_environment(os.environ, {}),
        )
    except OSError as error:
        raise Problem.usage(f"cannot start {path}", why=error.strerror or str(error)) from None
    except subprocess.TimeoutExpired:
        raise Problem.usage(f"{path} --version took more than {_VERSION_S:g} s") from None
    if done.returncode != 0:
        raise Problem.usage(f"{path} --version ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace").strip().partition("\n")[0] or "version not reported"
