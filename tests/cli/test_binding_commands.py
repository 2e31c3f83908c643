"""`aileron binding`: what a person sees of a credential before, during and after binding; in a script and at a terminal."""

from __future__ import annotations

import json
import re
import signal
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.model.consent import BindingConsent
from tests.cli.command import Command
from tests.cli.person import flat
from tests.cli.questions import ID, asks, subject_question
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error
from tests.support.waiting import wait_text

MAIL = "github://acme/connector-mail"
CONNECTOR: dict[str, Any] = {
    "name": MAIL,
    "version": "1.10.0",
    "hash": "sha256:" + "ab" * 32,
    "hosts": ["mail.example:443"],
    "credential": {
        "kind": "oauth2",
        "scope": "Read and send your mail",
        "scopes": ["mail.read", "mail.send"],
        "provider": "id.example",
        "device": True,
    },
    "imports": ["http"],
    "limits": {"memory_mb": 64},
}
OLDER = {**CONNECTOR, "version": "1.9.0", "hash": "sha256:" + "cd" * 32, "hosts": ["old.example:443"]}
NAME = "oauth2/mail/home"
URL = "https://id.example/authorize?client_id=c&state=s"
REACH = {"hosts": ["mail.example:443"], "scopes": ["mail.read", "mail.send"], "wire": "oauth2", "client": "c at t"}
GRANT = {"scopes": ["mail.read"], "obtained_ms": 1, "account": "mira@example.com", "refreshable": True}
BOUND: dict[str, Any] = {
    "name": NAME,
    "connector": MAIL,
    "kind": "oauth2",
    "username": None,
    "account": "mira@example.com",
    "secret": "mail-home",
    "created_at": "2026-11-21T03:58:00.000Z",
    "expires_at": "2126-11-21T03:58:00.000Z",
    "refreshed_at": None,
    "state": "ok",
    "reach": REACH,
    "grant": GRANT,
    "suspended": [],
    "last_used_at": None,
    "used_by": [{"connector": MAIL, "version": "1.10.0", "suspended": [], "actions": ["send-mail"]}],
}
ENTRY = {
    key: value for key, value in BOUND.items() if key not in ("reach", "grant", "suspended", "last_used_at", "used_by")
}
"""The binding as an entry of a list, and as the result of a sign-in."""
WAITING: dict[str, Any] = {
    "id": "sgn-1",
    "status": "waiting",
    "connector": MAIL,
    "name": NAME,
    "flow": "browser",
    "expires_at": "2126-11-21T04:08:00.000Z",
    "authorize_url": URL,
}
BY_CODE = {
    **{key: value for key, value in WAITING.items() if key != "authorize_url"},
    "flow": "device",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://id.example/device",
    "verification_uri_complete": "https://id.example/device?user_code=WDJB-MJHT",
}
SETUP = ("binding", "setup", MAIL, "--name", NAME)
NO_DISPLAY = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": "", "NO_COLOR": "1"}


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """A daemon with a connector in two versions, an open vault, and a provider where the sign-in is done at the second check."""
    fake.connectors = [CONNECTOR, OLDER]
    fake.passphrase, fake.is_locked = "correct horse battery", False

    def ends(_: Seen) -> Reply:
        fake.bindings[NAME] = BOUND
        return 200, {**WAITING, "status": "done", "result": ENTRY}

    fake.script("POST", "/v1/sign-ins", lambda seen: (200, BY_CODE if seen.body["flow"] == "device" else WAITING))
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, WAITING), ends)
    return fake


@pytest.fixture
def opener(tmp_path: Path) -> Path:
    """A browser: a program that writes down its arguments."""
    program = tmp_path / "a browser"
    program.write_text(f'#!/bin/sh\nfor one in "$@"; do echo "$one"; done > {str(tmp_path)!r}/opened.part\n')
    with program.open("a") as file:
        file.write(f"mv {str(tmp_path)!r}/opened.part {str(tmp_path)!r}/opened\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


# Signing in


def test_setup_shows_what_the_connector_requests_before_its_first_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """The newest version counts: kind, purpose, scopes, hosts and provider come first, then the service's name."""
    said = aileron.at_terminal("binding", "setup", MAIL, answers=[("Service [mail]: ", "\x04")], variables=NO_DISPLAY)
    shown = flat(said).partition("Service")[0]

    assert "wants oauth2: you sign in at id.example; Aileron never sees your password" in shown
    assert "for Read and send your mail scopes mail.read mail.send reaches mail.example:443" in shown
    assert fake.asked("POST") == []


def test_a_person_signs_in_and_sees_what_was_granted(fake: FakeDaemon, aileron: Command) -> None:
    """The command shows the whole address and the time left, then the account, the granted scopes, and those not granted."""
    said = aileron.at_terminal(*SETUP, "--no-browser", variables=NO_DISPLAY)
    shown = flat(said)

    assert said.code == 0, said
    assert fake.asked("POST", "/v1/sign-ins")[0].body == {
        "connector": MAIL,
        "name": NAME,
        "flow": "browser",
    }
    assert f"\n{URL}\n" in said.out
    assert "open this page in a browser on this machine" in shown
    assert " left; press Ctrl-C to cancel" in shown
    assert f"{NAME} {MAIL} acts as mira@example.com" in shown
    assert "granted mail.read NOT granted mail.send requests that need this will fail" in shown
    assert "renewed automatically" in shown
    assert f"to revoke aileron binding revoke {NAME}" in shown
    assert "ssh -L" not in shown  # the address names no port of this machine


def test_the_words_granted_nothing_are_shown_only_if_the_sign_in_requested_scopes(
    fake: FakeDaemon, aileron: Command
) -> None:
    """An empty list of granted scopes means nothing was granted only if scopes were requested."""
    told = []
    for asked in ([], ["mail.read"]):
        bound = {**BOUND, "grant": {**BOUND["grant"], "scopes": []}, "reach": {**BOUND["reach"], "scopes": asked}}

        def ends(_: Seen, bound: dict[str, Any] = bound) -> Reply:
            fake.bindings[NAME] = bound
            return 200, {**WAITING, "status": "done", "result": ENTRY}

        fake.bindings.pop(NAME, None)
        fake.script("GET", "/v1/sign-ins/sgn-1", ends)
        told.append(flat(aileron.at_terminal(*SETUP, "--no-browser", variables=NO_DISPLAY)))

    assert "granted access, without scopes reaches" in told[0]
    assert "granted nothing NOT granted mail.read" in told[1]


def test_a_person_without_a_local_browser_is_told_how_to_forward_the_port(fake: FakeDaemon, aileron: Command) -> None:
    """The ssh command has this sign-in's port; it is not shown if the provider redirects to another host."""
    local = f"{URL}&redirect_uri=http%3A%2F%2Flocalhost%3A41007%2Fcallback"
    for url, is_told in ((local, True), (local.replace("localhost", "b.example"), False), (f"{local}x", True)):
        fake.script("POST", "/v1/sign-ins", (200, {**WAITING, "authorize_url": url}))
        fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "done", "result": ENTRY}))
        fake.bindings[NAME] = BOUND
        said = aileron.at_terminal(*SETUP, "--no-browser", variables=NO_DISPLAY).exits(0)
        assert ("ssh -L 41007:localhost:41007 THIS-MACHINE" in said.out) is is_told


def test_signing_in_with_a_different_account_is_reported(fake: FakeDaemon, aileron: Command) -> None:
    """The browser may still be signed in as somebody else. An unchanged account causes no remark."""
    for was, is_remarked in (("noor@example.com", True), ("mira@example.com", False)):
        fake.bindings[NAME] = {**BOUND, "account": was}
        fake.script("GET", "/v1/sign-ins/sgn-1", lambda _: _done(fake))
        said = aileron("binding", "reauthorize", NAME, "--no-browser").exits(0)
        assert (f"a different account from before ({was})" in said.err) is is_remarked


def _done(fake: FakeDaemon) -> Reply:
    fake.bindings[NAME] = BOUND
    return 200, {**WAITING, "status": "done", "result": ENTRY}


def test_a_device_code_is_used_on_a_machine_without_a_browser(fake: FakeDaemon, aileron: Command) -> None:
    """The code is chosen without --device too, if no browser can be opened and the provider offers codes."""
    for words in ((), ("--device",)):
        fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**BY_CODE, "status": "done", "result": ENTRY}))
        fake.bindings[NAME] = BOUND
        said = aileron.at_terminal(*SETUP, *words, variables=NO_DISPLAY).exits(0)
        assert fake.asked("POST", "/v1/sign-ins")[-1].body["flow"] == "device"
        assert "https://id.example/device\n" in said.out
        assert "and enter the code WDJB-MJHT" in said.out


def test_the_sign_in_address_is_opened_in_an_available_browser(
    fake: FakeDaemon, aileron: Command, opener: Path, tmp_path: Path
) -> None:
    """The browser gets the address as one argument, and the terminal shows it too; it is not opened without a terminal or with
    --no-browser.
    """
    chosen = f"no-such-program:'{opener}' --new %s"

    def is_open() -> Reply:
        wait_text(tmp_path / "opened")
        fake.bindings[NAME] = BOUND
        return 200, {**WAITING, "status": "done", "result": ENTRY}

    fake.script("GET", "/v1/sign-ins/sgn-1", (200, WAITING), (200, WAITING), lambda _: is_open())
    said = aileron.at_terminal(*SETUP, variables={**NO_DISPLAY, "BROWSER": chosen})
    assert (tmp_path / "opened").read_text() == f"--new\n{URL}\n"
    assert "Your browser opens" in said.out
    assert f"\n{URL}\n" in said.out

    (tmp_path / "opened").unlink()
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "done", "result": ENTRY}))
    assert aileron(*SETUP, "--no-browser", BROWSER=chosen).code == 0
    assert aileron.at_terminal(*SETUP, "--no-browser", variables={**NO_DISPLAY, "BROWSER": chosen}).code == 0
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "--help", "javascript:alert(1)", "https://a b", "https://\u0430.example"]
)
def test_only_a_web_address_is_opened_in_the_browser(
    fake: FakeDaemon, aileron: Command, opener: Path, tmp_path: Path, url: str
) -> None:
    """An address that could be a file, an option or a script for the browser is only shown."""
    fake.script("POST", "/v1/sign-ins", (200, {**WAITING, "authorize_url": url}))
    said = aileron.at_terminal(*SETUP, variables={**NO_DISPLAY, "BROWSER": f"'{opener}'"}).exits(0)
    assert "Your browser opens" not in said.out
    assert not (tmp_path / "opened").exists()


def test_a_script_needs_the_option_device_or_no_browser_to_sign_in(fake: FakeDaemon, aileron: Command) -> None:
    """Otherwise no person would see the sign-in; with --no-browser its address goes to standard error."""
    refused = aileron(*SETUP)
    assert (refused.code, refused.err.splitlines()[-1]) == (
        2,
        f"  fix: aileron binding setup {MAIL} --name {NAME} --device",
    )
    assert fake.asked("POST") == []

    said = aileron(*SETUP, "--no-browser")
    assert (said.code, said.out) == (0, f"{NAME}\n")
    assert URL in said.err


def test_setup_with_json_prints_one_object_a_line(fake: FakeDaemon, aileron: Command) -> None:
    """The first object says where to sign in, the second is the result."""
    said = aileron(*SETUP, "--device", "--json")
    first, last = map(json.loads, said.out.splitlines())

    assert (said.code, said.err) == (0, "")
    assert (first["status"], first["user_code"]) == ("waiting", "WDJB-MJHT")
    assert last == ENTRY


def test_interrupting_binding_setup_cancels_its_sign_in(fake: FakeDaemon, aileron: Command) -> None:
    """Ctrl-C, SIGTERM and SIGHUP each tell the daemon, and the exit code is 130."""
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, WAITING))
    fake.script("DELETE", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "cancelled"}))
    said = aileron.at_terminal(
        *SETUP, "--no-browser", answers=[("press Ctrl-C to cancel", "\x03")], variables=NO_DISPLAY
    ).exits(130)
    assert "nothing bound" in said.out
    assert len(fake.asked("DELETE", "/v1/sign-ins/sgn-1")) == 1

    for number, which in enumerate((signal.SIGTERM, signal.SIGHUP), start=2):
        with aileron.start(*SETUP, "--no-browser") as process:
            assert process.stderr is not None
            while URL not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(which)
            process.communicate(timeout=20)
        assert process.returncode == 130
        assert len(fake.asked("DELETE", "/v1/sign-ins/sgn-1")) == number


def test_interrupting_a_sign_in_that_just_succeeded_reports_the_binding(fake: FakeDaemon, aileron: Command) -> None:
    """The provider responded at the same moment, so the command says what is bound."""
    fake.bindings[NAME] = BOUND
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, WAITING))
    fake.script("DELETE", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "done", "result": ENTRY}))
    said = aileron.at_terminal(
        *SETUP, "--no-browser", answers=[("press Ctrl-C to cancel", "\x03")], variables=NO_DISPLAY
    ).exits(0)
    assert NAME in said.out


def test_a_sign_in_that_fails_says_why_and_what_to_do(fake: FakeDaemon, aileron: Command) -> None:
    """The exit code is that of the error's class; a sign-in that was cancelled elsewhere exits with 6."""
    message = "you said no on the provider's page; to try again: aileron binding setup github://acme/connector-mail"
    _, failed = error("binding_failed", 409, message)
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "failed", **failed}))
    said = aileron(*SETUP, "--no-browser")
    assert (said.code, said.out) == (4, "")
    assert said.err.splitlines()[-2:] == [
        "error: you said no on the provider's page; to try again",
        "  fix: aileron binding setup github://acme/connector-mail",
    ]

    fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "cancelled"}))
    assert aileron(*SETUP, "--no-browser").code == 6


def test_text_from_a_provider_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Escape sequences, line ends and bidirectional marks are spelled out in every place."""
    hostile = "\x1b]0;owned\x07\u202eevil\r\nerror: "
    fake.script("POST", "/v1/sign-ins", (200, {**BY_CODE, "user_code": hostile, "verification_uri": hostile}))
    bound = {**BOUND, "account": hostile, "grant": {**GRANT, "scopes": [hostile]}}
    fake.bindings[NAME] = bound
    fake.script("GET", "/v1/sign-ins/sgn-1", (200, {**WAITING, "status": "done", "result": bound}))
    for said in (
        aileron.at_terminal(*SETUP, "--device", variables=NO_DISPLAY),
        aileron.at_terminal("binding", "inspect", NAME, variables=NO_DISPLAY),
        aileron.at_terminal("binding", "list", variables=NO_DISPLAY),
    ):
        assert said.code == 0, said
        assert not {"\x1b", "\x07", "\u202e"} & set(re.sub(r"\x1b\[[01]m", "", said.out))  # a bold title is ours


def test_setup_with_a_stored_secret_refuses_sign_in_options(fake: FakeDaemon, aileron: Command) -> None:
    """A stored secret with --device is a mistake; a stored secret alone is allowed for this kind."""
    fake.secrets["mail-token"] = b"x"

    assert aileron(*SETUP, "--secret", "mail-token", "--device").code == 2
    assert aileron(*SETUP, "--secret", "mail-token").code == 0
    assert fake.asked("POST", "/v1/bindings")[0].body["secret"] == "mail-token"


# Listing and inspecting


def test_bindings_are_listed_with_account_and_state(fake: FakeDaemon, aileron: Command) -> None:
    """Each binding takes one line; at a terminal, a fix follows for those that do not serve."""
    fake.bindings = {
        NAME: BOUND,
        "oauth2/mail/work": {**BOUND, "name": "oauth2/mail/work", "account": None, "state": "failed"},
    }
    assert aileron("binding", "list").out.splitlines() == [
        f"{NAME}\tmira@example.com\tok\t{MAIL}",
        f"oauth2/mail/work\t-\tfailed\t{MAIL}",
    ]
    shown = aileron.at_terminal("binding", "list", variables=NO_DISPLAY).out
    assert "oauth2/mail/work is failed: the provider refused to renew it" in shown
    assert "fix: aileron binding reauthorize oauth2/mail/work" in shown
    listed = [{key: binding[key] for key in ENTRY} for binding in fake.bindings.values()]
    assert aileron("binding", "list", "--json").json == {"bindings": listed}


def test_inspect_shows_the_whole_binding(fake: FakeDaemon, aileron: Command) -> None:
    """The output has the reach, the requested and granted scopes, the form on the wire, the last use and the actions."""
    fake.bindings[NAME] = {**BOUND, "suspended": ["scope mail.delete"], "state": "suspended"}
    lines = dict(line.split("\t", 1) for line in aileron("binding", "inspect", NAME).out.splitlines())
    assert lines["sent as"] == "Authorization: Bearer"  # as check-manifest has it

    assert lines["account"] == "mira@example.com"
    assert (lines["asked for"], lines["granted"], lines["reaches"]) == (
        "mail.read\tmail.send",
        "mail.read",
        "mail.example:443",
    )
    assert lines["new"] == "scope mail.delete"
    assert lines["used by"] == f"{MAIL}@1.10.0: send-mail"
    assert lines["last used"] == "never"
    assert aileron("binding", "inspect", NAME, "--json").json == fake.bindings[NAME]
    assert (
        "fix: aileron binding reauthorize" in aileron.at_terminal("binding", "inspect", NAME, variables=NO_DISPLAY).out
    )
    assert aileron("binding", "inspect", "oauth2/mail/nobody").code == 3


def test_setup_says_that_the_provider_decides_if_a_sign_in_requests_no_scopes(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The command says so before the sign-in begins, because no scopes would look like no permissions."""
    fake.connectors = [{**CONNECTOR, "credential": {**CONNECTOR["credential"], "scopes": []}}]
    said = aileron.at_terminal("binding", "setup", MAIL, answers=[("Service [mail]: ", "\x04")], variables=NO_DISPLAY)

    assert "scopes none: the provider decides reaches" in flat(said)


# Consent to a binding


def test_the_card_of_a_binding_shows_its_account_and_everything_that_it_allows(
    fake: FakeDaemon, aileron: Command
) -> None:
    """A sign-in has account, scopes and application, a stored secret its name; the card says whether a binding is replaced."""
    everything = BindingConsent(
        name=NAME,
        connector=MAIL,
        secret="mail-home",
        username=None,
        reaches=("mail.example:443", "up.example:443"),
        scopes=("mail.read", "mail.send"),
        wire="oauth2",
        client="c at https://id.example/token",
        replaces=True,
        account="mira@example.com",
        commitment="ef" * 32,
    )
    asks(fake, subject_question(everything))
    said = aileron("approval", "show", ID)
    lines = dict(line.split("\t", 1) for line in said.out.splitlines() if "\t" in line)
    assert said.code == 0, said
    assert lines["binding"] == f"{NAME}, replacing the existing one"
    assert lines["allows"] == f"{MAIL} to use the sign-in made just now"
    assert (lines["account"], lines["scopes"]) == ("mira@example.com", "mail.read\tmail.send")
    assert (lines["goes to"], lines["application"]) == ("mail.example:443\tup.example:443", everything.client)
    assert lines["commitment"] == "ef" * 32
    assert "only if you signed in" in lines["value"]

    asks(fake, subject_question(msgspec.structs.replace(everything, scopes=())))
    assert "scopes\tnone: the provider decides" in aileron("approval", "show", ID).out

    stored = msgspec.structs.replace(everything, replaces=False, account=None, commitment=None, client=None, scopes=())
    asks(fake, subject_question(stored))
    plain = aileron("approval", "show", ID).out
    assert f"{MAIL} to use the secret mail-home" in plain
    assert not {"account", "scopes", "commitment"} & {line.split("\t")[0] for line in plain.splitlines()}


# Binding again


def test_rebind_shows_the_new_permissions_before_its_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """A no changes nothing and exits with 75; a yes rebinds. There is no prompt if nothing is new."""
    fake.bindings[NAME] = {**BOUND, "suspended": ["host b.example:443"], "state": "suspended"}
    no = aileron.at_terminal(
        "binding", "rebind", NAME, answers=[("all of this? [y/N] ", "n")], variables=NO_DISPLAY
    ).exits(75)
    assert "new host b.example:443" in flat(no)
    assert fake.asked("PATCH") == []

    yes = [("all of this? [y/N] ", "y")]
    aileron.at_terminal("binding", "rebind", NAME, answers=yes, variables=NO_DISPLAY).exits(0)
    aileron.at_terminal("binding", "rebind", NAME, "--secret", "other", variables=NO_DISPLAY).exits(0)
    assert [seen.body for seen in fake.asked("PATCH")] == [{}, {"secret": "other"}]


@pytest.mark.parametrize("new", ["scope mail.delete", "application d at t, not c at t"])
def test_rebind_does_not_prompt_if_only_a_new_sign_in_can_help(fake: FakeDaemon, aileron: Command, new: str) -> None:
    """The command shows the new permissions and the fix. A stored secret has no provider, so the command prompts."""
    widened = {**BOUND, "suspended": ["host b.example:443", new], "state": "suspended"}
    fake.bindings[NAME] = widened
    refused = aileron.at_terminal("binding", "rebind", NAME, variables=NO_DISPLAY)
    assert (refused.code, fake.asked("PATCH")) == (4, [])
    assert "[y/N]" not in refused.out
    assert f"fix: aileron binding reauthorize {NAME}" in flat(refused)

    fake.bindings[NAME] = {**widened, "grant": None}
    assert (
        aileron.at_terminal(
            "binding", "rebind", NAME, answers=[("all of this? [y/N] ", "y")], variables=NO_DISPLAY
        ).code
        == 0
    )


def test_a_script_rebinds_without_a_prompt_and_logs_the_new_permissions(fake: FakeDaemon, aileron: Command) -> None:
    """Running the command is the consent; the new permissions are on standard error."""
    fake.bindings[NAME] = {**BOUND, "suspended": ["host b.example:443"], "state": "suspended"}
    said = aileron("binding", "rebind", NAME)

    assert (said.code, said.out) == (0, f"{NAME}\n")
    assert "host b.example:443" in said.err


def test_reauthorize_signs_in_again_under_the_same_name(fake: FakeDaemon, aileron: Command) -> None:
    """The new sign-in replaces the binding, after new permissions were shown; a stored secret is refused."""
    fake.bindings[NAME] = {**BOUND, "suspended": ["scope mail.delete"], "state": "suspended"}
    said = aileron("binding", "reauthorize", NAME, "--no-browser").exits(0)
    assert fake.asked("POST", "/v1/sign-ins")[0].body["replace"] is True
    assert said.err.index("scope mail.delete") < said.err.index(URL)

    fake.bindings["basic/notes/me"] = {**BOUND, "name": "basic/notes/me", "kind": "basic", "secret": "pw"}
    refused = aileron("binding", "reauthorize", "basic/notes/me", "--no-browser")
    assert (refused.code, refused.err.splitlines()[-1]) == (2, "  fix: aileron secret set pw")


@pytest.mark.parametrize(("kind", "verb"), [("oauth2", "reauthorize"), ("oauth2_client", "rebind")])
def test_a_new_scope_of_a_credential_kind_without_sign_in_needs_only_consent(
    fake: FakeDaemon, aileron: Command, kind: str, verb: str
) -> None:
    """Aileron gets the tokens of an OAuth client by itself; other kinds need a new sign-in."""
    fake.bindings[NAME] = {**BOUND, "kind": kind, "suspended": ["scope mail.delete"], "state": "suspended"}
    shown = aileron("binding", "inspect", NAME)

    assert f"fix: aileron binding {verb} {NAME}" in shown.out + shown.err


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, "its secret stays in the vault"),
        ("revoked", "also revoked at the provider"),
        ("not offered", "end the access in your account there too"),
        ("failed: it was not reached", "(it was not reached): end the access in your account there"),
    ],
)
def test_revoke_ends_a_binding_and_reports_the_providers_answer(
    fake: FakeDaemon, aileron: Command, said: str | None, told: str
) -> None:
    """The binding ends in the vault whatever the provider answers."""
    answer = {"revoked": True, "removed": NAME, "at_provider": said}
    fake.script("DELETE", "/v1/bindings/oauth2%2Fmail%2Fhome", (200, answer))
    ended = aileron("binding", "revoke", NAME).exits(0)
    assert ended.err.startswith(f"revoked {NAME}\n")
    assert told in ended.err
    assert aileron("binding", "revoke", NAME, "--json").json == answer
