"""Kill -9 between any two steps of an installation: the next daemon finds the old state or the new, and can go on from it."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.crashing_daemon import crashing_daemon
from tests.support.forge import ForgeServer
from tests.support.home import DaemonHome, daemon_home
from tests.support.published import KEY, Publisher

pytestmark = [pytest.mark.jail, pytest.mark.abuse_case("B17")]
STEPS = (
    *(("before_commit", count) for count in range(1, 6)),
    *(("after_commit", count) for count in range(1, 6)),
    *((f"{when}_staged", count) for when in ("before", "after") for count in (1, 3)),
    ("before_journal", 1),
    ("after_journal", 1),
    *((f"{when}_connector", count) for when in ("before", "after") for count in (1, 2)),
    ("before_action_file", 1),
    ("after_action_file", 1),
    ("before_journal_end", 1),
    ("after_journal_end", 1),
)


def state(home: DaemonHome) -> tuple[list[str], list[str]]:
    """Return the connectors in the store, and the actions in the directory."""
    connectors = home.must("GET", "/v1/connectors")["connectors"]
    actions = home.must("GET", "/v1/actions")["actions"]
    return sorted(f"{connector['name']}@{connector['version']}" for connector in connectors), [
        f"{action['name']}@{action['version']}" for action in actions
    ]


def install(home: DaemonHome, source: str) -> None:
    """Fetch and install a source, as a command does."""
    job = home.must("POST", "/v1/fetches", {"what": "action", "name": source, "replace": True})
    job = home.must("GET", f"/v1/fetches/{job['fetch']}?wait=30")
    home.must("POST", f"/v1/fetches/{job['fetch']}/install", {})


@pytest.mark.parametrize(("point", "count"), STEPS)
def test_an_installation_interrupted_by_a_kill_is_complete_or_not_made(
    forge: ForgeServer, point: str, count: int
) -> None:
    """An update of an action brings two connectors: the old or the new version runs, and installing it again works."""
    publisher = Publisher(forge)
    old = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    new = publisher.action("say", "2.0.0", [publisher.connector("2.0.0"), publisher.connector("2.0.0", path="/more")])
    before = (["github://acme/mail@1.0.0"], ["say@1.0.0"])
    after = (["github://acme/mail/more@2.0.0", "github://acme/mail@1.0.0", "github://acme/mail@2.0.0"], ["say@2.0.0"])
    with daemon_home() as home:
        home.configure(forge.toml())
        home.must("POST", "/v1/keyring", {"authority": "github://acme", "key": KEY.public.to_pem(), "source": "a test"})
        install(home, old)
        assert state(home) == before
        home.stop()
        daemon = crashing_daemon(home.path, point, count)
        with contextlib.suppress(Exception):  # the daemon dies under it
            install(home, new)
        killed = daemon.wait(30)

        found = state(home)
        on_record = {
            kind: home.must("GET", f"/v1/audit?type={kind}")["events"]
            for kind in ("connector.installed", "action.added")
        }
        ran = home.run("say").body["result"]["version"]
        left = (home.path / "store" / "installing.json").exists()
        install(home, new)

        assert killed == -9, "the point was never passed"
        assert found in (before, after)
        assert ran == {"say@1.0.0": "1.0.0", "say@2.0.0": "2.0.0"}[found[1][0]]
        assert not left
        noted = {
            (event["connector"], event["version"]) if "connector" in event else (event["action"], event["version"])
            for kind in ("connector.installed", "action.added")
            for event in on_record[kind]
        }
        assert {tuple(name.rsplit("@", 1)) for some in found for name in some} <= noted, "done, and not on record"
        assert state(home) == after
        assert home.run("say").body["result"]["version"] == "2.0.0"
