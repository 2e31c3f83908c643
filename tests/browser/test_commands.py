"""The command line at a terminal and in a pipe, with a person in a real browser beside it: set up, sign in again, revoke."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.desk import CONNECTOR, MINE, WORK, Desk
from tests.browser.person import MIRA, NOOR, agrees, signs_in, types_a_code
from tests.cli.command import Answers, Command, Said
from tests.cli.person import INIT, SIGN
from tests.support.browser import Browser
from tests.support.provider import Provider

pytestmark = [pytest.mark.slow, pytest.mark.jail]
PATIENCE_S = 60.0
Person = Callable[[str], None]


class Desktop:
    """The program in `$BROWSER`: it receives one address, which a person waits for in a thread."""

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "opened"
        os.mkfifo(self._pipe)
        program = folder / "browser"
        program.write_text(f'#!/bin/sh\nprintf %s "$1" > "{self._pipe}"\n', encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.opener = str(program)
        self.url = ""

    def watch(self, person: Person) -> threading.Thread:
        """Start a thread in which the person does this with the address that is opened."""

        def wait() -> None:
            self.url = self._pipe.read_text()
            person(self.url)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def desktop(tmp_path: Path) -> Desktop:
    """Provide a desktop with one program."""
    return Desktop(tmp_path)


@pytest.fixture
def run(at_desk: Desk, desktop: Desktop) -> Callable[..., Said]:
    """Return a function that runs a command at a terminal; `person` uses the address that it opens."""
    command = Command(at_desk.home.path, deadline_s=PATIENCE_S)

    def at_terminal(*words: str, person: Person | None = None, answers: Answers = ()) -> Said:
        thread = None if person is None else desktop.watch(person)
        said = command.at_terminal(*words, answers=answers, BROWSER=desktop.opener)
        if thread is not None:
            thread.join(PATIENCE_S)
        return said

    return at_terminal


def _who_signs_in(browser: Browser, account: str = MIRA, answer: str = "allow") -> Person:
    def person(url: str) -> None:
        signs_in(browser, url, account)
        agrees(browser, answer)

    return person


def test_an_account_is_set_up_changed_and_revoked_at_a_terminal(
    at_desk: Desk, browser: Browser, desktop: Desktop, provider: Provider, run: Callable[..., Said]
) -> None:
    """The steps show the full address, the account, a changed account, and that the provider revoked the grant."""
    made = run("binding", "setup", CONNECTOR, "--name", MINE, person=_who_signs_in(browser))
    shown = run("binding", "inspect", MINE)
    used = run("run", "whoami")
    with Browser([provider.certificate]) as other:
        anew = run("binding", "reauthorize", MINE, person=_who_signs_in(other, NOOR))
    used_anew = run("run", "whoami")
    token = provider.tokens("access_token")[-1]
    was_active = provider.introspect(token)["active"]
    revoked = run("binding", "revoke", MINE)

    assert made.code == 0, made
    assert desktop.url.startswith(provider.url("authorization"))
    assert "mail.send" in made.out  # what it asks for, before anything is opened
    assert MIRA in made.out + shown.out
    assert (used.code, MIRA in used.out) == (0, True)
    assert anew.code == 0, anew
    assert NOOR in used_anew.out
    assert "also revoked at the provider" in revoked.out
    assert (was_active, provider.introspect(token)["active"]) == (True, False)
    said = "".join(step.out for step in (made, shown, used, anew, used_anew, revoked))
    assert not [value for value in provider.tokens() if value in said]


def test_the_sign_in_address_is_also_printed_at_the_terminal(
    at_desk: Desk, browser: Browser, run: Callable[..., Said]
) -> None:
    """The address is complete and on a line of its own, for a desktop whose browser did not open."""
    opened: list[str] = []

    def person(url: str) -> None:
        opened.append(url)
        _who_signs_in(browser)(url)

    made = run("binding", "setup", CONNECTOR, "--name", MINE, person=person)

    assert opened[0] in made.out.splitlines()


def test_a_run_without_an_account_offers_to_set_one_up(
    at_desk: Desk, browser: Browser, run: Callable[..., Said]
) -> None:
    """A run at a terminal offers it in place; in a pipe the run is refused with the command."""
    headless = Command(at_desk.home.path)("run", "whoami")
    answers = [("and continue? [y/N]", "y"), ("Service", ""), ("Identity", "mine")]
    said = run("run", "whoami", person=_who_signs_in(browser), answers=answers)

    assert headless.code == 4
    assert f"aileron binding setup {CONNECTOR}" in headless.err
    assert said.code == 0, said
    assert MIRA in said.out


def test_a_denied_sign_in_is_reported_at_the_terminal(
    at_desk: Desk, browser: Browser, run: Callable[..., Said]
) -> None:
    """The error says what to do, and the exit code is 4."""
    said = run("binding", "setup", CONNECTOR, "--name", MINE, person=_who_signs_in(browser, answer="deny")).exits(4)
    assert "access was denied at" in said.out
    assert "aileron binding setup" in said.out


def test_a_device_code_sign_in_works_in_a_script(at_desk: Desk, browser: Browser) -> None:
    """The command prints address and code as one line of JSON, then the result."""
    command = Command(at_desk.home.path)
    with command.start("binding", "setup", CONNECTOR, "--name", MINE, "--device", "--json") as process:
        assert process.stdout is not None
        begun = json.loads(process.stdout.readline())
        types_a_code(browser, begun["verification_uri"], begun["user_code"])
        agrees(browser)
        out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, err
    assert json.loads(out)["account"] == MIRA
    assert at_desk.whoami().body["result"]["account"] == MIRA


def test_a_sign_in_needs_a_signature_if_decisions_are_signed(
    at_desk: Desk, browser: Browser, run: Callable[..., Said]
) -> None:
    """The approver's passphrase comes after the provider's page, and nothing is bound before consent."""
    assert run("approver", "init", answers=INIT).code == 0
    question = "Enter to leave it waiting: "
    left = run(
        *("binding", "setup", CONNECTOR, "--name", WORK), person=_who_signs_in(browser), answers=[(question, "")]
    )
    before = [entry["name"] for entry in at_desk.home.must("GET", "/v1/bindings")["bindings"]]
    signed = [(question, "y"), SIGN]
    made = run("binding", "setup", CONNECTOR, "--name", MINE, person=_who_signs_in(browser), answers=signed)

    assert (left.code, before) == (75, []), left
    assert made.code == 0, made
    assert at_desk.whoami().body["result"]["account"] == MIRA
