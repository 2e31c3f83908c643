"""The git connector as it is released: its own manifest and actions, a real jail, and Debian's sshd with git behind it.

connector ── jail ── frames ── daemon ── the login's process ── ssh ── sshd ── git

A person approves each push. The private key is in the vault, and in the end nowhere else. Not here: what git's operations do
(tests/connectors/test_git.py), SSH's attacks (tests/logins/test_ssh.py).
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
from aileron.registry.build import build
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
    """A server with one key that it lets in, a home that has it, and a person who decides."""

    sshd: Sshd
    home: DaemonHome
    person: Approver
    repositories: Path

    def path(self, name: str = "site.git") -> str:
        """As the server has it."""
        return str(self.repositories / name)

    def run(self, action: str, **args: Any) -> Any:
        """The result of an action that is not gated."""
        answer = self.home.run(action, args)
        assert answer.status == 200, answer.body
        return answer.body["result"]

    def ask(self, action: str, **args: Any) -> str:
        """The question about an action that is gated."""
        answer = self.home.run(action, args)
        assert answer.status == 202, answer.body
        return str(answer.body["approval_id"])

    def preview(self, question: str) -> dict[str, str]:
        """What the person sees, by label."""
        shown = self.person.preview(self.home, question)
        assert shown["fields"] is not None, shown
        return {line["label"]: line["value"] for line in shown["fields"]}

    def decide(self, question: str, decision: str) -> dict[str, Any]:
        """What came of it."""
        decided = self.person.decide(self.home, question, decision)
        assert decided.status == 200, decided.body
        return self.home.result({"approval_id": question}, wait=30.0)


def key_lines(sshd: Sshd) -> list[bytes]:
    """Lines of the private key that tell it: its middle ones."""
    return sshd.client_key.export_private_key().splitlines()[3:5]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Everything as the README has it, git's version 2 too; and at the end no part of the key is in any file of the home."""
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
    """Each test begins with the repository as it was."""
    kept = office.repositories / "kept"
    if not kept.exists():
        shutil.copytree(office.repositories / "site.git", kept)
    yield
    shutil.rmtree(office.repositories / "site.git")
    shutil.copytree(kept, office.repositories / "site.git")


def test_a_repository_is_read_without_a_person(office: Office) -> None:
    """Refs, files, a file, history, a diff, a bundle: by the key that is told nobody, and on record with the binding."""
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
    assert [one["path"] for one in files["entries"]] == ["docs", "docs/logo.bin", "readme.txt"]
    assert file["text"] == "line 0\nline 1\nline 2\n"
    assert [one["subject"] for one in log["commits"]] == ["number 3", "number 2"]
    assert shown["files"][0]["added"] == 1
    assert base64.b64decode(fetched["bundle"]).startswith(b"# v2 git bundle\n")
    assert (sending["method"], sending["credential"]) == ("SSH", "login/git/me")
    assert sending["path"] == f"git-upload-pack '{office.path()}'"


def test_an_approved_push_lands_with_the_id_that_was_shown(office: Office) -> None:
    """Nothing is pushed to ask, and a preview executes nothing that writes."""
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


def test_a_denied_push_leaves_the_branch(office: Office) -> None:
    """And nothing was executed at the server that could write."""
    before, sessions = tip(office.repositories), office.sshd.log.count("git-receive-pack")
    question = office.ask("push-commit", **change(office.repositories, repository=office.path()))
    office.preview(question)
    done = office.decide(question, "deny")

    assert done["status"] == "denied", done
    assert tip(office.repositories) == before
    assert office.sshd.log.count("git-receive-pack") == sessions


def test_a_branch_that_moved_while_the_person_decided_is_not_touched(office: Office, tmp_path: Path) -> None:
    """The push fails and says where the branch is; what somebody else pushed is there."""
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


def test_commits_are_replaced_only_by_the_action_that_says_so(office: Office, tmp_path: Path) -> None:
    """push-bundle has no word for it, and refuses; force-push-branch shows what is lost, and is the other."""
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


def test_a_repository_that_the_server_does_not_have_is_said(office: Office) -> None:
    """In the server's words, as git says them on its standard error."""
    answer = office.home.run("list-git-refs", {"repository": office.path("nothing.git")})

    assert answer.is_error
    assert "not appear to be a git repository" in answer.body["error"]["message"], answer.body


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_key_is_not_in_the_jail(office: Office) -> None:
    """While a push is at the server, whose hook waits for this; what the connector was given is found there."""
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
    """The memory of what is below the daemon and logs in nowhere, looked at until this is in it."""
    assert home.daemon_pid is not None
    daemon, jails = home.daemon_pid, dict[int, bytes]()

    def is_seen() -> bool:
        for pid in descendants_of(daemon):
            if b"aileron.logins" not in command_of(pid):
                jails[pid] = memory_unless_ended(pid)
        return any(until_seen in memory for memory in jails.values())

    wait_until(is_seen, "a jail is seen")
    return jails
