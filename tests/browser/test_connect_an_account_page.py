"""The page that connects an account, followed as it stands: its commands at a terminal, a person in a browser, a sent message.

Google's names lead to servers of the test, on their own ports and over TLS: a real OpenID provider where people sign in, and
an API that accepts a token if that provider does. The service is the catalogue's. What the provider issued is then searched
for in all output of the commands and every file of the reader's home.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.person import agrees, signs_in
from tests.browser.test_commands import Desktop
from tests.cli.command import Answers, Command, Said
from tests.e2e.test_tutorial import Command as Typed
from tests.e2e.test_tutorial import missing, steps
from tests.support.browser import Browser, needs_browser
from tests.support.canary import find, scan
from tests.support.google import NAMES, SCOPES, Access, GoogleServer
from tests.support.names import Names
from tests.support.provider import GOOGLE_ROUTES, Provider, Registered
from tests.support.upstream import Authority

pytestmark = [pytest.mark.slow, pytest.mark.jail, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "connect-an-account.md"
READER = "reader@example.com"
PASSPHRASE = "a passphrase of a reader"
APPLICATION = Registered("1234567890-reader.apps.googleusercontent.com", "GOCSPX-the-secret-of-a-reader")
PROVIDERS = ("accounts.google.com", "oauth2.googleapis.com")
ANSWERS: dict[str, Answers] = {
    "aileron add google": [
        ("New vault passphrase: ", PASSPHRASE),
        ("again: ", PASSPHRASE),
        ("Which actions? [1-3, Enter for 2] ", ""),
        ("Open this page? [y/N] ", "n"),
    ],
    "aileron approve": [("[y/N]", "y")],
    "aileron remove google": [("[y/N] ", "y")],
}
"""Replies that the reader types, by the beginning of the command."""
COMMAND_S = 60.0


class Reader:
    """A reader who follows the page, with a home, a terminal and a browser."""

    def __init__(self, folder: Path, machine: Names, browser: Browser) -> None:
        self.home = folder / ".aileron"
        self._folder = folder
        self._browser = browser
        self._desktop = Desktop(folder)
        (folder / "bin").mkdir()
        launcher = folder / "bin" / "aileron"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aileron "$@"\n', encoding="utf-8")
        launcher.chmod(0o755)
        (folder / "google-secret.txt").write_text(f"{APPLICATION.secret}\n", encoding="utf-8")
        begin = f'cd "{folder}" && PATH="{folder / "bin"}:$PATH"; eval "$1"'
        self._type = Command(self.home, program=[*machine.prefix, "bash", "-c", begin, "bash"], deadline_s=COMMAND_S)
        self.printed = ""

    def types(self, command: str) -> Said:
        """Type a command at a terminal; sign in at any address that it opens in a browser."""
        answers = next((found for start, found in ANSWERS.items() if command.startswith(start)), ())
        opens = command.startswith(("aileron add google", "aileron binding reauthorize"))
        person = self._desktop.watch(self._signs_in) if opens else threading.Thread(target=lambda: None)
        if not opens:
            person.start()
        said = self._type.at_terminal(command, answers=answers, BROWSER=self._desktop.opener, NO_COLOR="1")
        person.join(COMMAND_S)
        self.printed += said.out
        return said

    def _signs_in(self, url: str) -> None:
        assert url.startswith("https://accounts.google.com/o/oauth2/v2/auth?")
        signs_in(self._browser, url, READER)
        agrees(self._browser)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide the reader's folder, in a short path: a socket's path is short."""
    path = Path(tempfile.mkdtemp(prefix="reader-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def machine() -> Iterator[Names]:
    """Provide a machine where Google's names lead to the tests' servers."""
    names = {**dict.fromkeys(PROVIDERS, "127.0.0.2"), **dict.fromkeys(NAMES, "127.0.0.3")}
    with Names(names) as made:
        yield made


@pytest.fixture
def google(folder: Path, machine: Names) -> Iterator[Provider]:
    """Start the provider where people sign in."""
    (folder / "provider").mkdir()
    with Provider(
        folder / "provider",
        Authority(folder),
        names=PROVIDERS,
        address="127.0.0.2",
        port=443,
        issuer="https://accounts.google.com",
        routes=GOOGLE_ROUTES,
        scopes=[scope for scope in SCOPES if scope != "openid"],
        clients=[APPLICATION],
        program=machine.prefix,
        connect=machine.connect,
    ) as running:
        yield running


@pytest.fixture
def mail(google: Provider, machine: Names) -> Iterator[GoogleServer]:
    """Start the API, which asks the provider about each token."""

    def knows(token: str) -> Access | None:
        found = google.introspect(token)
        return Access(frozenset(found["scope"].split()), found["exp"]) if found["active"] else None

    tls = google.authority.server_context(*NAMES)
    with GoogleServer(tls, listener=machine.listen("127.0.0.3"), account=READER, knows=knows) as running:
        yield running


@pytest.fixture
def reader(folder: Path, machine: Names, google: Provider) -> Iterator[Reader]:
    """Provide a reader whose machine resolves these names to itself, which their settings allow."""
    needs_browser()
    with Browser([google.certificate], program=machine.prefix, connect=machine.connect) as browser:
        made = Reader(folder, machine, browser)
        made.home.mkdir(mode=0o700)
        hosts = [f"{name}:443" for name in (*PROVIDERS, *NAMES)]
        config = f'[egress]\nprivate = {hosts}\nca_file = "{google.authority.ca_file}"\n'
        (made.home / "config.toml").write_text(config, encoding="utf-8")
        yield made
        made.types("aileron daemon stop")


def test_following_the_how_to_page_sends_an_approved_mail(
    reader: Reader, google: Provider, mail: GoogleServer, folder: Path
) -> None:
    """The mail is sent once, after the decision; no token is in any file or output except the vault."""
    mail.receive(subject="Lunch", text="At one?")
    before_decision: list[int] = []
    status = 0
    for step in steps(PAGE.read_text(encoding="utf-8")):
        assert isinstance(step, Typed), step
        if step.text == "echo $?":
            assert step.shown == (str(status),)
            continue
        if step.text.startswith("aileron approve"):
            before_decision.append(len(mail.outbox))
        said = reader.types(step.text)
        status = said.code
        assert status in ((0, 75) if "is waiting for approval" in said.out else (0,)), f"{step.text}: {said}"
        assert (line := missing(step.shown, said.out)) is None, f"{step.text}: no {line!r} in {said}"

    (sent,) = mail.outbox
    tokens = [value.encode() for value in google.tokens()]
    assert before_decision == [0]
    assert sent.recipients == ("ada@example.com",)
    assert sent.message["Subject"] == "Lunch"
    assert '"subject": "Lunch"' in reader.printed  # of the list
    assert google.asked("token") == [200, 200]  # a sign-in, and another
    assert google.asked("revocation") != []
    assert len(tokens) == 8  # of each a code, an access token, a refresh token and an ID token
    assert find(reader.printed.encode(), *tokens) == []
    assert scan([folder], *tokens) == {}
    assert [google.introspect(token)["active"] for token in google.tokens("access_token")[-1:]] == [False]


def test_the_how_to_page_contains_every_command_that_it_needs(folder: Path) -> None:
    """The reader types only `aileron`, except to print an exit status and to remove the file of the secret."""
    typed = [step.text for step in steps(PAGE.read_text(encoding="utf-8")) if isinstance(step, Typed)]

    assert all(re.match(r"aileron |echo \$\?$|rm google-secret\.txt$", text) for text in typed), typed
