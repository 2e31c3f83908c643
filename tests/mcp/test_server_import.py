"""The SDK is imported by the server's own modules and nobody else: a command, a relay and a starting daemon do without it."""

from __future__ import annotations

import json
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


NEVER_SERVED = {
    "click",
    "httpx",
    "httpx2",
    "jsonschema",
    "logging.config",
    "mcp.client",
    "multiprocessing",
    "rich",
    "typer",
}
"""Packages and modules that the SDK brings, or what it brings, and a process that serves tools does without."""
MOST_IMPORTED = 480
"""Modules, Python's own included: there were 520."""


def test_the_process_imports_little_and_builds_what_it_serves_before_it_is_asked() -> None:
    """Once it is confined it can open no file: a model that nobody has used yet is built without another module."""
    module = "tests.mcp.first_requests"
    done = subprocess.run([sys.executable, "-m", module], check=True, capture_output=True, text=True, timeout=60)
    seen = json.loads(done.stdout)

    assert set(seen["imported"]) & NEVER_SERVED == set()
    assert len(seen["imported"]) <= MOST_IMPORTED
    older, newer = seen["heard"]
    assert [*older, *newer].count("result") == 7
    assert "notifications/progress" in older
    assert "notifications/progress" in newer
    assert seen["built_late"] == ["mcp_types._v2025_11_25.ListPromptsRequest"], "the only one that is not served"
    assert seen["late"] == []


def _brought(module: str) -> set[str]:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
