"""Published artifacts are fetched and installed: shown first, in full or not at all, and never with other bytes."""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.daemon.packages.fetch import MAX_JOBS
from aileron.model.plan import ConnectorPin
from aileron.registry.tarball import unpack
from tests.support.approver import Approver
from tests.support.forge import ForgeServer
from tests.support.home import DaemonHome, daemon_home, word
from tests.support.published import KEY, OTHER, Publisher
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail


@pytest.fixture
def own(forge: ForgeServer) -> Iterator[DaemonHome]:
    """Start a home that knows the forge and trusts Acme's key, without an approver."""
    with daemon_home() as home:
        home.configure(forge.toml())
        trust(home)
        yield home


@pytest.fixture
def signed(forge: ForgeServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start a home that knows the forge and trusts Acme's key, with an approver and the vault open."""
    with daemon_home() as home:
        home.configure(forge.toml())
        home.unlock()
        trust(home)
        approver.appoint(home)
        yield home


def trust(home: DaemonHome) -> None:
    """Add Acme's key to the trusted keys."""
    home.must("POST", "/v1/keyring", {"authority": "github://acme", "key": KEY.public.to_pem(), "source": "a test"})


def fetch(home: DaemonHome, what: str, name: str = "", **options: Any) -> dict[str, Any]:
    """Fetch and return the job when it is over."""
    begun = home.must("POST", "/v1/fetches", {"what": what, "name": name, **options})
    job: dict[str, Any] = home.must("GET", f"/v1/fetches/{begun['fetch']}?wait=30")
    assert job["status"] != "running"
    return job


def refused(job: dict[str, Any]) -> tuple[str, str]:
    """Return the failure class and the message of a failed job."""
    assert job["status"] == "failed", job
    return job["error"]["class"], job["error"]["message"]


def fetched(home: DaemonHome, what: str, name: str = "", **options: Any) -> dict[str, Any]:
    """Fetch, check that the job is ready, and return it."""
    job = fetch(home, what, name, **options)
    assert job["status"] == "ready", job
    return job


def install(home: DaemonHome, job: dict[str, Any]) -> Any:
    """Install a fetched job in a home without an approver, and return the result."""
    return home.must("POST", f"/v1/fetches/{job['fetch']}/install", {})


def parts(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the subjects that a fetched job shows: the parts of an installation, or the only subject; none if there is nothing
    to install.
    """
    if job["consent"] is None:
        return []
    subject = job["consent"]["subject"]
    if subject["kind"] != "installation":
        return [subject]
    assert subject["bindings"] == []
    return [*subject["connectors"], *subject["actions"]]


def asked_about(home: DaemonHome, job: dict[str, Any]) -> str:
    """Install a fetched job in a home with an approver, and return the id of the question about it."""
    asked = home.ask("POST", f"/v1/fetches/{job['fetch']}/install", {})
    assert asked.status == 202, asked
    return str(asked.body["approval_id"])


def connectors(home: DaemonHome) -> list[str]:
    """Return the connectors in the store."""
    return sorted(
        f"{connector['name']}@{connector['version']}" for connector in home.must("GET", "/v1/connectors")["connectors"]
    )


def actions(home: DaemonHome) -> list[str]:
    """Return the actions in the directory."""
    return [f"{action['name']}@{action['version']}" for action in home.must("GET", "/v1/actions")["actions"]]


def staged(home: DaemonHome) -> list[str]:
    """Return the names of files that are staged but not installed."""
    folder = home.path / "store" / "fetched"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# Without an approver


def test_a_fetched_connector_is_shown_before_it_is_installed(own: DaemonHome, publisher: Publisher) -> None:
    """The job shows what the connector may do. The store is empty before the installation, and all is on record."""
    pin = publisher.connector("1.0.0", hosts=["api.example.com:443"], credential="api_key")

    job = fetched(own, "connector", "github://acme/mail@1.0.0")
    before = connectors(own)
    done = install(own, job)

    [subject] = parts(job)
    assert (subject["kind"], subject["name"], subject["version"], subject["hash"]) == (
        "connector",
        pin.name,
        pin.version,
        pin.hash,
    )
    assert subject["signature"] == f"verified: {KEY.public.fingerprint}, trusted for github://acme"
    assert (subject["reaches"], subject["credential"]) == (["api.example.com:443"], "api_key (Send notes)")
    assert (subject["publisher"], subject["source"]) == ("Acme", "github://acme/mail@1.0.0")
    [progress] = job["progress"]
    assert progress["name"] == "github://acme/mail@1.0.0"
    assert 0 < progress["bytes"] == progress["total"]
    assert (before, connectors(own)) == ([], ["github://acme/mail@1.0.0"])
    assert (done["connectors"][0]["new"], done["connectors"][0]["hash"]) == (True, pin.hash)
    assert staged(own) == []
    events = own.must("GET", "/v1/audit")["events"]
    told = [event["type"] for event in reversed(events)]
    assert told.index("fetch.started") < told.index("fetch.ended") < told.index("connector.installed")
    installed = next(event for event in events if event["type"] == "connector.installed")
    assert (installed["source"], installed["hosts"]) == ("github://acme/mail@1.0.0", ["api.example.com:443"])


def test_fetching_an_action_brings_its_missing_connectors(own: DaemonHome, publisher: Publisher) -> None:
    """The action has two connectors; the installed one is neither fetched nor shown again. The action then runs."""
    first = publisher.connector("1.0.0")
    second = publisher.connector("2.0.0", path="/more")
    source = publisher.action("say-both", "1.0.0", [first, second])
    install(own, fetched(own, "connector", f"{first.name}@1.0.0"))

    job = fetched(own, "action", source)
    done = install(own, job)
    ran = own.run("say-both")

    assert [(part["kind"], part["name"]) for part in parts(job)] == [
        ("connector", second.name),
        ("action_file", "say-both"),
    ]
    assert [connector["name"] for connector in done["connectors"]] == [second.name]
    assert done["actions"] == [{"name": "say-both", "replaced": False}]
    assert ran.body["result"] == {"version": "2.0.0", "text": ""}
    assert staged(own) == []


def test_a_cancelled_fetch_leaves_no_file_in_the_home(own: DaemonHome, publisher: Publisher) -> None:
    """The home keeps no file, entry or staged archive, and the job cannot be installed afterwards."""
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    job = fetched(own, "action", source)
    assert len(staged(own)) == 2

    cancelled = own.must("DELETE", f"/v1/fetches/{job['fetch']}")

    assert (cancelled["status"], connectors(own), actions(own), staged(own)) == ("cancelled", [], [], [])
    again = own.ask("POST", f"/v1/fetches/{job['fetch']}/install", {})
    assert (word(again), "is cancelled" in again.body["error"]["message"]) == ("invalid_request", True)
    [ended] = own.must("GET", "/v1/audit?type=fetch.ended&limit=1")["events"]
    assert ended["status"] == "cancelled"


def test_a_fetch_that_cannot_write_its_file_does_not_affect_the_next_fetch(
    own: DaemonHome, publisher: Publisher
) -> None:
    """A folder is in the place of the archive: the job fails with the reason, and the next one succeeds."""
    pin = publisher.connector("1.0.0")
    in_the_way = own.path / "store" / "fetched" / f"{pin.hash.removeprefix('sha256:')}.tar.gz"
    in_the_way.mkdir(mode=0o700, parents=True)

    found, message = refused(fetch(own, "connector", "github://acme/mail@1.0.0"))
    in_the_way.rmdir()
    install(own, fetched(own, "connector", "github://acme/mail@1.0.0"))

    assert (found, "cannot be written" in message) == ("internal_error", True)
    assert connectors(own) == ["github://acme/mail@1.0.0"]


@pytest.mark.abuse_case("B18")
def test_two_connector_versions_coexist_and_an_update_shows_how_the_manifest_widens(
    own: DaemonHome, publisher: Publisher
) -> None:
    """Each action runs the version to which it is pinned; a wider manifest is shown as a difference."""
    old = publisher.connector("1.0.0", hosts=["api.example.com:443"])
    new = publisher.connector("1.1.0", hosts=["api.example.com:443", "files.example.com:443"], limits="memory_mb = 128")
    for name, pin in (("old", old), ("new", new)):
        job = fetched(own, "action", publisher.action(f"say-{name}", "1.0.0", [pin]))
        install(own, job)

    update = parts(job)[0]
    assert (update["kind"], update["before"]) == ("connector_update", "1.0.0")
    assert [(change["where"], change["before"], change["after"], change["widens"]) for change in update["changes"]] == [
        ("reaches", None, "files.example.com:443", True),
        ("limits.memory_mb", "64", "128", True),
    ]
    assert [own.run(f"say-{name}").body["result"]["version"] for name in ("old", "new")] == ["1.0.0", "1.1.0"]


@pytest.mark.parametrize(
    ("how", "failure", "says"),
    [
        ({"key": OTHER}, "signature_failure", "is from none of the keys"),
        ({"name": "github://acme/other"}, "invalid_request", "which is not what you requested"),
    ],
)
def test_an_artifact_with_an_untrusted_signature_or_an_unexpected_name_is_refused(
    own: DaemonHome, publisher: Publisher, how: dict[str, Any], failure: str, says: str
) -> None:
    """The home keeps no part of it; a later version with the right key and name is installed."""
    publisher.connector("1.0.0", **how)
    publisher.connector("1.0.1")

    found, message = refused(fetch(own, "connector", "github://acme/mail@1.0.0"))

    assert (found, says in message, staged(own), connectors(own)) == (failure, True, [], [])
    install(own, fetched(own, "connector", "github://acme/mail@1.0.1"))


def test_beyond_the_limit_only_the_oldest_fetch_job_is_forgotten(own: DaemonHome, publisher: Publisher) -> None:
    """The daemon keeps as many jobs as it allows; one more makes it forget the first."""
    publisher.connector("1.0.0")
    jobs = [fetched(own, "connector", "github://acme/mail@1.0.0")["fetch"] for _ in range(MAX_JOBS)]

    known = [own.ask("GET", f"/v1/fetches/{job}").status for job in jobs]
    fetched(own, "connector", "github://acme/mail@1.0.0")
    after = [own.ask("GET", f"/v1/fetches/{job}").status for job in jobs]

    assert known == [200] * MAX_JOBS
    assert after == [404] + [200] * (MAX_JOBS - 1)


def test_the_error_for_a_missing_version_lists_the_published_versions(own: DaemonHome, publisher: Publisher) -> None:
    """The person can then choose one that exists."""
    publisher.connector("1.0.0")
    publisher.connector("1.1.0")

    assert refused(fetch(own, "connector", "github://acme/mail@2.0.0")) == (
        "not_found",
        "github://acme/mail has no version 2.0.0: there are 1.1.0, 1.0.0",
    )


@pytest.mark.abuse_case("B15")
def test_a_connector_version_republished_with_different_bytes_is_refused(own: DaemonHome, publisher: Publisher) -> None:
    """The audit record knows the hash even after the connector was removed. A different version is accepted."""
    was = publisher.connector("1.0.0")
    install(own, fetched(own, "connector", "github://acme/mail@1.0.0"))
    own.must("DELETE", f"/v1/connectors/{was.hash}")
    now = publisher.connector("1.0.0", note="other bytes")

    moved = fetch(own, "connector", "github://acme/mail@1.0.0")
    meant = fetched(own, "connector", "github://acme/mail@1.0.0", on_conflict="replace")
    publisher.connector("1.0.1")

    assert refused(moved)[0] == "hash_mismatch"
    assert moved["error"]["details"] == {"expected": was.hash, "actual": now.hash}
    assert parts(meant)[0]["hash"] == now.hash
    fetched(own, "connector", "github://acme/mail@1.0.1")


@pytest.mark.abuse_case("B15")
def test_an_action_whose_connector_was_republished_with_different_bytes_is_refused(
    own: DaemonHome, publisher: Publisher
) -> None:
    """The action pins the hash, and the forge now serves other bytes. Neither artifact stays in the home."""
    pin = publisher.connector("1.0.0")
    source = publisher.action("say", "1.0.0", [pin])
    publisher.connector("1.0.0", note="other bytes")

    found, message = refused(fetch(own, "action", source))

    assert (found, pin.hash in message, staged(own), actions(own)) == ("hash_mismatch", True, [], [])


@pytest.mark.abuse_case("B15")
def test_an_action_version_republished_with_a_different_text_is_refused(own: DaemonHome, publisher: Publisher) -> None:
    """The text of NAME@VERSION differs from the one that was installed before."""
    pin = publisher.connector("1.0.0")
    source = publisher.action("say", "1.0.0", [pin])
    install(own, fetched(own, "action", source))
    own.must("DELETE", "/v1/actions/say")
    publisher.action("say", "1.0.0", [pin], body="Something else.")

    assert refused(fetch(own, "action", source))[0] == "hash_mismatch"
    assert parts(fetched(own, "action", source, replace=True))


def test_going_back_to_a_republished_action_version_is_refused(own: DaemonHome, publisher: Publisher) -> None:
    """The version was installed before, and the forge now has another text for it."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    publisher.action("say", "1.1.0", [pin])
    install(own, fetched(own, "update", "say"))
    unmoved = fetched(own, "update", "say", version="1.0.0")
    publisher.action("say", "1.0.0", [pin], body="Something else.")

    assert (unmoved["from"], unmoved["to"]) == ("1.1.0", "1.0.0")
    assert refused(fetch(own, "update", "say", version="1.0.0"))[0] == "hash_mismatch"


def test_an_action_with_a_taken_tool_name_is_refused_before_installation(own: DaemonHome, publisher: Publisher) -> None:
    """`say_it` collides with `say-it`; an action of the same name with another text needs an explicit replacement."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say-it", "1.0.0", [pin])))

    collides = refused(fetch(own, "action", publisher.action("say_it", "1.0.0", [pin])))
    taken = refused(fetch(own, "action", publisher.action("say-it", "1.1.0", [pin])))

    assert "would both get the tool name 'say_it'" in collides[1]
    assert "is already installed with different content" in taken[1]
    assert actions(own) == ["say-it@1.0.0"]


@pytest.mark.abuse_case("B17")
def test_the_same_action_fetched_twice_can_be_installed_twice(own: DaemonHome, publisher: Publisher) -> None:
    """Both jobs are fetched before either is installed; the second finds the connector installed."""
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    jobs = [fetched(own, "action", source) for _ in range(2)]

    first, second = (install(own, job) for job in jobs)

    assert (len(first["connectors"]), second["connectors"], second["actions"][0]["replaced"]) == (1, [], True)
    assert (connectors(own), actions(own), staged(own)) == (["github://acme/mail@1.0.0"], ["say@1.0.0"], [])


def test_simultaneous_installations_of_one_action_all_succeed(own: DaemonHome, publisher: Publisher) -> None:
    """Four clients install four jobs at once: the store has the action and its connector exactly once."""
    source = publisher.action(
        "say", "1.0.0", [publisher.connector("1.0.0"), publisher.connector("1.0.0", path="/more")]
    )
    jobs = [fetched(own, "action", source) for _ in range(4)]

    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda job: own.ask("POST", f"/v1/fetches/{job['fetch']}/install", {}), jobs))

    assert [answer.status for answer in answers] == [200] * 4
    assert sum(len(answer.body["connectors"]) for answer in answers) == 2
    assert (connectors(own), actions(own)) == (
        ["github://acme/mail/more@1.0.0", "github://acme/mail@1.0.0"],
        ["say@1.0.0"],
    )
    assert (staged(own), own.run("say").status) == ([], 200)


def test_fetching_an_installed_action_again_asks_for_no_consent(own: DaemonHome, publisher: Publisher) -> None:
    """Only a connector of the action that was removed meanwhile needs consent."""
    pin = publisher.connector("1.0.0")
    source = publisher.action("say", "1.0.0", [pin])
    install(own, fetched(own, "action", source))

    again = fetched(own, "action", source)
    own.must("DELETE", f"/v1/connectors/{pin.hash}")
    without = fetched(own, "action", source)
    install(own, without)

    assert parts(again) == []
    assert [part["kind"] for part in parts(without)] == ["connector"]
    assert own.run("say").status == 200


def test_sync_installs_the_connectors_that_actions_are_pinned_to(own: DaemonHome, publisher: Publisher) -> None:
    """Sync fetches missing connectors by their pin and reports those that cannot be fetched. A second sync changes
    nothing.
    """
    here, gone = publisher.connector("1.0.0"), publisher.connector("1.0.0", path="/gone")
    for handle, pin in (("say", here), ("say-gone", gone)):
        install(own, fetched(own, "action", publisher.action(handle, "1.0.0", [pin])))
    for pin in (here, gone):
        own.must("DELETE", f"/v1/connectors/{pin.hash}")
    publisher.connector("1.0.0", path="/gone", note="other bytes")

    job = fetched(own, "sync")
    install(own, job)
    again = fetched(own, "sync")

    assert [problem["name"] for problem in job["problems"]] == ["github://acme/mail/gone@1.0.0"]
    assert "has changed" in job["problems"][0]["problem"]
    assert (connectors(own), parts(again)) == (["github://acme/mail@1.0.0"], [])
    assert own.run("say").status == 200


def test_a_latest_release_tag_with_an_at_sign_is_refused_for_a_suite(own: DaemonHome, forge: ForgeServer) -> None:
    """The name of a repository's latest release is untrusted text; a suite's tag must not contain an @."""
    forge.publish("github://acme/mail", "1.0.0@home", b"")
    forge.files["github://acme/mail", "v1.0.0@home", "suite.toml"] = "name = 1"

    answer = own.ask("POST", "/v1/suites", {"source": "github://acme/mail/suite.toml@latest"})

    assert (word(answer), "'v1.0.0@home' is not a tag" in answer.body["error"]["message"]) == (
        "invalid_request",
        True,
    )


# Updates


def test_an_update_keeps_the_users_own_edits(own: DaemonHome, publisher: Publisher) -> None:
    """The publisher's changes are merged with the user's; the difference is shown before the installation."""
    old, new = publisher.connector("1.0.0"), publisher.connector("1.1.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [old])))
    file = own.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Says it.", "Says it, to me."), encoding="utf-8")
    publisher.action("say", "1.1.0", [new])

    job = fetched(own, "update", "say")
    install(own, job)

    assert (job["from"], job["to"], job["conflicts"], job["edited"]) == ("1.0.0", "1.1.0", 0, True)
    assert '-version = "1.0.0"' in job["difference"]
    assert '+version = "1.1.0"' in job["difference"]
    text = file.read_text(encoding="utf-8")
    assert "Says it, to me." in text
    assert new.hash in text
    assert old.hash not in text
    assert own.run("say").body["result"]["version"] == "1.1.0"
    assert parts(fetched(own, "update", "say")) == []
    back = fetched(own, "update", "say", version="1.0.0")
    install(own, back)
    assert own.run("say").body["result"]["version"] == "1.0.0"
    assert "Says it, to me." in file.read_text(encoding="utf-8")


def test_an_update_that_conflicts_with_the_users_edits_is_refused(own: DaemonHome, publisher: Publisher) -> None:
    """The person must provide the resolved text, or choose the publisher's."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    file = own.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Says it.", "Mine."), encoding="utf-8")
    publisher.action("say", "1.1.0", [pin], body="Theirs.")

    job = fetched(own, "update", "say")
    unresolved = own.ask("POST", f"/v1/fetches/{job['fetch']}/install", {})
    resolved = job["text"].replace("<<<<<<< yours\n", "").replace("=======\nTheirs.\n>>>>>>> published\n", "")
    other = own.ask("POST", f"/v1/fetches/{job['fetch']}/resolve", {"text": resolved.replace('"say"', '"shout"')})
    shown = own.must("POST", f"/v1/fetches/{job['fetch']}/resolve", {"text": resolved})
    install(own, job)

    assert (job["conflicts"], parts(job)) == (1, [])
    assert (shown["conflicts"], [part["text"] for part in parts(shown)]) == (0, [resolved])
    assert (word(unresolved), "--theirs" in unresolved.body["error"]["message"]) == ("invalid_request", True)
    assert "has to be of say" in other.body["error"]["message"]
    assert "Mine." in file.read_text(encoding="utf-8")
    assert 'version = "1.1.0"' in file.read_text(encoding="utf-8")
    publisher.action("say", "1.2.0", [pin], body="Theirs again.")
    install(own, fetched(own, "update", "say", theirs=True))
    assert "Theirs again." in file.read_text(encoding="utf-8")


def test_checking_for_updates_lists_newer_versions_and_changes_nothing(
    own: DaemonHome, publisher: Publisher, forge: ForgeServer
) -> None:
    """A pre-release is not recommended, but can be requested by name; an unreadable forge is reported."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    publisher.connector("1.1.0")
    publisher.action("say", "2.0.0-rc.1", [pin])
    early = publisher.action("say", "2.0.0-rc.2", [pin])

    updates = own.must("GET", "/v1/connectors/updates")["updates"]
    taken = own.must("GET", "/v1/connectors/updates?prerelease=true")["updates"]
    named = fetched(own, "update", "say", version="2.0.0-rc.2")
    forge.private.add(publisher.repository)
    unseen = own.must("GET", "/v1/connectors/updates")["updates"]

    assert [(update["kind"], update["newest"], update["prerelease"]) for update in updates] == [
        ("action", None, "2.0.0-rc.2"),
        ("connector", "1.1.0", None),
    ]
    assert [update["newest"] for update in taken] == ["2.0.0-rc.2", "1.1.0"]
    assert f"{named['name']}" == "say"
    assert named["to"] == early.rpartition("@")[2]
    assert all("reading it needs a token" in update["problem"] for update in unseen)
    assert actions(own) == ["say@1.0.0"]


# Verification and clean-up


def test_verify_reports_a_connector_with_a_changed_byte(own: DaemonHome, publisher: Publisher) -> None:
    """Every byte is hashed again; an intact connector has no problem."""
    whole, broken = publisher.connector("1.0.0"), publisher.connector("1.1.0")
    for pin in (whole, broken):
        install(own, fetched(own, "connector", str(pin)))
    file = own.path / "store/connectors/sha256" / broken.hash.removeprefix("sha256:") / "connector"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)

    found = {
        connector["hash"]: connector["problem"] for connector in own.must("POST", "/v1/connectors/verify")["connectors"]
    }

    assert found[whole.hash] is None
    assert "expected" in found[broken.hash]


@pytest.mark.abuse_case("B20")
def test_removing_unused_connectors_keeps_those_that_an_action_or_plan_needs(
    own: DaemonHome, publisher: Publisher
) -> None:
    """A connector is needed by a pinned action or by a pending plan of a removed action; a broken action file stops the
    removal.
    """
    used, waited, unused = (publisher.connector(f"1.{number}.0") for number in range(3))
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [used])))
    install(own, fetched(own, "action", publisher.action("ask", "1.0.0", [waited], gated=True)))
    install(own, fetched(own, "connector", str(unused)))
    question = own.asked("ask")
    own.must("DELETE", "/v1/actions/ask")
    broken = own.path / "actions" / "broken.md"
    broken.write_text("+++\n", encoding="utf-8")

    stopped = own.ask("POST", "/v1/connectors/remove-unused", {})
    broken.unlink()
    would = own.must("POST", "/v1/connectors/remove-unused", {"dry_run": True})["connectors"]
    gone = own.must("POST", "/v1/connectors/remove-unused", {})["connectors"]
    left = connectors(own)
    own.must("POST", f"/v1/action-approvals/{question['approval_id']}/cancel", {})
    then = own.must("POST", "/v1/connectors/remove-unused", {})["connectors"]

    assert "what broken needs is unknown" in stopped.body["error"]["message"]
    assert [connector["hash"] for connector in would] == [connector["hash"] for connector in gone] == [unused.hash]
    assert left == ["github://acme/mail@1.0.0", "github://acme/mail@1.1.0"]
    assert [connector["hash"] for connector in then] == [waited.hash]


# With an approver


@pytest.mark.abuse_case("B17")
def test_an_action_and_its_connectors_are_installed_with_one_signature(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """A single question shows all of them, and nothing is installed before it is approved. Each part then has its own consent."""
    pins = [publisher.connector("1.0.0"), publisher.connector("2.0.0", path="/more")]
    job = fetched(signed, "action", publisher.action("say-both", "1.0.0", pins))

    asked = asked_about(signed, job)
    before = connectors(signed), actions(signed)
    settled = approver.decide(signed, asked).body

    assert [part["kind"] for part in parts(job)] == ["connector", "connector", "action_file"]
    assert before == ([], [])
    assert settled["status"] == "completed", settled
    assert settled["result"]["actions"] == [{"name": "say-both", "replaced": False}]
    assert signed.run("say-both").body["result"]["version"] == "2.0.0"
    assert staged(signed) == []
    agreed = signed.must("GET", "/v1/audit?type=consent.agreed")["events"]
    assert sorted((event["kind"], event["approval"]) for event in agreed if event["approval"] == asked) == [
        ("action_file", asked),
        ("connector", asked),
        ("connector", asked),
    ]


@pytest.mark.abuse_case("B17")
def test_a_denied_installation_leaves_nothing_behind(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """The connector and the action are not installed, the fetched files are deleted, and the denial stands."""
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    asked = asked_about(signed, fetched(signed, "action", source))

    approver.decide(signed, asked, "deny")

    assert signed.must("GET", f"/v1/action-approvals/{asked}")["status"] == "denied"
    assert (connectors(signed), actions(signed), staged(signed)) == ([], [], [])
    assert word(approver.decide(signed, asked)) == "already_decided"


def test_an_installation_can_be_cancelled_while_the_vault_is_locked(signed: DaemonHome, publisher: Publisher) -> None:
    """The cancellation stands once the vault is open, and its fetched files are deleted."""
    job = fetched(signed, "action", publisher.action("say", "1.0.0", [publisher.connector("1.0.0")]))
    asked = asked_about(signed, job)
    signed.must("POST", "/v1/vault/lock", {})

    signed.must("POST", f"/v1/action-approvals/{asked}/cancel", {})

    signed.unlock()
    assert signed.must("GET", f"/v1/action-approvals/{asked}")["status"] == "cancelled"
    assert (connectors(signed), actions(signed), staged(signed)) == ([], [], [])


def test_staging_is_empty_after_an_installation(signed: DaemonHome, publisher: Publisher, approver: Approver) -> None:
    """The test installs a connector alone, and then an action whose connector is installed already."""
    pin = publisher.connector("1.0.0")
    for what, name in (("connector", "github://acme/mail@1.0.0"), ("action", publisher.action("say", "1.0.0", [pin]))):
        job = fetched(signed, what, name)
        approver.decide(signed, asked_about(signed, job))

    assert (connectors(signed), actions(signed), staged(signed)) == (["github://acme/mail@1.0.0"], ["say@1.0.0"], [])


def test_an_installation_can_be_approved_after_a_restart(
    signed: DaemonHome, publisher: Publisher, approver: Approver, forge: ForgeServer
) -> None:
    """The question and the fetched files survive the daemon's kill; the forge is not asked again."""
    job = fetched(signed, "action", publisher.action("say", "1.0.0", [publisher.connector("1.0.0")]))
    asked = asked_about(signed, job)
    requests = len(forge.asked)
    signed.kill()
    signed.unlock()
    assert (connectors(signed), actions(signed)) == ([], [])

    settled = approver.decide(signed, asked).body

    assert (settled["status"], connectors(signed), actions(signed)) == (
        "completed",
        ["github://acme/mail@1.0.0"],
        ["say@1.0.0"],
    )
    assert len(forge.asked) == requests


@pytest.mark.abuse_case("B16")
def test_fetched_artifacts_are_checked_again_on_approval(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """The staged bytes are replaced, or the key is revoked meanwhile: nothing is installed, whatever was signed."""
    publisher.connector("1.0.0")
    other = publisher.connector("1.0.1")
    job = fetched(signed, "connector", "github://acme/mail@1.0.0")
    asked = asked_about(signed, job)
    fetched(signed, "connector", str(other))
    first, second = (signed.path / "store" / "fetched" / name for name in staged(signed))
    ours, theirs = (first, second) if parts(job)[0]["hash"][7:] in first.name else (second, first)
    ours.write_bytes(theirs.read_bytes())

    swapped = approver.decide(signed, asked).body
    asked = asked_about(signed, fetched(signed, "connector", "github://acme/mail@1.0.0"))
    signed.must("POST", "/v1/keyring/revoke", {"authority": "github://acme"})
    revoked = approver.decide(signed, asked).body

    assert (swapped["status"], swapped["error"]["class"]) == ("failed", "invalid_request")
    assert (revoked["status"], revoked["error"]["class"]) == ("failed", "signature_failure")
    assert connectors(signed) == []


# Attacks and edge cases


@pytest.mark.abuse_case("B22")
def test_two_actions_that_share_a_connector_are_both_installed(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """Both are requested before the first is approved: the second finds its connector installed."""
    pin = publisher.connector("1.0.0")
    jobs = [fetched(signed, "action", publisher.action(handle, "1.0.0", [pin])) for handle in ("say", "shout")]
    asked = [asked_about(signed, job) for job in jobs]

    settled = [approver.decide(signed, approval).body for approval in asked]

    assert [decision["status"] for decision in settled] == ["completed", "completed"], settled
    assert actions(signed) == ["say@1.0.0", "shout@1.0.0"]


@pytest.mark.abuse_case("B22")
def test_denying_one_action_keeps_a_connector_that_another_action_needs(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """Both actions come with the same connector, whose fetched archive is kept for the one that is approved."""
    pin = publisher.connector("1.0.0")
    jobs = [fetched(signed, "action", publisher.action(handle, "1.0.0", [pin])) for handle in ("say", "shout")]
    first, second = [asked_about(signed, job) for job in jobs]

    approver.decide(signed, first, "deny")
    settled = approver.decide(signed, second).body

    assert settled["status"] == "completed", settled
    assert actions(signed) == ["shout@1.0.0"]


@pytest.mark.abuse_case("B22")
def test_of_two_pending_requests_to_install_an_action_the_first_can_still_be_approved(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """The requests differ in `replace`; approving the first still installs the action."""
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    mine = asked_about(signed, fetched(signed, "action", source))
    asked_about(signed, fetched(signed, "action", source, replace=True))

    settled = approver.decide(signed, mine).body

    assert settled["status"] == "completed", settled
    assert actions(signed) == ["say@1.0.0"]


def planted(home: DaemonHome, pin: ConnectorPin, forge: ForgeServer) -> None:
    """Put the published connector `pin` into the store by hand, without consent."""
    archive = forge.archives[pin.name, pin.version]
    members = unpack(archive)
    folder = home.path / "store/connectors/sha256" / pin.hash.removeprefix("sha256:")
    folder.mkdir(parents=True)
    connector, manifest = members["connector"], members["manifest.toml"]
    (folder / "connector").write_bytes(connector)
    (folder / "manifest.toml").write_bytes(manifest)
    meta = {"connector_bytes": len(connector), "manifest_bytes": len(manifest)}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


@pytest.mark.abuse_case("B21")
def test_an_update_is_compared_with_the_version_that_has_consent(
    signed: DaemonHome, publisher: Publisher, approver: Approver, forge: ForgeServer
) -> None:
    """A wider version that was put into the store by hand must not make the update look harmless."""
    narrow = publisher.connector("1.0.0", hosts=["api.example.com:443"])
    wide = publisher.connector("1.4.9", hosts=["api.example.com:443", "evil.example.com:443"])
    new = publisher.connector("1.5.0", hosts=["api.example.com:443", "evil.example.com:443"])
    approver.decide(signed, asked_about(signed, fetched(signed, "connector", str(narrow))))
    planted(signed, wide, forge)

    [subject] = parts(fetched(signed, "connector", str(new)))

    assert (subject["before"], [change["after"] for change in subject["changes"]]) == (
        "1.0.0",
        ["evil.example.com:443"],
    )


@pytest.mark.abuse_case("B21")
def test_a_connector_copied_into_the_store_by_hand_still_needs_consent(
    signed: DaemonHome, publisher: Publisher, forge: ForgeServer
) -> None:
    """The connector does not count as installed: an action that needs it leads to a question about it."""
    pin = publisher.connector("1.0.0", hosts=["evil.example.com:443"])
    planted(signed, pin, forge)

    job = fetched(signed, "action", publisher.action("say", "1.0.0", [pin]))

    assert [part["kind"] for part in parts(job)] == ["connector", "action_file"]


@pytest.mark.abuse_case("B21")
def test_an_action_file_is_no_consent_to_the_connector_that_it_names(
    signed: DaemonHome, publisher: Publisher, approver: Approver, forge: ForgeServer, tmp_path: Path
) -> None:
    """The connector was put into the store by hand; the action was added by request, or by hand too."""
    pin = publisher.connector("1.0.0", unsigned=True)
    planted(signed, pin, forge)
    text = publisher.text("mine", "1.0.0", [pin]).replace('source = "', '# source = "')
    (signed.path / "actions").mkdir()
    (signed.path / "actions" / "mine.md").write_text(text, encoding="utf-8")
    archive = tmp_path / "mail.tar.gz"
    archive.write_bytes(forge.archives[pin.name, pin.version])

    asked = signed.ask("POST", "/v1/actions", {"text": text, "file": "mine.md"})
    ran = signed.run("mine")
    approver.agree(signed, signed.ask("POST", "/v1/connectors", {"path": str(archive)}))
    approver.agree(signed, signed.ask("POST", "/v1/actions", {"text": text, "file": "mine.md", "replace": True}))

    for refused_one in (asked, ran):
        assert word(refused_one) == "consent_required", refused_one.body
        assert f"{pin.name}@{pin.version} ({pin.hash}) is stored but was never approved" in str(refused_one.body)
    assert signed.run("mine").status == 200  # the control


@pytest.mark.abuse_case("B24")
def test_an_update_refuses_a_connector_version_republished_with_different_bytes(
    own: DaemonHome, publisher: Publisher
) -> None:
    """A version that was installed once must have the same bytes forever, also as part of an update."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    publisher.action("say", "1.1.0", [pin])
    install(own, fetched(own, "update", "say"))
    install(own, fetched(own, "update", "say", version="1.0.0"))
    publisher.action("say", "1.1.0", [pin], body="Something else.")

    assert refused(fetch(own, "update", "say"))[0] == "hash_mismatch"


@pytest.mark.abuse_case("B24")
@pytest.mark.parametrize(
    "body", [b'[{"tag_name":"v1","x":' + b"[" * 50_000, b'[{"tag_name":"\xff\xfe"}]'], ids=["depth", "no UTF-8"]
)
def test_an_invalid_response_of_one_forge_does_not_hide_updates_from_other_forges(
    own: DaemonHome, publisher: Publisher, forge: ForgeServer, body: bytes
) -> None:
    """The forge is reported as a problem, and the other updates are listed."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    forge.disturb(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    answer = own.ask("GET", "/v1/connectors/updates")

    assert not answer.is_error, answer.body
    assert sum(update["problem"] is not None for update in answer.body["updates"]) == 1


@pytest.mark.abuse_case("B25")
def test_an_old_folder_in_staging_does_not_stop_a_fetch(own: DaemonHome, publisher: Publisher, tmp_path: Path) -> None:
    """The cleanup of old files must ignore a folder, which is no fetched file."""
    publisher.connector("1.0.0")
    fetched(own, "connector", "github://acme/mail@1.0.0")
    folder = own.path / "store" / "fetched"
    (folder / "old").mkdir()
    os.utime(folder / "old", (1, 1))

    fetched(own, "connector", "github://acme/mail@1.0.0")


@pytest.mark.abuse_case("B25")
def test_files_behind_a_linked_staging_folder_are_not_removed(
    own: DaemonHome, publisher: Publisher, tmp_path: Path
) -> None:
    """The cleanup does not follow a symbolic link at `store/fetched`: an old file behind it stays."""
    own.must("GET", "/v1/status")
    own.stop()
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="utf-8")
    os.utime(precious, (1, 1))
    folder = own.path / "store" / "fetched"
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(tmp_path)

    own.must("GET", "/v1/status")
    fetch(own, "connector", "github://acme/mail@1.0.0")

    assert precious.exists()


def test_sync_fetches_a_damaged_connector_again(own: DaemonHome, publisher: Publisher) -> None:
    """A store entry whose bytes do not match its hash counts as missing."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin])))
    file = own.path / "store/connectors/sha256" / pin.hash.removeprefix("sha256:") / "connector"
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-1] + b"x")

    install(own, fetched(own, "sync"))

    assert own.run("say").status == 200


@pytest.mark.abuse_case("B25")
def test_a_key_from_a_file_is_not_shown_as_published_by_a_repository(signed: DaemonHome) -> None:
    """The daemon decides which source it shows, whatever the caller claims."""
    said = "keys/publisher.pub of github://acme/mail"
    asked = {"authority": "github://acme/mail", "key": OTHER.public.to_pem(), "source": said}

    question = signed.must("POST", "/v1/keyring", asked)

    shown = signed.must("GET", f"/v1/action-approvals/{question['approval_id']}")["subject"]
    assert shown["source"] != said


@pytest.mark.abuse_case("B23")
def test_comparing_an_update_of_many_lines_does_not_block_the_daemon(own: DaemonHome, publisher: Publisher) -> None:
    """Comparing these lines takes minutes: the daemon answers other requests meanwhile, and the update ends."""
    pin = publisher.connector("1.0.0")
    sides = [hard_lines(250, mark) for mark in "pq"]
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin], body=sides[0])))
    file = own.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("say something", "say a thing"), encoding="utf-8")
    publisher.action("say", "1.1.0", [pin], body=sides[1])

    begun = own.must("POST", "/v1/fetches", {"what": "update", "name": "say"})

    # A daemon that the comparison blocked would answer none of these before their deadline.
    wait_until(
        lambda: own.must("GET", f"/v1/fetches/{begun['fetch']}?wait=0")["status"] != "running", "the update ends"
    )


def hard_lines(blocks: int, mark: str) -> str:
    """Return ever shorter runs of the same lines, each followed by a line that is different in every text."""
    pick = random.Random(1)
    words = [a + b for a in "abcdefghijklmnop" for b in "abcdefg"][:105]
    lines: list[str] = []
    for number in range(blocks):
        lines += [pick.choice(words) for _ in range(blocks - number)]
        lines.append(f"{mark}{number}")
    return "\n".join(lines)


@pytest.mark.abuse_case("B22")
def test_failing_fetch_jobs_do_not_evict_a_fetch_job_that_is_ready(own: DaemonHome, publisher: Publisher) -> None:
    """The ready job survives twenty failures; jobs that are evicted leave nothing in staging."""
    publisher.connector("1.0.0")
    for number in range(20):
        publisher.connector(f"2.{number}.0")
    mine = fetched(own, "connector", "github://acme/mail@1.0.0")
    for _ in range(20):
        assert fetch(own, "connector", "github://acme/nothing@1.0.0")["status"] == "failed"

    install(own, mine)
    for number in range(20):
        fetched(own, "connector", f"github://acme/mail@2.{number}.0")

    assert len(staged(own)) <= 16


@pytest.mark.abuse_case("B24")
def test_a_latest_release_with_an_invalid_tag_name_is_refused(
    own: DaemonHome, forge: ForgeServer, publisher: Publisher
) -> None:
    """The forge chooses the tag's name, which must neither lead to another path nor cause an internal error."""
    publisher.connector("1.0.0")
    for tag in ("../../other/repository/main", "v1 0", "x" * 300, "-"):
        body = json.dumps({"tag_name": tag}).encode()
        suite = b'name = "S"\ndescription = "D"\nactions = ["github://acme/mail/actions/say@1.0.0"]\n'
        forge.disturb(
            *(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text) for text in (body, suite))
        )

        answer = own.ask("POST", "/v1/suites", {"source": "github://acme/mail/suite.toml@latest"})

        assert word(answer) in ("invalid_request", "capability_denied"), answer.body
        forge._disturbed.clear()


def test_an_action_text_with_the_users_edits_is_not_shown_as_signed(own: DaemonHome, publisher: Publisher) -> None:
    """The publisher signed the fetched text, but not the text that includes the user's edits."""
    pin = publisher.connector("1.0.0")
    install(own, fetched(own, "action", publisher.action("say", "1.0.0", [pin], gated=True)))
    publisher.action("say", "1.1.0", [pin], gated=True)
    as_published = fetched(own, "update", "say")
    file = own.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Says it.", "Mine."), encoding="utf-8")

    edited = fetched(own, "update", "say")

    words = [parts(job)[0]["signature"] for job in (as_published, edited)]
    assert words[0].startswith("verified: ")
    assert words[1].startswith("EDITED HERE, not as published")


def test_an_update_shows_which_of_the_users_edits_it_removes(
    signed: DaemonHome, publisher: Publisher, approver: Approver
) -> None:
    """The user had added an approval rule, which needed no consent; the update must not remove it silently."""
    pin = publisher.connector("1.0.0")
    job = fetched(signed, "action", publisher.action("say", "1.0.0", [pin]))
    approver.decide(signed, asked_about(signed, job))
    file = signed.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("required = false", "required = true"), encoding="utf-8")
    publisher.action("say", "1.1.0", [pin])

    job = fetched(signed, "update", "say", theirs=True)
    asked = asked_about(signed, job)
    subject = approver.shown(signed, asked)["subject"]

    assert {"where": "approval.required", "before": "true", "after": "false", "widens": True} in subject["changes"]
    assert approver.decide(signed, asked).body["status"] == "completed"
