"""A person's home with a connector of a real server, made with commands only: from an empty home to signed decisions.

with desk(server, "kinto", folder, "http://localhost:8888/v1/__api__", "basic") as made:
        made.must("run", "kinto-get-records", "bucket_id=notes")
        asked = made.asked("kinto-delete-record", "id=one")       # an agent's call, which waits

Not here: the servers (servers.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.cli.command import Command, Said
from tests.cli.person import INIT, SIGN, at_terminal
from tests.documents.real_servers import SECRET, USER, Server
from tests.support.canary import scan
from tests.support.home import PASSPHRASE, daemon_home

__all__ = ["CHANGE", "DELETE", "Desk", "desk", "desk_of_sources", "desk_of_update"]

CHANGE: Final = [SIGN, ("Approve? [y/N] ", "y")]
"""Answers to a question with a preview, which only the approver's passphrase loads."""
DELETE: Final = [SIGN, ("Type delete to approve: ", "delete")]


@dataclasses.dataclass(frozen=True)
class Desk:
    """A person's home with a connector that was made from a server's document, and that server."""

    server: Server
    aileron: Command
    connector: str
    sources: Path

    def must(self, *words: str, **options: Any) -> Said:
        """Run a command that has to succeed."""
        said = self.aileron(*words, **options)
        assert said.code == 0, (words, said)
        return said

    def asked(self, action: str, *words: str) -> str:
        """Make an agent's call that has to wait; return the id of its question."""
        said = self.aileron("run", action, *words, "--json")
        assert (said.code, said.json["status"]) == (75, "pending_approval"), said
        return str(said.json["approval_id"])


@contextlib.contextmanager
def desk(server: Server, name: str, folder: Path, source: str, binding: str, *options: str) -> Iterator[Desk]:
    """Make a home with a connector that is imported here. `source`: the document, as a URL or file."""
    with _home(server, f"github://mira/connector-{name}", folder / name, SECRET) as made:
        made.must("connector", "import", source, made.connector, str(made.sources), "--all", *options)
        tried = made.must("connector", "test", str(made.sources))
        assert "FAILED" not in tried.out, tried
        made.must("connector", "install", str(made.sources))
        _settle(made, binding)
        yield made


@contextlib.contextmanager
def desk_of_sources(server: Server, connector: str, sources: Path, folder: Path, token: str) -> Iterator[Desk]:
    """Make a home with a connector that is shipped without a host: built for this server, and bound to a token."""
    archive = str(folder / "built.tar.gz")
    with _home(server, connector, sources, token) as made:
        made.must("connector", "build", str(sources), "--host", server.host, "-o", archive)
        made.must("connector", "install", archive)
        _settle(made, "api_key")
        yield made


@contextlib.contextmanager
def desk_of_update(server: Server, connector: str, sources: Path, document: Path, token: str) -> Iterator[Desk]:
    """Make a home with a shipped connector, moved to this server by importing its document again; `sources` is a copy of it."""
    with _home(server, connector, sources, token) as made:
        made.must("connector", "import", str(document), connector, str(sources), "--update", "--host", server.host)
        made.must("connector", "install", str(sources))
        _settle(made, "api_key")
        yield made


@contextlib.contextmanager
def _home(server: Server, connector: str, sources: Path, secret: str) -> Iterator[Desk]:
    with daemon_home() as home:
        made = Desk(server, Command(home.path), connector, sources)
        made.must("config", "set", "egress.private_plain", server.host)
        made.must("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
        made.must("secret", "set", "pw", given=f"{secret}\n")
        yield made
        assert scan([home.path], secret.encode()) == {}


def _settle(made: Desk, binding: str) -> None:
    """Bind the secret, add the actions, and make the approver's key."""
    service = made.connector.rpartition("-")[2]
    username = ("--username", USER) if binding.startswith("basic") else ()
    name = f"{binding}/{service}/{USER}"
    made.must("binding", "setup", made.connector, "--name", name, "--secret", "pw", *username)
    made.must("action", "add", str(made.sources))
    said = at_terminal(made.aileron, "approver", "init", answers=INIT)
    assert said.code == 0, said
