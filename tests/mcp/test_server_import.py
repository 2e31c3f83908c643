"""The SDK is imported by the server's own modules and nobody else: a command, a relay and a starting daemon do without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

DEAR = {"mcp", "mcp_types", "pydantic", "jsonschema", "opentelemetry", "sse_starlette"}


@pytest.mark.parametrize(
    "module",
    [
        "aileron.mcp",
        "aileron.mcp.agent_port",
        "aileron.mcp.answering",
        "aileron.mcp.first_answers",
        "aileron.mcp.relay",
        "aileron.daemon.http.mcp",
        "aileron.daemon.rooms",
        "aileron.daemon.supervise",
    ],
)
def test_nothing_but_the_server_brings_the_sdk(module: str) -> None:
    """0.3 s and 50 MiB, which only the process of the protocol has, for as long as there are agents."""
    assert _brought(module) & DEAR == set()


def test_the_server_does_bring_it() -> None:
    """Or the silence above would mean nothing."""
    assert {"mcp", "mcp_types", "pydantic"} <= _brought("aileron.mcp.server")


def _brought(module: str) -> set[str]:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
