"""The Slack connector's whole life: released out of a monorepo, found in a suite, installed, run, updated, rolled back, removed.

Its publisher and its user type the commands that the pages name; the forge and Slack are servers of the test under the names that
the manifest has, with real TLS, on a machine of their own (tests/support/names.py).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.model.secret import Secret
from aileron.registry.signatures import SigningKey
from tests.cli.command import Command
from tests.support.forge import ForgeServer
from tests.support.home import DaemonHome, daemon_home
from tests.support.names import Names
from tests.support.slack import NAMES, SlackServer
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail
SOURCE = Path(__file__).resolve().parents[2] / "connectors" / "slack"
REPOSITORY = "github://aileron/connectors"
CONNECTOR = f"{REPOSITORY}/slack"
BINDING = "api_key/slack/me"
TOKEN = "xoxp-1234567890-canary-of-a-users-token"
ALL = ["slack-list-channels", "slack-search-messages", "slack-ship-update"]


@dataclasses.dataclass(frozen=True)
class World:
    """The publisher's working copy and key, the forge, Slack, and the user's home."""

    repository: Path
    key: Path
    forge: ForgeServer
    slack: SlackServer
    home: DaemonHome

    def release(self, version: str) -> None:
        """Do what the publisher's CI does when `slack/vVERSION` is tagged."""
        dist = self.repository.parent / f"dist-{version}"
        command = ["connector", "release", "--version", version, "slack", "--key", str(self.key), "-o", str(dist)]
        subprocess.run([sys.executable, "-m", "aileron", *command], cwd=self.repository, check=True, timeout=60)
        for archive in sorted(dist.rglob("aileron.tar.gz")):
            place, _, tag = archive.parent.relative_to(dist).as_posix().rpartition("/")
            assert tag == f"v{version}"
            self.forge.publish(f"{REPOSITORY}/{place}", version, archive.read_bytes())
        suite = (self.repository / "slack" / "suite.toml").read_text(encoding="utf-8")
        self.forge.files[REPOSITORY, f"slack/v{version}", "slack/suite.toml"] = suite

    def widen(self) -> None:
        """Edit the next version: it wants another host, and says more about one of its actions."""
        manifest = self.repository / "slack" / "manifest.toml"
        text = manifest.read_text(encoding="utf-8")
        manifest.write_text(text.replace('"slack.com:443"', '"slack.com:443", "files.slack.com:443"'), encoding="utf-8")
        action = self.repository / "slack" / "actions" / "slack-ship-update" / "action.md"
        action.write_text(action.read_text(encoding="utf-8") + "\nFiles come with a later version.\n", encoding="utf-8")

    @property
    def user(self) -> Command:
        """The command that the user types."""
        return Command(self.home.path)

    def installed(self) -> tuple[list[str], list[str]]:
        """Return the versions of the connector, and the actions with theirs."""
        connectors = self.user("connector", "list", "--json").json["connectors"]
        actions = self.user("action", "list", "--json").json["actions"]
        return sorted(connector["version"] for connector in connectors), [
            f"{action['name']} {action['version']}" for action in actions
        ]

    def ship(self, text: str) -> int:
        """Request an update as an agent, approve it as the person, and return how often it was posted."""
        asked = self.user("run", "slack-ship-update", "channel=#engineering", f"text={text}", "--json")
        assert (asked.code, asked.json["status"]) == (75, "pending_approval"), asked
        said = self.user("approve", asked.json["approval_id"], "--yes")
        assert said.code == 0, said
        return sum(post.text == text for post in self.slack.posts)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Provide a world in which nothing is released and nothing installed."""
    authority, key = Authority(tmp_path), SigningKey(Secret(b"s" * 32))
    repository, key_file = tmp_path / "connectors", tmp_path / "signing-key"
    shutil.copytree(SOURCE, repository / "slack")
    (repository / "keys").mkdir()
    (repository / "keys" / "publisher.pub").write_text(key.public.to_pem(), encoding="ascii")
    key_file.write_bytes(key.to_pem().reveal())
    key_file.chmod(0o600)
    with (
        Names(dict.fromkeys(NAMES, "127.0.0.1")) as machine,
        SlackServer(authority.server_context(*NAMES), listener=machine.listen()) as slack,
        ForgeServer(authority, listen=lambda: machine.listen(port=0)) as forge,
        daemon_home() as home,
    ):
        names = ", ".join(f'"{name}:443"' for name in NAMES)
        home.configure(forge.toml().replace("private = [", f"private = [{names}, "))
        machine.start_daemon(home.path)
        home.unlock(TOKEN.encode())
        slack.allow(TOKEN)
        slack.channel("engineering", members=42)
        forge.keys[REPOSITORY] = key.public.to_pem()
        yield World(repository, key_file, forge, slack, home)


@pytest.mark.abuse_case("B18")
def test_a_suite_is_published_installed_run_updated_rolled_back_and_removed(world: World) -> None:
    """Each step is a command; each outcome is what is installed and what Slack was asked."""
    user = world.user
    world.release("1.0.0")

    # Nobody's key is trusted yet: a signature by a stranger is a stop, and the way on is said.
    early = user("action", "add-suite", f"{CONNECTOR}/suite.toml@slack/v1.0.0", "--yes")
    assert (early.code, f"aileron keyring trust {REPOSITORY}" in early.err) == (9, True)
    assert world.installed() == ([], [])
    assert user("keyring", "trust", REPOSITORY, "--yes").code == 0

    # Installed: three actions, one connector, whose credential is bound.
    added = user("action", "add-suite", f"{CONNECTOR}/suite.toml@slack/v1.0.0", "--yes")
    assert (added.code, "3 of 3 installed" in added.err) == (0, True), added
    assert world.installed() == (["1.0.0"], [f"{name} 1.0.0" for name in ALL])
    unbound = user("sync")
    assert f"aileron binding setup {CONNECTOR}" in unbound.err
    assert user("binding", "setup", CONNECTOR, "--name", BINDING, "--secret", "pw").code == 0

    # Run: one reads, one waits for a person.
    listed = user("run", "slack-list-channels", "--json")
    assert [channel["name"] for channel in listed.json["result"]["channels"]] == ["engineering"], listed
    assert world.ship("1.0 is out") == 1

    # Another version, which wants one more host: said beforehand, and the credential waits for another yes.
    world.widen()
    world.release("1.1.0")
    own = world.home.path / "actions" / "slack-ship-update.md"
    own.write_text(own.read_text(encoding="utf-8") + "\nOnly on Fridays.\n", encoding="utf-8")
    newer = [json.loads(line) for line in user("connector", "check", "--json").out.splitlines()]
    assert {(update["name"].rpartition("/")[2], update["newest"]) for update in newer} == {
        (name, "1.1.0") for name in ("slack", *ALL)
    }
    assert world.installed() == (["1.0.0"], [f"{name} 1.0.0" for name in ALL])
    updated = user("action", "update", "slack-ship-update", "--theirs", "--yes")
    assert (updated.code, "ALLOWS MORE: reaches: new, files.slack.com:443" in " ".join(updated.err.split())) == (
        0,
        True,
    )
    assert world.installed()[0] == ["1.0.0", "1.1.0"]
    suspended = user("run", "slack-ship-update", "channel=#engineering", "text=early", "--json")
    assert (suspended.code, "files.slack.com:443" in json.dumps(suspended.json)) == (4, True), suspended
    assert user("run", "slack-list-channels", "--json").code == 0
    assert user("binding", "rebind", BINDING).code == 0
    assert world.ship("1.1 is out") == 1

    # Back again, and the other two never left.
    assert user("action", "update", "slack-ship-update", "--version", "1.0.0", "--yes").code == 0
    assert world.installed() == (["1.0.0", "1.1.0"], [f"{name} 1.0.0" for name in ALL])
    assert world.ship("1.0 is back") == 1

    # Gone, and no version's bytes may come back as others.
    for name in ALL:
        assert user("action", "remove", name).code == 0
    assert user("connector", "remove", "--unused", "--yes").code == 0
    assert world.installed() == ([], [])
    shutil.rmtree(world.repository.parent / "dist-1.0.0")
    world.release("1.0.0")
    moved = user("action", "add", f"{CONNECTOR}/actions/slack-list-channels@1.0.0", "--yes")
    assert (moved.code, "has changed" in moved.err) == (9, True), moved
    assert world.installed() == ([], [])
    assert {request.host for request in world.slack.asked} == {"slack.com"}
