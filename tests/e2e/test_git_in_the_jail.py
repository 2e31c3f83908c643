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
from typing import Any, Literal

import pytest

from aileron.model.login import LoginTarget
from aileron.registry.connector_build import build
from tests.connectors.test_git import bundle, change, clone, commit, tip
from tests.support.approver import Approver
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
class Office:
    """A server that accepts one key, a home that has it, and a person who decides."""

    sshd: Sshd
    home: DaemonHome
    person: Approver
    repositories: Path

    def path(self, name: str = "site.git") -> str:
        """Return the path of a repository on the server."""
        return str(self.repositories / name)

    def run(self, action: str, **args: Any) -> Any:
        """Run an action that is not gated, and return its result."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def ask(self, action: str, **args: Any) -> str:
        """Request a gated action, and return its question's id."""
        answer = self.home.run(action, args)
        assert answer.status == 202, answer.body
        return str(answer.body["approval_id"])

    def preview(self, question: str) -> dict[str, str]:
        """Return what the person sees, by label."""
        shown = self.person.preview(self.home, question)
        assert shown["fields"] is not None, shown
        return {line["label"]: line["value"] for line in shown["fields"]}

    def decide(self, question: str, decision: Literal["approve", "deny"]) -> dict[str, Any]:
        """Decide the question, and return its outcome."""
        decided = self.person.decide(self.home, question, decision)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question}, wait=30.0)


def key_lines(sshd: Sshd) -> list[bytes]:
    """Return lines of the private key that identify it: its middle ones."""
    return sshd.client_key.export_private_key().splitlines()[3:5]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
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
        home.configure(f'[egress]\nprivate = ["{place}"]\n')
        home.ask("GET", "/healthz")
        home.unlock()
        archive = home.path / "git.tar.gz"
        archive.write_bytes(build(program_of(where), logins=[LoginTarget.parse(f"ssh://{place}")]).archive)
        home.must("POST", "/v1/connectors", {"path": str(archive)})
        key = sshd.client_key.export_private_key()
        home.must("PUT", "/v1/secrets/deploy-key", {"value_base64": base64.b64encode(key).decode()})
        details = {"host_key": public_line(sshd.host_keys["ssh-ed25519"])}
        binding = {"connector": CONNECTOR, "name": "login/git/me", "username": USER, "secret": "deploy-key"}
        home.must("POST", "/v1/bindings", {**binding, "details": details})
        for path in sorted((where / "git" / "actions").glob("*/action.md")):
            home.must("POST", "/v1/actions", {"text": path.read_text(encoding="utf-8"), "file": str(path)})
        person = Approver()
        person.appoint(home)
        yield Office(sshd, home, person, repositories)
        for line in key_lines(sshd):
            assert scan([home.path], line) == {}


@pytest.fixture(autouse=True)
def site(office: Office) -> Iterator[None]:
    """Restore the repository after each test."""
    kept = office.repositories / "kept"
    if not kept.exists():
        shutil.copytree(office.repositories / "site.git", kept)
    yield
    shutil.rmtree(office.repositories / "site.git")
    shutil.copytree(kept, office.repositories / "site.git")


def test_a_repository_is_read_without_approval(office: Office) -> None:
    """Refs, files, a file, history, a diff and a bundle are read with a key that no connector has; the record names the
    binding.
    """
    repository = {"repository": office.path()}
    refs = office.run("list-git-refs", **repository)
    files = office.run("list-repository-files", **repository, recursive=True)
    file = office.run("read-repository-file", **repository, path="readme.txt")
    log = office.run("git-log", **repository, limit=2)
    shown = office.run("show-commit", **repository)
    fetched = office.run("fetch-git-bundle", **repository)
    answer = office.home.run("list-git-refs", repository)
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


def test_an_approved_push_creates_the_commit_that_was_shown(office: Office) -> None:
    """A question pushes nothing, and a preview executes nothing that writes."""
    repositories = office.repositories
    before = tip(repositories)
    question = office.ask("push-commit", **change(repositories, repository=office.path()))
    shown = office.preview(question)
    untouched = tip(repositories)
    done = office.decide(question, "approve")

    assert untouched == before
    assert shown["From"] == before
    assert shown["Changed files"].splitlines()[-1] == "3 files, +2 -2 lines"
    assert done["status"] == "completed", done
    assert done["result"]["to"] == shown["To"] == tip(repositories)
    git("fsck", "--strict", at=repositories / "site.git")


def test_a_denied_push_leaves_the_branch_unchanged(office: Office) -> None:
    """The server executed nothing that could write."""
    before, sessions = tip(office.repositories), office.sshd.log.count("git-receive-pack")
    question = office.ask("push-commit", **change(office.repositories, repository=office.path()))
    office.preview(question)
    done = office.decide(question, "deny")

    assert done["status"] == "denied", done
    assert tip(office.repositories) == before
    assert office.sshd.log.count("git-receive-pack") == sessions


def test_a_branch_that_moved_before_the_decision_is_not_changed(office: Office, tmp_path: Path) -> None:
    """The push fails and says where the branch is; the other push stays."""
    question = office.ask("push-commit", **change(office.repositories, repository=office.path()))
    office.preview(question)
    work = clone(office.repositories / "site.git", tmp_path)
    (work / "theirs").write_text("theirs")
    theirs = commit(work, "theirs")
    git("push", "-q", "origin", "main", at=work)
    done = office.decide(question, "approve")

    assert done["error"]["class"] == "bad_input"
    assert f"main is at {theirs}" in done["error"]["message"]
    assert tip(office.repositories) == theirs


def test_only_force_push_branch_replaces_commits(office: Office, tmp_path: Path) -> None:
    """push-bundle refuses and has no such argument; force-push-branch shows what is lost, and replaces it."""
    before = tip(office.repositories)
    work = clone(office.repositories / "site.git", tmp_path)
    git("reset", "-q", "--hard", "HEAD~1", at=work)
    (work / "readme.txt").write_text("rewritten\n")
    rewritten = commit(work, "rewritten")
    args = {"repository": office.path(), "branch": "main", "expected": before, "bundle": bundle(work, "main~1..main")}
    unknown = office.home.run("push-bundle", {**args, "force": True})
    refused = office.decide(office.ask("push-bundle", **args), "approve")
    kept = tip(office.repositories)
    question = office.ask("force-push-branch", **args)
    shown = office.preview(question)
    done = office.decide(question, "approve")

    assert unknown.body["error"]["class"] == "bad_input"
    assert "does not build on main" in refused["error"]["message"]
    assert kept == before
    assert "number 3" in shown["Lost"]
    assert done["result"]["to"] == shown["To"] == rewritten == tip(office.repositories)


def test_a_missing_repository_is_reported(office: Office) -> None:
    """The error has the server's words, which git prints on standard error."""
    answer = office.home.run("list-git-refs", {"repository": office.path("nothing.git")})

    assert answer.is_error
    assert "not appear to be a git repository" in answer.body["error"]["message"], answer.body


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_private_key_is_not_in_the_jails_memory(office: Office) -> None:
    """A push waits in a hook of the server during the search; the search finds what the connector was given."""
    hook = office.repositories / "site.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    seen = office.repositories / "seen"
    hook.write_text(HOOK.format(seen=seen))
    hook.chmod(0o755)
    asked = change(office.repositories, repository=office.path(), message=MARKER)
    question = office.ask("push-commit", **asked)
    done: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: done.append(office.decide(question, "approve")))
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
