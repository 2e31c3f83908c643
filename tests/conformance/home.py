"""A home whose daemon offers the fixture tools of the conformance suite: actions of a connector, in the real jail.

| tool | action |
|---|---|
| `test_simple_text`, `test_error_handling`, `test_tool_with_progress`, `test_tool_with_logging`, `greet` | one op each |
| `give_back` | for the Inspector: an input of each type |
| `test_logging_tool` | the same op as `test_tool_with_logging` |
| `test_streaming_elicitation` | asks first: Aileron has no elicitation, but a person who decides |
| `test_trigger_tool_change` | sends a request to a server that switches another action off or on, as a person would |

Not here: what the suite finds in them (suite.py); docs/reference/mcp-conformance.md says what no action can be.
"""

from __future__ import annotations

import contextlib
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.conformance.forward import Forward
from tests.support.home import DaemonHome, daemon_home
from tests.support.upstream import Seen, Upstream, answer

__all__ = ["conformance_home", "served"]

_CONNECTOR: Final = "github://aileron-tests/conformance"
_SOURCE: Final = Path(__file__).parent / "connector"
_CHANGED: Final = "comes-and-goes"


@contextlib.contextmanager
def conformance_home() -> Iterator[DaemonHome]:
    """Run a daemon with these actions in a home of its own, with its vault open."""
    with daemon_home() as home, Upstream(_Switch(home).turn) as upstream:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        home.ask("GET", "/healthz")
        home.unlock()
        home.install(_SOURCE, f"localhost:{upstream.port}")
        for op in ("test_simple_text", "test_error_handling", "test_tool_with_progress", "test_tool_with_logging"):
            home.add_probe_action(op, connector=_CONNECTOR)
        home.add_probe_action(
            "give_back", "text:string", "number:integer", "flag:boolean", "share:number?", connector=_CONNECTOR
        )
        home.add_probe_action("greet", "name:string", connector=_CONNECTOR)
        home.add_probe_action("test_tool_with_logging", name="test-logging-tool", connector=_CONNECTOR)
        home.add_probe_action("test_simple_text", name="test-streaming-elicitation", gated=True, connector=_CONNECTOR)
        home.add_probe_action("test_trigger_tool_change", connector=_CONNECTOR)
        home.add_probe_action("test_simple_text", name=_CHANGED, connector=_CONNECTOR)
        yield home


@contextlib.contextmanager
def served(home: DaemonHome) -> Iterator[str]:
    """Return an address whose `/mcp` answers every client, in a session of its own."""
    port = urllib.parse.urlsplit(home.must("GET", "/v1/status")["web"]).port
    assert port is not None
    token = home.must("POST", "/v1/sessions", {"agent": "conformance", "folder": "/"})["token"]
    with Forward(port, token) as forward:
        yield f"http://127.0.0.1:{forward.port}/mcp"


class _Switch:
    """An outside server at which a request changes the list of tools."""

    def __init__(self, home: DaemonHome) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._enabled = True

    def turn(self, _request: Seen) -> bytes:
        with self._lock:
            self._enabled = not self._enabled
            self._home.must("PATCH", f"/v1/actions/{_CHANGED}", {"enabled": self._enabled})
        return answer()
