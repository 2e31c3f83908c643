"""The agents that can be launched: the closed list, in the order of the pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aileron.launch.agent import Agent
from aileron.launch.claude import CLAUDE
from aileron.launch.codex import CODEX
from aileron.launch.goose import GOOSE
from aileron.launch.opencode import OPENCODE
from aileron.launch.pi import PI

__all__ = ["AGENTS"]

AGENTS: Mapping[str, Agent] = MappingProxyType({agent.name: agent for agent in (CLAUDE, CODEX, OPENCODE, GOOSE, PI)})
"""The agents by the name that a user types."""
