"""Home in which a hostile connector is installed: its action `hostile` runs any source that it is given, in a real jail.

It also has the outcome of an attack that went through the one door: `kind_of` returns its failure class, and `is_ended_for`
checks its words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.client import Answer
from tests.support.home import PROBE, DaemonHome, daemon_home, probe_action
from tests.support.probed import lend_probe

__all__ = ["HOSTILE", "HostileHome", "hostile_home", "is_ended_for", "kind_of"]

HOSTILE: Final = "github://aileron-tests/hostile"
_SOURCE: Final = Path(__file__).parent / "connectors" / "hostile"


@dataclasses.dataclass(frozen=True)
class HostileHome:
    """A daemon with the actions `hostile` (source) and `honest` (the probe connector, text comes back)."""

    home: DaemonHome
    action: str = "hostile"

    def attack(self, source: str) -> Answer:
        """Run this source as the hostile connector."""
        return self.home.run(self.action, {"source": source})

    def hurried(self, port: int, timeout_s: int) -> HostileHome:
        """Install the connector once more with a limit of `timeout_s`, and return the same home, whose attacks use it."""
        _install(self.home, "hurried", port, timeout_s)
        return HostileHome(self.home, "hurried")

    def honest(self, text: str = "x") -> object:
        """Return the result of an honest run of another connector, made now."""
        answer = self.home.run("honest", {"text": text})
        return answer.body["result"]["text"] if answer.status == 200 else answer.body


@contextlib.contextmanager
def hostile_home(port: int = 1, timeout_s: int = 20) -> Iterator[HostileHome]:
    """Provide a home whose hostile connector is granted http://localhost:`port`, for which nothing is bound, and
    `timeout_s` seconds: enough on a busy machine for what ends otherwise.
    """
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
        lend_probe(home)
        home.add_probe_action("give_back", "text:string", name="honest")
        _install(home, "hostile", port, timeout_s)
        yield HostileHome(home)


def _install(home: DaemonHome, name: str, port: int, timeout_s: int) -> None:
    connector = HOSTILE.replace("hostile", name)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(_SOURCE, Path(folder, name)))
        manifest = (source / "manifest.toml").read_text(encoding="utf-8").replace(HOSTILE, connector)
        (source / "manifest.toml").write_text(f"{manifest}\n[limits]\ntimeout_s = {timeout_s}\n", encoding="utf-8")
        home.install(source, f"localhost:{port}")
    text = probe_action("go", "source:string", name=name).replace(PROBE, connector)
    home.must("POST", "/v1/actions", {"text": text, "file": "a test"})


def kind_of(answer: Answer) -> Any:
    """Return the failure class, or `ok`."""
    return answer.body["error"]["class"] if answer.is_error else "ok"


def is_ended_for(answer: Answer, words: str) -> str:
    """Return the failure class if the message has these words and a person can read it; else the whole message."""
    message = str(answer.body["error"]["message"]) if answer.is_error else str(answer.body)
    return str(kind_of(answer)) if words in message and message.isprintable() and len(message) < 2500 else message
