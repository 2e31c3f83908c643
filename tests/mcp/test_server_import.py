"""Only the server's own modules import the SDK: a command, a relay and a starting daemon do without it."""

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
def test_no_module_but_the_server_imports_the_sdk(module: str) -> None:
    """The SDK costs 0.3 s and 50 MiB, which only the protocol process pays, while there are agents."""
    assert _brought(module) & DEAR == set()


def test_the_server_imports_the_sdk() -> None:
    """This is the positive control of the test above."""
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
"""Packages and modules that the SDK imports, directly or not, and that a process that serves tools does without."""
MOST_IMPORTED = 480
"""Modules, including Python's own; there were 520."""


def test_the_process_imports_little_and_builds_its_models_before_it_is_asked() -> None:
    """A confined process can open no file; a model that was never used is still built without importing another module."""
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
