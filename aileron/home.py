"""Where everything of one user lives: the names of what is in the home, and nothing of what they mean.

Imported by every command, and so by itself: the settings (config.py) take 10 ms to import.

Not here: how files in it are read and written (files.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

__all__ = ["Home"]


class Home(msgspec.Struct, frozen=True):
    """Where everything of one user lives: `~/.aileron`, or `AILERON_HOME`. Directories are 0700."""

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """`$AILERON_HOME`, else `~/.aileron`; always absolute."""
        configured = os.environ.get("AILERON_HOME")
        return cls(Path(configured).absolute() if configured else Path.home() / ".aileron")

    @property
    def actions(self) -> Path:
        """One `NAME.md` per action."""
        return self.path / "actions"

    @property
    def action_state(self) -> Path:
        """Which actions are switched off."""
        return self.path / "action-state.json"

    @property
    def agreed(self) -> Path:
        """What a person agreed to, by its digest: texts of actions, certificates, settings."""
        return self.path / "agreed"

    @property
    def connectors(self) -> Path:
        """The content-addressed store: `sha256/<hex>/{connector,manifest.toml}`."""
        return self.path / "store" / "connectors"

    @property
    def fetched(self) -> Path:
        """Archives that were fetched and are not installed yet."""
        return self.path / "store" / "fetched"

    @property
    def installing(self) -> Path:
        """What is being installed together, while it is."""
        return self.path / "store" / "installing.json"

    @property
    def published(self) -> Path:
        """Action files as they were published, for the next update to be merged with."""
        return self.path / "store" / "actions"

    @property
    def vault(self) -> Path:
        """Encrypted secrets."""
        return self.path / "vault.json"

    @property
    def approver_key(self) -> Path:
        """The private half of the approver's key, under their passphrase."""
        return self.path / "approver.json"

    @property
    def ledger(self) -> Path:
        """What happened."""
        return self.path / "ledger.db"

    @property
    def config(self) -> Path:
        """The settings (config.py)."""
        return self.path / "config.toml"

    @property
    def run(self) -> Path:
        """Sockets, lock, pid, `daemon.json`."""
        return self.path / "run"

    @property
    def mcp_answers(self) -> Path:
        """What agents are answered first, for the relay that starts the next daemon."""
        return self.run / "mcp-answers.json"

    @property
    def cells(self) -> Path:
        """What agents in cells changed, one `SESSION/` each."""
        return self.path / "cells"

    @property
    def logs(self) -> Path:
        """The daemon's own log."""
        return self.path / "logs"

    @property
    def agent_socket(self) -> Path:
        """HTTP, agent scope."""
        return self.run / "agent.sock"

    @property
    def cell_socket(self) -> Path:
        """HTTP, agent scope and the gateway: for the process of a cell, known by itself."""
        return self.run / "cell.sock"

    @property
    def tunnel_socket(self) -> Path:
        """CONNECT, to hosts that a cell's agent reaches: for the process of a cell, known by itself."""
        return self.run / "tunnel.sock"

    @property
    def keyring(self) -> Path:
        """Whose signatures count."""
        return self.path / "keyring.json"

    @property
    def operator_socket(self) -> Path:
        """HTTP, every route."""
        return self.run / "operator.sock"

    @property
    def mcp_socket(self) -> Path:
        """The Model Context Protocol, agent scope: for `aileron-mcp`."""
        return self.run / "mcp.sock"
