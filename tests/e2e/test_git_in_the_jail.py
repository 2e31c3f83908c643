"""The git connector as it is released: its own manifest and actions, a real jail, and Debian's sshd with git behind it.

connector ── jail ── frames ── daemon ── the login's process ── ssh ── sshd ── git

A person approves each push. The private key is in the vault, and at the end nowhere else. Not here: git's operations
(tests/connectors/test_git.py), attacks on SSH (tests/logins/test_ssh.py).
"""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.login import LoginTarget
from tests.connectors.test_git import bundle, change, clone, commit, tip
from tests.support.approver import Approver, Office
from tests.support.canary import scan
from tests.support.git_host import git, program_of
from tests.support.home import DaemonHome, daemon_home
from tests.support.memories import command_of, descendants_of, memory_unless_ended
from tests.support.sshd import USER, Sshd, needs_sshd, public_line
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jail, needs_sshd]
CONNECTOR = "github://aileron/connector-git"
MARKER = "a message that is looked for in jails"
HOOK = """\
#!/bin/sh
for tenth in $(seq 300); do [ -e {seen} ] && exit 0; sleep 0.1; done
exit 1
"""


@dataclasses.dataclass(frozen=True)
class Repositories(Office):
    """A server that accepts one key, a home that has it, and a person who decides."""

    sshd: Sshd
    repositories: Path

    def path(self, name: str = "site.git") -> str:
        """Return the path of a repository on the server."""
        return str(self.repositories / name)


def key_lines(sshd: Sshd) -> list[bytes]:
    """Return lines of the private key that identify it: its middle ones."""
    return sshd.client_key.export_private_key().splitlines()[3:5]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    """Provide everything as the README has it, with git's version 2; at the end no file of the home has a part of the key."""
    where = tmp_path_factory.mktemp("git")
    (where / "sshd").mkdir()
    repositories = where / "repositories"
    repositories.mkdir()
    git("init", "-q", "--bare", "-b", "main", "site.git", at=repositories)
    work = clone(repositories / "site.git", where)
    (work / "docs").mkdir()
    (work / "docs" / "logo.bin").write_bytes(bytes(256))
    for number in (1, 2, 3):
        (work / "readme.txt").write_text("".join(f"line {line}\n" for line in range(number)))
        commit(work, f"number {number}", day=number)
    git("push", "-q", "origin", "main", at=work)
    git("config", "uploadpack.allowFilter", "true", at=repositories / "site.git")
    with Sshd(where / "sshd", "AcceptEnv GIT_PROTOCOL") as sshd, daemon_home() as home:
        place = f"localhost:{sshd.port}"
        home.reach(place)
        home.unlock()
        home.install(program_of(where), logins=[LoginTarget.parse(f"ssh://{place}")])
        home.store("deploy-key", sshd.client_key.export_private_key())
        details = {"host_key": public_line(sshd.host_keys["ssh-ed25519"])}
        home.bind(CONNECTOR, "login/git/me", "deploy-key", username=USER, details=details)
        home.add_actions(*(where / "git" / "actions").glob("*/action.md"))
        yield Repositories(home, Approver.of(home), sshd, repositories)
        for line in key_lines(sshd):
            assert scan([home.path], line) == {}


@pytest.fixture(autouse=True)
def site(office: Repositories) -> Iterator[None]:
    """Restore the repository after each test."""
    kept = office.repositories / "kept"
    if not kept.exists():
        shutil.copytree(office.repositories / "site.git", kept)
    yield
    shutil.rmtree(office.repositories / "site.git")
    shutil.copytree(kept, office.repositories / "site.git")


def test_a_repository_is_read_without_approval(office: Repositories) -> None:
    """Refs, files, a file, history, a diff and a bundle are read with a key that no connector has; the record names the
    binding.
    """
    repository = {"repository": office.path()}
    refs = office.home.done("git-list-refs", **repository)
    files = office.home.done("git-list-files", **repository, recursive=True)
    file = office.home.done("git-read-file", **repository, path="readme.txt")
    log = office.home.done("git-log", **repository, limit=2)
    shown = office.home.done("git-show-commit", **repository)
    fetched = office.home.done("git-fetch-bundle", **repository)
    answer = office.home.run("git-list-refs", repository)
    events = office.home.events(answer.body["audit_id"])
    sending = next(event for event in events if event["type"] == "egress.sending")

    assert refs["head"] == "refs/heads/main"
    assert [entry["path"] for entry in files["entries"]] == ["docs", "docs/logo.bin", "readme.txt"]
    assert file["text"] == "line 0\nline 1\nline 2\n"
    assert [revision["subject"] for revision in log["commits"]] == ["number 3", "number 2"]
    assert shown["files"][0]["added"] == 1
    assert base64.b64decode(fetched["bundle"]).startswith(b"# v2 git bundle\n")
    assert (sending["method"], sending["credential"]) == ("SSH", "login/git/me")
    assert sending["path"] == f"git-upload-pack '{office.path()}'"


@pytest.mark.abuse_case("LG1", "LG3")
def test_an_approved_push_creates_the_commit_that_was_shown(office: Repositories) -> None:
    """A question pushes nothing, and a preview executes nothing that writes."""
    repositories = office.repositories
    before = tip(repositories)
    question = office.ask("git-push-commit", **change(repositories, repository=office.path()))
    shown = office.preview(question)
    untouched = tip(repositories)
    done = office.decide(question)

    assert untouched == before
    assert shown["From"] == before
    assert shown["Changed files"].splitlines()[-1] == "3 files, +2 -2 lines"
    assert done["status"] == "completed", done
    assert done["result"]["to"] == shown["To"] == tip(repositories)
    git("fsck", "--strict", at=repositories / "site.git")


@pytest.mark.abuse_case("LG3")
def test_a_denied_push_leaves_the_branch_unchanged(office: Repositories) -> None:
    """The server's log shows no command that could write."""
    before, sessions = tip(office.repositories), office.sshd.log.count("git-receive-pack")
    question = office.ask("git-push-commit", **change(office.repositories, repository=office.path()))
    office.preview(question)
    done = office.decide(question, "deny")

    assert done["status"] == "denied", done
    assert tip(office.repositories) == before
    assert office.sshd.log.count("git-receive-pack") == sessions


@pytest.mark.abuse_case("LG2")
def test_a_branch_that_moved_before_the_decision_is_not_changed(office: Repositories, tmp_path: Path) -> None:
    """The push fails and says which commit the branch has now; the other person's push stays."""
    question = office.ask("git-push-commit", **change(office.repositories, repository=office.path()))
    office.preview(question)
    work = clone(office.repositories / "site.git", tmp_path)
    (work / "theirs").write_text("theirs")
    theirs = commit(work, "theirs")
    git("push", "-q", "origin", "main", at=work)
    done = office.decide(question)

    assert done["error"]["class"] == "bad_input"
    assert f"main is at {theirs}" in done["error"]["message"]
    assert tip(office.repositories) == theirs


@pytest.mark.abuse_case("LG2")
def test_only_the_action_git_force_push_replaces_commits(office: Repositories, tmp_path: Path) -> None:
    """git-push-bundle refuses and has no such argument; git-force-push shows what is lost, and replaces it."""
    before = tip(office.repositories)
    work = clone(office.repositories / "site.git", tmp_path)
    git("reset", "-q", "--hard", "HEAD~1", at=work)
    (work / "readme.txt").write_text("rewritten\n")
    rewritten = commit(work, "rewritten")
    args = {"repository": office.path(), "branch": "main", "expected": before, "bundle": bundle(work, "main~1..main")}
    unknown = office.home.run("git-push-bundle", {**args, "force": True})
    refused = office.decide(office.ask("git-push-bundle", **args))
    kept = tip(office.repositories)
    question = office.ask("git-force-push", **args)
    shown = office.preview(question)
    done = office.decide(question)

    assert unknown.body["error"]["class"] == "bad_input"
    assert "does not build on main" in refused["error"]["message"]
    assert kept == before
    assert "number 3" in shown["Lost"]
    assert done["result"]["to"] == shown["To"] == rewritten == tip(office.repositories)


def test_a_missing_git_repository_is_reported_with_the_servers_message(office: Repositories) -> None:
    """The error has the server's words, which git prints on standard error."""
    error = office.home.failed("git-list-refs", repository=office.path("nothing.git"))

    assert "not appear to be a git repository" in error["message"], error


@pytest.mark.abuse_case("LG4")
@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_private_key_is_not_in_the_jails_memory(office: Repositories) -> None:
    """A push waits in a hook of the server during the search; the search finds what the connector was given."""
    hook = office.repositories / "site.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    seen = office.repositories / "seen"
    hook.write_text(HOOK.format(seen=seen))
    hook.chmod(0o755)
    asked = change(office.repositories, repository=office.path(), message=MARKER)
    question = office.ask("git-push-commit", **asked)
    done: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: done.append(office.decide(question)))
    running.start()
    jails = _jails(office.home, MARKER.encode())
    seen.touch()
    running.join(60)

    assert done[0]["status"] == "completed", done
    for line in key_lines(office.sshd):
        assert not any(line in memory for memory in jails.values())


def _jails(home: DaemonHome, until_seen: bytes) -> dict[int, bytes]:
    """Read the memory of the daemon's descendants that make no login, until it contains `until_seen`."""
    assert home.daemon_pid is not None
    daemon, jails = home.daemon_pid, dict[int, bytes]()

    def is_seen() -> bool:
        for pid in descendants_of(daemon):
            if b"aileron.logins" not in command_of(pid):
                jails[pid] = memory_unless_ended(pid)
        return any(until_seen in memory for memory in jails.values())

    wait_until(is_seen, "a jail is seen")
    return jails
