"""Only the server's own modules import the SDK: a command, a relay and a starting daemon do without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
def test_no_module_but_the_mcp_server_imports_the_mcp_sdk(module: str) -> None:
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
    "python_multipart",
    "rich",
    "typer",
}
"""Packages and modules that the SDK imports, directly or not, and that a process that serves tools does without."""
MOST_IMPORTED = 480
"""Modules, including Python's own; there were 520."""


def test_the_protocol_process_imports_few_modules_and_none_after_it_is_confined() -> None:
    """A confined process can open no file, so even a model that was never used must be built without an import."""
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


INTRUDER = """
class Plugin:
    def new_schema_validator(self, *_, **__):
        return None, None, None

plugin = Plugin()
"""


def test_the_protocol_process_loads_no_plugin_of_another_package(tmp_path: Path) -> None:
    """pydantic would load plugins that installed packages register."""
    about = tmp_path / "intruder-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: intruder\nVersion: 1\n", encoding="ascii")
    (about / "entry_points.txt").write_text("[pydantic]\nintruder = intruder:plugin\n", encoding="ascii")
    (tmp_path / "intruder.py").write_text(INTRUDER, encoding="ascii")

    def intruder_is_loaded(code: str) -> bool:
        shown = f"{code}; import sys; print('intruder' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
        told = subprocess.run(
            [sys.executable, "-P", "-c", shown], env=environment, check=True, capture_output=True, text=True, timeout=60
        )
        return told.stdout == "True\n"

    assert intruder_is_loaded("from pydantic import TypeAdapter; TypeAdapter(int)")
    assert not intruder_is_loaded("from aileron.mcp.__main__ import import_server; import_server()")


def _brought(module: str) -> set[str]:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
