"""`aileron add mail ADDRESS`: servers by DNS and by a domain's file, against Debian's Dovecot and Postfix.

Commands, daemon, mail servers and the name server run in namespaces of their own (tests/support/lab_mail.py), where
/etc/resolv.conf names the test's name server. What is found there is in tests/discovery.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.dovecot import PASSWORD, needs
from tests.support.lab_mail import HOST, way_in

pytestmark = [pytest.mark.jail, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Have all conversations once, and return what was shown, exit codes, and who was asked."""
    needs("dovecot", "dovecot-imapd")
    needs("postfix", "postfix")
    if os.geteuid() != 0:
        pytest.skip("postfix starts as root only")
    done = subprocess.run(way_in(tmp_path_factory.mktemp("lab")), cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _shown(told: dict[str, Any], conversation: str) -> str:
    """Return everything that was shown, on one line."""
    said = told["said"][conversation]
    return " ".join((said["out"] + said["err"]).split())


def test_mail_is_added_by_the_address_alone(told: dict[str, Any]) -> None:
    """Both servers are at one host of the domain, about which the person is asked once. The check logs in and reads."""
    imap, smtp, _ = told["ports"]
    shown = _shown(told, "own")

    assert told["said"]["own"]["code"] == 0, shown
    assert f"the DNS of own.test says that its IMAP server is {HOST}:{imap}" in shown
    assert f"the DNS of own.test says that its SMTP server is {HOST}:{smtp}" in shown
    assert shown.count("Use ") == 1
    assert "mail: 3 folders" in shown
    assert PASSWORD not in told["said"]["own"]["out"]


def test_the_domains_file_gives_servers_and_the_user_name(told: dict[str, Any]) -> None:
    """The person allows the file's host, and a server outside of the domain; Enter takes the user name that the file has."""
    shown = _shown(told, "files")

    assert told["said"]["files"]["code"] == 0, shown
    assert "autoconfig.files.test says that its SMTP server is" in shown
    assert "with STARTTLS" in shown
    assert f"{HOST} is outside of files.test" in shown
    assert "work-mail: 3 folders" in shown
    assert told["said"]["folders"]["code"] == 0


def test_nothing_secret_is_sent_to_the_files_host(told: dict[str, Any]) -> None:
    """A request has the address and no credential."""
    assert told["requests"]
    assert all("emailaddress=mira%40files.test" in request for request in told["requests"])
    assert not any(word in str(told["requests"]).lower() for word in ("authorization", "cookie", "horse"))


@pytest.mark.abuse_case("SA2")
def test_enter_does_not_take_a_server_outside_of_the_domain(told: dict[str, Any]) -> None:
    """The person is asked for the server instead, and gives up."""
    shown = _shown(told, "enter")

    assert told["said"]["enter"]["code"] == 2
    assert f"Use {HOST}? [y/N] IMAP server (incoming mail), such as" in shown


def test_a_name_server_that_does_not_answer_leads_to_the_question_for_the_server(told: dict[str, Any]) -> None:
    """The dialogue says why, and goes on."""
    shown = _shown(told, "silent")

    assert "no name server answered about silent.test; is this machine online?" in shown
    assert "no IMAP server found for mira@silent.test; name it yourself IMAP server (incoming mail), such as" in shown


@pytest.mark.parametrize(
    ("conversation", "why"),
    [
        ("no_resolver", "this machine has no name server (/etc/resolv.conf)"),
        ("offline", "no name server can be reached; is this machine online?"),
    ],
)
def test_a_machine_without_names_says_so_and_asks_for_the_server(
    told: dict[str, Any], conversation: str, why: str
) -> None:
    """The first machine has an empty resolv.conf(5), the second no route to its name server."""
    expected = (
        f"{why} no calendar server found for mira@own.test; name it yourself Server, such as calendar.example.com:"
    )

    assert expected in _shown(told, conversation)


def test_a_script_gets_the_domains_own_servers_after_yes(told: dict[str, Any]) -> None:
    """The control lacks --yes, and nothing is looked for."""
    assert told["said"]["script_own"]["code"] == 0, told["said"]["script_own"]
    assert "s-mail mira@own.test" in _shown(told, "services")
    assert told["said"]["script_unconfirmed"]["code"] == 2
    assert "fix: aileron add mail mira@own.test --yes" in _shown(told, "script_unconfirmed")


@pytest.mark.abuse_case("SA2")
@pytest.mark.parametrize(
    ("conversation", "encryption", "more"),
    [("script_far", "tls", ""), ("script_files", "starttls", " --username mira")],
)
def test_a_script_is_told_the_options_for_servers_elsewhere(
    told: dict[str, Any], conversation: str, encryption: str, more: str
) -> None:
    """The values are ready to be pasted, and no service was added."""
    imap, tls, starttls = told["ports"]
    smtp = tls if encryption == "tls" else starttls
    shown = _shown(told, conversation)

    assert told["said"][conversation]["code"] == 2
    assert f"--login imap+tls://{HOST}:{imap} --login smtp+{encryption}://{HOST}:{smtp}{more}" in shown
    assert " f-mail" not in _shown(told, "services")


def test_a_script_is_told_what_was_not_found(told: dict[str, Any]) -> None:
    """The fix has the options without values."""
    shown = _shown(told, "script_none")

    assert told["said"]["script_none"]["code"] == 2
    assert "no IMAP server and no SMTP server found for mira@none.test" in shown
    assert "--login imap://NAME:PORT --login smtp://NAME:PORT" in shown
