"""The page that lets an agent use git, followed as it stands: its commands at a terminal, at a real sshd with git behind it.

The reader's machine differs in this: the test has a server of its own, on another port and for the test's user.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.cli.command import Answers, Command
from tests.connectors.test_git import clone, commit, tip
from tests.e2e.test_tutorial import ROOT, missing, script, steps
from tests.e2e.test_tutorial import Command as Typed
from tests.support.canary import scan
from tests.support.git_host import git
from tests.support.serving import made_folder
from tests.support.sshd import HOST_KEYS, USER, Sshd, needs_sshd

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.timeout(180), needs_sshd]
PAGE = ROOT / "docs" / "how-to" / "let-an-agent-use-git.md"
PASSPHRASE = "a passphrase of a reader"
APPROVER = "another passphrase of theirs"
ANSWERS: dict[str, Answers] = {
    "aileron approver init": [
        ("[y/N]", "y"),
        ("Vault passphrase: ", PASSPHRASE),
        ("New approver passphrase: ", APPROVER),
        ("again: ", APPROVER),
    ],
    "aileron approve ": [("Approver passphrase: ", APPROVER), ("[y/N]", "y")],
    "aileron remove ": [("[y/N] ", "y")],
}
"""Replies that the reader types, by the beginning of the command; those for `add` need the server."""
COMMAND_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide the reader's folder, in a short path: a socket's path is short."""
    with made_folder("reader-") as path:
        yield path


@pytest.fixture
def repositories(tmp_path: Path) -> Iterator[Path]:
    """Provide the server's repository with one commit; in a short path, which is shown in full."""
    folder = Path(tempfile.mkdtemp(prefix="git-"))
    (folder / "team").mkdir()
    git("init", "-q", "--bare", "-b", "main", "team/website.git", at=folder)
    work = clone(folder / "team" / "website.git", tmp_path)
    (work / "readme.txt").write_text("Welcome\n")
    commit(work, "first")
    git("push", "-q", "origin", "main", at=work)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """Start the server."""
    (tmp_path / "sshd").mkdir()
    with Sshd(tmp_path / "sshd") as running:
        yield running


@pytest.fixture
def reader(folder: Path, sshd: Sshd) -> Iterator[Command]:
    """Provide a shell in the reader's folder, at a terminal."""
    home = folder / ".aileron"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[egress]\nprivate = ["localhost:{sshd.port}"]\n')
    (folder / "bin").mkdir()
    launcher = folder / "bin" / "aileron"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aileron "$@"\n')
    launcher.chmod(0o755)
    begin = f'cd "{folder}" && PATH="{folder / "bin"}:$PATH"; eval "$1"'
    made = Command(home, program=["bash", "-c", begin, "bash"], deadline_s=COMMAND_S)
    yield made
    made.at_terminal("aileron daemon stop")


@pytest.mark.abuse_case("LG4")
def test_following_the_how_to_page_leads_to_approved_commits(
    reader: Command, sshd: Sshd, repositories: Path, folder: Path
) -> None:
    """The test types every command in order. The server has the approved commits, with the ids that were shown, and
    nothing earlier.
    """
    website = repositories / "team" / "website.git"
    text = PAGE.read_text(encoding="utf-8").replace("team/website.git", str(website))
    adding: Answers = [
        ("New vault passphrase: ", PASSPHRASE),
        ("again: ", PASSPHRASE),
        ("Git server, such as git.example.com: ", f"localhost:{sshd.port}"),
        ("Which actions? [1-3, Enter for 2] ", ""),
        ("User name: ", USER),
        ("Is it the same? [y/N] ", "y"),
        ("File of the private key, without a passphrase: ", "deploy-key"),
        ("(Enter to skip): ", str(website)),
    ]
    tips, status, printed, secret = [tip(repositories, repository="team/website.git")], 0, "", b""
    for step in steps(text):
        assert isinstance(step, Typed), step
        if step.text == "echo $?":
            assert step.shown == (str(status),)
            continue
        if step.text.startswith("aileron approve "):
            assert tip(repositories, repository="team/website.git") == tips[-1]
        if step.text.startswith("aileron remove "):
            assert [scan([folder], part) for part in secret.splitlines()[3:5]] == [{}, {}]
        answers = next(
            (found for start, found in {**ANSWERS, "aileron add git": adding}.items() if step.text.startswith(start)),
            (),
        )
        said = reader.at_terminal(step.text, answers=answers, NO_COLOR="1")
        status, printed = said.code, printed + said.out
        assert status in ((0, 75) if "is waiting for approval" in said.out else (0,)), f"{step.text}: {said}"
        left = re.sub(
            r"[^\n]*\x1b\[K", "", said.out
        )  # of a command that takes its time, without the clock that it shows
        assert (line := missing(step.shown, left)) is None, f"{step.text}: no {line!r} in {said}"
        if step.text.startswith("ssh-keygen"):
            secret = (folder / "deploy-key").read_bytes()
            sshd.allow(asyncssh.import_private_key(secret))
        if step.text.startswith("aileron approve "):
            tips.append(tip(repositories, repository="team/website.git"))
            assert tips[-1] in said.out.replace("\n", ""), said

    (folder / "deploy-key").write_bytes(secret)
    shown = next(key for key in sshd.host_keys.values() if key.get_fingerprint() in printed)
    key = " ".join(shown.export_public_key().decode().split()[:2])
    own = (
        script(text)
        .replace("ssh://git.example.com:22", f"ssh://localhost:{sshd.port}")
        .replace("ssh-ed25519 AAAA…", key)
    )
    for step in steps(own.replace("--username git", f"--username {USER}")):
        assert isinstance(step, Typed)
        said = reader.at_terminal(
            step.text, answers=[("Approver passphrase: ", APPROVER), ("(Enter to skip): ", "")], NO_COLOR="1"
        )
        assert said.code == 0, (step, said)
    (folder / "deploy-key").unlink()
    assert "refs/heads/main" in reader.at_terminal(f"aileron run git-list-refs repository={website}").out

    assert len(set(tips)) == 3
    assert any(sshd.host_keys[name].get_fingerprint() in printed for name in HOST_KEYS)
    assert git("log", "--format=%s", "main", at=website).splitlines() == [
        "Say who made this",
        "Greet everybody",
        "first",
    ]
    for part in secret.splitlines()[3:5]:
        assert part.decode() not in printed
        assert scan([folder], part) == {}
    assert os.listdir(folder / "website") != []
