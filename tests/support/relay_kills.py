"""A daemon that is killed under a relay while calls are under way, and the effects that the upstream saw.

`AILERON_KILL_SEED` repeats a series as far as chance allows. The home has an action `effect` with an input `path`; each call has
a path of its own, so that the upstream's count says how often it was carried out.
"""

from __future__ import annotations

import os
import random
import secrets
from typing import Final

from tests.support.home import DaemonHome
from tests.support.relay import Agent
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

__all__ = ["killed_at_random"]

CALLS: Final = 8
TURNS: Final = 4


def killed_at_random(agent: Agent, home: DaemonHome, upstream: CountingServer) -> tuple[int, int]:
    """Return how many calls succeeded, and how many did not. AssertionError if one ran twice, or succeeded without its effect."""
    seed = int(os.environ.get("AILERON_KILL_SEED") or secrets.randbits(32))
    chance, series = random.Random(seed), secrets.token_hex(4)
    agent.initialize()
    told, lost = 0, _lost_for_certain(agent, home, upstream)
    for turn in range(TURNS):
        home.unlock()
        assert "result" in agent.ask("ping")
        paths = {}
        for number in range(CALLS):
            path = f"/{series}/{turn}/{number}"
            paths[agent.request("tools/call", {"name": "effect", "arguments": {"path": path}})] = path
        answers = {}
        if turn % 2:  # after one was told, or after some were done
            first = chance.choice(list(paths))
            answers[first] = agent.answer(first)
        else:
            _wait_for_effects(upstream, upstream.effects + chance.randrange(CALLS))
        home.kill()
        for number, path in paths.items():
            answer = answers.get(number) or agent.answer(number)
            effects = [seen[1] for seen in upstream.requests].count(path)
            is_told = "result" in answer and not answer["result"].get("isError")
            assert effects == 1 if is_told else effects <= 1, f"seed {seed}: {path}: {effects} effects, {answer}"
            told, lost = told + is_told, lost + (not is_told)
    home.unlock()
    assert "result" in agent.ask("ping"), f"seed {seed}"
    done = [seen[1] for seen in upstream.requests if seen[1].startswith(f"/{series}/")]
    assert len(done) == len(set(done)), f"seed {seed}"
    return told, lost


def _lost_for_certain(agent: Agent, home: DaemonHome, upstream: CountingServer) -> int:
    """Kill the daemon while a response is held back. Return 1 if that call is lost: all others may end before their kill."""
    before = len(upstream.requests)
    with upstream.holding():
        held = agent.request("tools/call", {"name": "fetch", "arguments": {"path": "/held"}})
        wait_until(lambda: "/held" in [seen[1] for seen in upstream.requests[before:]], "the service is asked")
        home.kill()
    return int("error" in agent.answer(held))


def _wait_for_effects(upstream: CountingServer, enough: int) -> None:
    wait_until(lambda: upstream.effects >= enough, f"{enough} calls come", seen=lambda: upstream.effects)
