"""The names of the files of one user's home, without their meaning.

Every command imports this module. It is separate from the settings (config.py) because those take 10 ms to import.

Not here: how files in the home are read and written (files.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

__all__ = ["Home"]


class Home(msgspec.Struct, frozen=True):
    """The directory with all files of one user: `~/.aileron`, or `AILERON_HOME`. Its directories have mode 0700."""

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home at `$AILERON_HOME`, else at `~/.aileron`. Its path is always absolute."""
        configured = os.environ.get("AILERON_HOME")
        return cls(Path(configured).absolute() if configured else Path.home() / ".aileron")

    @property
    def actions(self) -> Path:
        """Directory of actions, with a `NAME.md` for each."""
        return self.path / "actions"

    @property
    def action_state(self) -> Path:
        """File that says which actions are disabled."""
        return self.path / "action-state.json"

    @property
    def agreed(self) -> Path:
        """Directory of the texts of actions, certificates and settings that a person consented to; each file is named
        by its digest.
        """
        return self.path / "agreed"

    @property
    def connectors(self) -> Path:
        """Directory of the installed connectors, by hash: `sha256/<hex>/{connector,manifest.toml}`."""
        return self.path / "store" / "connectors"

    @property
    def fetched(self) -> Path:
        """Directory of archives that were fetched and are not installed yet."""
        return self.path / "store" / "fetched"

    @property
    def installing(self) -> Path:
        """Journal of an installation in progress; the file is removed when the installation is complete."""
        return self.path / "store" / "installing.json"

    @property
    def imported(self) -> Path:
        """Directory with the connectors and actions that `aileron add URL` made, by the service's name."""
        return self.path / "imported"

    @property
    def published(self) -> Path:
        """Directory of unmodified copies of published action files, the common base when an update is merged."""
        return self.path / "store" / "actions"

    @property
    def vault(self) -> Path:
        """File of the vault, with the encrypted secrets."""
        return self.path / "vault.json"

    @property
    def approver_key(self) -> Path:
        """File of the approver's private key, encrypted with their passphrase."""
        return self.path / "approver.json"

    @property
    def ledger(self) -> Path:
        """Database of the ledger, which records all events."""
        return self.path / "ledger.db"

    @property
    def config(self) -> Path:
        """File of the settings (config.py)."""
        return self.path / "config.toml"

    @property
    def run(self) -> Path:
        """Directory of the running daemon's sockets, its lock, its process id and `daemon.json`."""
        return self.path / "run"

    @property
    def mcp_answers(self) -> Path:
        """File with a copy of the daemon's first MCP responses. A relay answers its agent from this copy while the next
        daemon starts.
        """
        return self.run / "mcp-answers.json"

    @property
    def cells(self) -> Path:
        """Directory of the changes made by agents in cells, with a directory `SESSION/` for each session."""
        return self.path / "cells"

    @property
    def logs(self) -> Path:
        """Directory of the daemon's own log."""
        return self.path / "logs"

    @property
    def agent_socket(self) -> Path:
        """Socket for HTTP in the agent scope."""
        return self.run / "agent.sock"

    @property
    def cell_socket(self) -> Path:
        """Socket for HTTP in the agent scope and for the gateway. Only processes that manage a cell use it; the kernel
        identifies them.
        """
        return self.run / "cell.sock"

    @property
    def tunnel_socket(self) -> Path:
        """Socket for CONNECT to hosts that a cell's agent can reach. Only processes that manage a cell use it; the kernel
        identifies them.
        """
        return self.run / "tunnel.sock"

    @property
    def keyring(self) -> Path:
        """Path of the publisher keyring."""
        return self.path / "keyring.json"

    @property
    def operator_socket(self) -> Path:
        """Socket for HTTP with every route."""
        return self.run / "operator.sock"

    @property
    def mcp_socket(self) -> Path:
        """Socket for the Model Context Protocol in the agent scope: for `aileron-mcp`."""
        return self.run / "mcp.sock"
