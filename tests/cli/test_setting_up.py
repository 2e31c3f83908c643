"""Actions, connectors, bindings, secrets and the vault: in a script without a person, and with a person at a terminal."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aileron.registry.content import content_hash
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon, error
from tests.support.home import probe_action

PROBE = Path(__file__).parents[1] / "support" / "connectors" / "probe"
GOOGLE = Path(__file__).parents[2] / "connectors" / "google"
CALDAV: dict[str, Any] = {
    "name": "github://aileron/connector-caldav",
    "version": "0.1.0",
    "hash": "sha256:" + "ab" * 32,
    "hosts": ["calendar.example:443"],
    "credential": {"kind": "basic", "scope": "read and write events"},
    "imports": ["http", "log"],
    "limits": {"memory_mb": 64, "timeout_s": 30, "subprocess": False},
}
ADVICE = {**CALDAV, "name": "github://you/connector-advice", "hash": "sha256:" + "cd" * 32, "credential": None}
PUBLISHED = "github://acme/aileron-connector-google/actions/list-recent-emails@1.0.0"
PASSPHRASE = "correct horse battery"
SECRET = "hunter2-hunter2"


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """A daemon with two connectors and an open vault."""
    fake.connectors = [CALDAV, ADVICE]
    fake.passphrase, fake.is_locked = PASSPHRASE, False
    return fake


# Actions


def test_an_action_is_added_from_its_file(fake: FakeDaemon, aileron: Command, tmp_path: Path) -> None:
    """The file's text is sent and the action's name printed; the connectors that were bound are named."""
    file = tmp_path / "a.md"
    file.write_text("+++\nü\n+++\n")
    said = aileron("action", "add", str(file))

    assert fake.asked("POST")[0].body == {"text": "+++\nü\n+++\n", "file": str(file)}
    assert (said.code, said.out) == (0, "added\n")
    assert said.err.startswith("bound github://a/b@1.0.0 to sha256:abab")


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [(None, 3, "no such file"), (b"\xff", 2, "not valid UTF-8"), (b"x" * ((1 << 20) + 1), 2, "larger than")],
)
def test_a_file_that_cannot_be_an_action_is_not_sent_to_the_daemon(
    fake: FakeDaemon, aileron: Command, tmp_path: Path, content: bytes | None, code: int, told: str
) -> None:
    """The error names the file."""
    file = tmp_path / "a.md"
    if content is not None:
        file.write_bytes(content)
    said = aileron("action", "add", str(file)).exits(code)
    assert str(file) in said.err
    assert told in said.err
    assert fake.seen == []


def test_action_files_are_validated_without_a_daemon(aileron: Command, tmp_path: Path, home: Path) -> None:
    """Valid files are on standard output, problems on standard error with file and line; the exit code is that of the worst."""
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(probe_action("fetch"))
    bad.write_text(probe_action("fetch").replace('"1.0.0"', '"one"', 1))
    said = aileron("action", "validate", str(good), str(bad))

    assert (said.code, said.out) == (2, f"{good}: ok, fetch 1.0.0\n")
    assert said.err.startswith(f"error: {bad}:3: ")
    assert aileron("action", "validate", str(good)).code == 0
    assert not home.exists()


def test_actions_are_listed_with_their_state(fake: FakeDaemon, aileron: Command) -> None:
    """A broken file has its problem in place of the intent; an action without a publisher is the person's own."""
    fake.add_action("send", gated=True, source=PUBLISHED)
    fake.add_action("read", enabled=False)
    fake.actions["bad"] = {"name": "bad", "enabled": True, "problem": "bad.md:3: no"}

    assert aileron("action", "list").out.splitlines() == [
        f"send\t1.0.0\tenabled, gated\tdo send\t{PUBLISHED}",
        "read\t1.0.0\tdisabled\tdo read\tyour own",
        "bad\t-\tbroken\tbad.md:3: no\t-",
    ]
    listed = aileron("action", "list", "--json").json["actions"]
    assert [(entry["name"], entry.get("source")) for entry in listed] == [
        ("send", PUBLISHED),
        ("read", None),
        ("bad", None),
    ]


def test_action_list_shows_sources_without_breaking_80_columns(fake: FakeDaemon, aileron: Command) -> None:
    """They are a column if every row fits; otherwise each row has its intent and source below it, whole and indented."""
    fake.add_action("send", source="hub://mail/send@1.0.0")
    fake.add_action("read")
    short = aileron.at_terminal("action", "list", TERM="dumb").out.splitlines()
    fake.add_action("list-recent-emails", gated=True, source=PUBLISHED)
    long = aileron.at_terminal("action", "list", TERM="dumb").out.splitlines()

    assert [line.split() for line in short] == [
        ["NAME", "VERSION", "STATE", "INTENT", "SOURCE"],
        ["send", "1.0.0", "enabled", "do", "send", "hub://mail/send@1.0.0"],
        ["read", "1.0.0", "enabled", "do", "read", "your", "own"],
    ]
    assert long[-3:] == ["list-recent-emails  1.0.0    enabled, gated", "  do list-recent-emails", f"  {PUBLISHED}"]
    assert long[3:6] == ["send                1.0.0    enabled", "  do send", "  hub://mail/send@1.0.0"]
    assert all(len(line) <= 80 for line in long)
    assert (
        f"source\n         {PUBLISHED}\n"
        in aileron.at_terminal("action", "show", "list-recent-emails", TERM="dumb").out
    )
    assert "source\tyour own\n" in aileron("action", "show", "read").out


def test_a_list_command_without_entries_prints_a_hint_only_at_a_terminal(fake: FakeDaemon, aileron: Command) -> None:
    """Standard output is empty, and the exit code is 0."""
    piped, shown = aileron("action", "list"), aileron.at_terminal("action", "list")

    assert (piped.code, piped.out, piped.err) == (0, "", "")
    assert "aileron action add FILE" in shown.out


def test_each_row_of_an_actions_prose_starts_with_a_bar(fake: FakeDaemon, aileron: Command) -> None:
    """An author's long or indented line must not start at the margin like output of Aileron."""
    prose = "A line " + "of many words " * 20 + "\n\n    - indented " + "and long " * 20
    fake.add_action("send", body=prose, hosts=[])
    shown = aileron.at_terminal("action", "show", "send", NO_COLOR="1").out.rstrip("\n").split("\n")
    rows = shown[next(number for number, row in enumerate(shown) if "A line" in row) :]

    assert len(rows) > 6
    assert all(row.startswith("  │ ") and len(row) <= 80 for row in rows), rows
    assert " ".join(" ".join(row.removeprefix("  │ ") for row in rows).split()) == " ".join(prose.split())


def test_an_action_is_shown_with_inputs_and_prose(fake: FakeDaemon, aileron: Command) -> None:
    """Inputs are a table at a terminal, and the file's own words stand behind bars."""
    fake.add_action("send", "to:string", "copies:integer?")
    shown = aileron.at_terminal("action", "show", "send", NO_COLOR="1").out

    assert re.search(r"^reaches +a\.example:443$", shown, re.MULTILINE)
    assert re.search(r"^to +string +yes +The to\.$", shown, re.MULTILINE)
    assert re.search(r"^copies +integer +no ", shown, re.MULTILINE)
    assert "  │ # Prose" in shown
    assert aileron("action", "show", "send", "--json").json["body"] == "# Prose\n"


def test_an_action_is_disabled_enabled_and_removed(fake: FakeDaemon, aileron: Command) -> None:
    """Messages are on standard error; removing an unknown action exits with 3."""
    fake.add_action("send")

    for verb, is_enabled in (("disable", False), ("enable", True)):
        assert aileron("action", verb, "send").err == f"send is {verb}d\n"
        assert fake.actions["send"]["enabled"] is is_enabled
    assert aileron("action", "remove", "send").code == 0
    assert aileron("action", "remove", "send").code == 3


def test_a_suspended_action_is_marked_and_can_be_resumed(fake: FakeDaemon, aileron: Command) -> None:
    """The list and the details say so. A script gets the question's id; with --unchanged there is no question."""
    fake.add_action("send")
    fake.actions["send"]["suspended"] = ["send_mail"]
    question = {
        "approval_id": "act-1",
        "kind": "tool_change",
        "digest": "sha256:ab",
        "review_url": "http://localhost:1/x",
    }
    waits = {
        "status": "pending_approval",
        "message": "m",
        "expires_at": "2026-11-21T03:58:00.000Z",
        "poll_after_ms": 2000,
    }
    asked = (202, {"status": "pending_approval", "approvals": [{**question, **waits}]})
    fake.script("POST", "/v1/actions/send/resume", asked)
    waiting = aileron("action", "resume", "send")
    fake.script("POST", "/v1/actions/send/resume", (200, {"name": "send", "operations": ["send_mail"]}))
    lifted = aileron("action", "resume", "send", "--unchanged")

    assert "suspended: the server changed this tool" in aileron("action", "list").out
    assert "send_mail: aileron action resume send" in aileron("action", "show", "send").out
    assert (waiting.code, waiting.out) == (75, "act-1\n")
    assert (lifted.code, "send can run again" in lifted.err) == (0, True)
    assert [request.body for request in fake.asked("POST")] == [{}, {"unchanged": True}]


# Connectors


def test_a_build_names_the_files_that_it_left_out_and_why(aileron: Command, tmp_path: Path) -> None:
    """Otherwise a missing module would only fail to import, and a published data file would go unnoticed."""
    source = tmp_path / "probe"
    shutil.copytree(PROBE, source)
    (source / "lib").mkdir()
    for name in (
        "lib/__init__.py",
        "lib/table.json",
        "lib/_speed.abi3.so",
        "note\x1b[2J.txt",
        *map("{}.md".format, range(9)),
    ):
        (source / name).touch()
    told = ("connector", "build", str(source), "--host", "localhost:8443", "-o", str(tmp_path / "probe.tar.gz"))
    said, data = aileron(*told), aileron(*told, "--json").json

    assert "data files included: lib/table.json\n" in said.err
    assert "left out (compiled: a zip loads Python source only; take a version in pure Python" in said.err
    assert "lib/_speed.abi3.so\n" in said.err
    assert "7.md, and 2 more (see `connector build --json`)\n" in said.err
    assert "\x1b" not in said.err
    assert data["data"] == ["lib/table.json"]
    assert {file["path"] for file in data["left_out"]} >= {"lib/_speed.abi3.so", "8.md", "note\x1b[2J.txt"}
    assert all(file["reason"] for file in data["left_out"])


def test_a_connector_is_built_without_a_daemon(aileron: Command, tmp_path: Path, home: Path) -> None:
    """The archive has two files, and the printed hash is theirs."""
    file = tmp_path / "probe.tar.gz"
    said = aileron("connector", "build", str(PROBE), "--host", "localhost:8443", "-o", str(file), "--json")
    with tarfile.open(file) as archive:
        program, manifest = (archive.extractfile(name).read() for name in ("connector", "manifest.toml"))  # type: ignore[union-attr]

    assert said.json == {
        "file": str(file),
        "hash": content_hash(program, manifest),
        "bytes": file.stat().st_size,
        "data": [],
        "left_out": [],
        "left_out_unnamed": 0,
    }
    assert b'"localhost:8443"' in manifest
    assert [path.name for path in tmp_path.iterdir()] == ["probe.tar.gz"]
    assert not home.exists()


def test_a_publishers_client_secret_is_built_in_and_never_printed(aileron: Command, tmp_path: Path) -> None:
    """The secret comes from a file and is only in the archive; without it the build fails and names the placeholder."""
    file, secret = tmp_path / "google.tar.gz", "GOCSPX-hunter2-hunter2"
    (tmp_path / "secret").write_text(f"{secret}\n")
    words = ["connector", "build", str(GOOGLE), "--client-id", "12-ab.apps.example.com", "-o", str(file)]
    without = aileron(*words)
    said = aileron(*words, "--client-secret-file", str(tmp_path / "secret"), "--json")
    with tarfile.open(file) as archive:
        manifest = archive.extractfile("manifest.toml").read().decode()  # type: ignore[union-attr]

    assert (without.code, "client_secret is 'bound-at-release'" in without.err) == (2, True)
    assert (said.code, f'client_secret = "{secret}"' in manifest) == (0, True)
    assert "bound-at-release" not in manifest
    assert secret not in said.out + said.err + without.out + without.err
    missing = aileron(*words, "--client-secret-file", str(tmp_path / "nowhere"))
    assert (missing.code, "--client-secret-file" in missing.err) == (2, True)
    alone = aileron("connector", "build", str(GOOGLE), "--client-secret-file", str(tmp_path / "secret"))
    assert (alone.code, "requires --client-id" in alone.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "localhost"], "--host 'localhost' has no port"),
        (["--host", "a.example:1", "--host", "*:1"], "wildcards"),
        ([], "bound-at-build"),
        (["--host", "a.example:1", "-o", "/nowhere/x.tar.gz"], "cannot write /nowhere/x.tar.gz"),
    ],
)
def test_a_failed_connector_build_leaves_no_file(aileron: Command, tmp_path: Path, words: list[str], told: str) -> None:
    """The exit code is 2, and the error says what is wrong."""
    said = aileron("connector", "build", str(PROBE), "-o", str(tmp_path / "x.tar.gz"), *words).exits(2)
    assert told in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_connector_is_installed_by_its_absolute_path(fake: FakeDaemon, aileron: Command, tmp_path: Path) -> None:
    """The daemon has another working directory; the hosts that the connector may reach are shown."""
    (tmp_path / "c").mkdir()
    said = aileron("connector", "install", str(tmp_path / "c" / ".." / "c"))

    assert fake.asked("POST")[0].body == {"path": str((tmp_path / "c").resolve())}
    assert "reaches\tcalendar.example:443\n" in said.out
    assert "credential\tbasic (read and write events)\n" in said.out
    assert said.err == "installed, unsigned\n"
    assert aileron("connector", "install", "/nowhere").code == 3


@pytest.mark.parametrize(
    "wanted", [CALDAV["name"], f"{CALDAV['name']}@0.1.0", CALDAV["hash"], "ababab", "sha256:ababab"]
)
def test_a_connector_can_be_named_by_name_or_name_and_version_or_the_start_of_its_hash(
    fake: FakeDaemon, aileron: Command, wanted: str
) -> None:
    """The ways are name, name with version, hash, and the start of a hash."""
    assert aileron("connector", "show", wanted, "--json").json == CALDAV


def test_an_unknown_or_ambiguous_connector_is_reported(fake: FakeDaemon, aileron: Command) -> None:
    """The error lists the names that tell several apart; no connector is removed by a guess."""
    other = {**CALDAV, "version": "0.2.0", "hash": "sha256:" + "ef" * 32}
    fake.connectors = [CALDAV, other]
    none, several = aileron("connector", "remove", "github://a/b"), aileron("connector", "remove", str(CALDAV["name"]))

    assert (none.code, several.code) == (3, 2)
    assert "@0.2.0 is sha256:efef" in several.err
    assert aileron("connector", "remove", "ab").code == 3  # two digits are a slip of the finger
    assert fake.asked("DELETE") == []
    assert aileron("connector", "remove", f"{CALDAV['name']}@0.2.0").code == 0
    assert fake.connectors == [CALDAV]


# Secrets


def test_secret_set_reads_the_secret_from_standard_input(fake: FakeDaemon, aileron: Command) -> None:
    """The value can be any bytes; one line end at its end is dropped, and it is not printed."""
    for given, stored in (
        (b"a-secret\n", b"a-secret"),
        (b"a-secret\r\n", b"a-secret"),
        (b"\x00\xff\n\n", b"\x00\xff\n"),
    ):
        said = aileron("secret", "set", "token", given=given)

        assert (said.code, said.out, said.err) == (0, "", "stored token\n")
        assert fake.secrets["token"] == stored


@pytest.mark.parametrize("given", [b"", b"\n", b"x" * (65 * 1024)])
def test_an_empty_or_oversized_secret_is_not_stored(fake: FakeDaemon, aileron: Command, given: bytes) -> None:
    """The exit code is 2."""
    assert aileron("secret", "set", "token", given=given).code == 2
    assert fake.secrets == {}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_standard_stream_is_not_treated_as_a_terminal(fake: FakeDaemon, home: Path, closed: str) -> None:
    """Some supervisors start programs with closed streams: a command must not prompt, and may still succeed."""
    words = f"{sys.executable} -m aileron"
    environment = {**os.environ, "AILERON_HOME": str(home)}
    asked = subprocess.run(["sh", "-c", f"{words} secret set token <&- {closed}"], env=environment, timeout=30)
    told = subprocess.run(["sh", "-c", f"{words} vault status {closed}"], env=environment, timeout=30)

    assert (asked.returncode, told.returncode) == (2, 0)
    assert fake.secrets == {}


def test_secret_set_at_a_terminal_reads_the_secret_without_echo(fake: FakeDaemon, aileron: Command) -> None:
    """The value comes from the terminal."""
    said = aileron.at_terminal("secret", "set", "token", answers=[("Value of token", SECRET)]).exits(0)
    assert fake.secrets == {"token": SECRET.encode()}
    assert SECRET not in said.out


def test_secrets_are_listed_by_name_and_removed(fake: FakeDaemon, aileron: Command) -> None:
    """A row has the name, two times and the place."""
    fake.secrets = {"token": b"x"}

    assert aileron("secret", "list").out == "token\t2026-11-21T03:58:00.000Z\t2026-11-21T03:58:00.000Z\there\n"
    assert aileron("secret", "remove", "token").code == 0
    assert fake.secrets == {}


# The vault


def test_a_script_creates_a_vault_with_a_given_passphrase(fake: FakeDaemon, aileron: Command, tmp_path: Path) -> None:
    """A file takes precedence over the variable."""
    file = tmp_path / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE="from the variable")
    assert fake.passphrase == "from the variable"
    aileron("vault", "init", "--passphrase-file", str(file), AILERON_VAULT_PASSPHRASE="from the variable")
    assert fake.passphrase == PASSPHRASE


def test_a_vault_is_created_with_a_passphrase_typed_twice(fake: FakeDaemon, aileron: Command) -> None:
    """The questions repeat until both are equal; the passphrase is not echoed."""
    fake.remove_vault()
    question, again = "New vault passphrase: ", "New vault passphrase, again: "
    answers = [(question, PASSPHRASE), (again, "another"), (question, PASSPHRASE), (again, PASSPHRASE)]
    said = aileron.at_terminal("vault", "init", answers=answers)

    assert (said.code, fake.passphrase) == (0, PASSPHRASE)
    assert "they do not match" in said.out
    assert PASSPHRASE not in said.out


@pytest.mark.parametrize("command", ["init", "unlock"])
def test_vault_commands_without_a_terminal_do_not_prompt_for_a_passphrase(
    fake: FakeDaemon, aileron: Command, command: str
) -> None:
    """The error names the ways to give a passphrase instead."""
    said = aileron("vault", command).exits(2)
    assert "AILERON_VAULT_PASSPHRASE" in said.err
    assert f"fix: aileron vault {command} --passphrase-file FILE" in said.err


def test_a_vault_is_locked_and_unlocked(fake: FakeDaemon, aileron: Command) -> None:
    """The vault's status says which it is; a wrong passphrase exits with 6."""
    assert aileron("vault", "lock").code == 0
    assert fake.is_locked
    assert aileron("vault", "status").out == "vault\tlocked\nsecrets\t0\nbindings\t0\n"
    wrong = aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE="a wrong one")
    assert (wrong.code, "a wrong one" in wrong.err) == (6, False)
    typed = aileron.at_terminal("vault", "unlock", answers=[("Vault passphrase", PASSPHRASE)])
    assert (typed.code, PASSPHRASE in typed.out) == (0, False)
    assert aileron("vault", "status", "--json").json["locked"] is False


def test_commands_that_need_a_missing_vault_say_how_to_create_a_vault(fake: FakeDaemon, aileron: Command) -> None:
    """The error comes before a person types a passphrase in vain."""
    fake.remove_vault()

    for words in (("vault", "unlock"), ("secret", "set", "token")):
        said = aileron(*words, given="").exits(4)
        assert said.err.endswith("  fix: aileron vault init\n")


# Bindings


def test_a_script_creates_a_binding_without_questions(fake: FakeDaemon, aileron: Command) -> None:
    """Every value is given as an option."""
    fake.secrets = {"pw": b"x"}
    words = ["--name", "basic/caldav/home", "--username", "mira", "--secret", "pw"]
    said = aileron("binding", "setup", str(CALDAV["name"]), *words)

    assert (said.code, said.out) == (0, "basic/caldav/home\n")
    assert fake.asked("POST", "/v1/bindings")[0].body == {
        "connector": CALDAV["name"],
        "name": "basic/caldav/home",
        "username": "mira",
        "secret": "pw",
    }


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], ["--name basic/SERVICE/IDENTITY", "--username USER", "--secret NAME"]),
        (["--name", "basic/caldav/home", "--username", "mira"], ["--secret NAME"]),
    ],
)
def test_binding_setup_in_a_script_names_the_missing_options(
    fake: FakeDaemon, aileron: Command, given: list[str], missing: list[str]
) -> None:
    """Lines on standard input are not taken for answers."""
    said = aileron("binding", "setup", str(CALDAV["name"]), *given, given="home\nmira\nsecret\n").exits(2)
    assert said.err.splitlines()[-1] == f"  fix: aileron binding setup {CALDAV['name']} {' '.join([*given, *missing])}"
    assert fake.asked("POST") == []


def test_binding_setup_at_a_terminal_asks_for_missing_values(fake: FakeDaemon, aileron: Command) -> None:
    """Defaults are offered; the password is not echoed, and is stored under a name derived from the binding's."""
    answers = [
        ("Service [caldav]: ", ""),
        ("Identity", "home"),
        ("User name: ", "mira"),
        ("Password or token: ", SECRET),
    ]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=answers).exits(0)
    assert fake.secrets == {"caldav-home": SECRET.encode()}
    assert fake.bindings["basic/caldav/home"]["secret"] == "caldav-home"
    assert fake.bindings["basic/caldav/home"]["username"] == "mira"
    assert SECRET not in said.out


def test_after_an_invalid_binding_name_the_setup_asks_again(fake: FakeDaemon, aileron: Command) -> None:
    """The name is checked before a password is typed for it; in a script an invalid name is an error."""
    fake.secrets = {"pw": b"x"}
    answers = [("Service", "cal"), ("Identity", "My Home"), ("Service", ""), ("Identity", "home")]
    words = ["--username", "mira", "--secret", "pw"]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers)

    assert "'basic/cal/My Home' is not KIND/SERVICE/IDENTITY" in said.out
    assert list(fake.bindings) == ["basic/caldav/home"]
    assert aileron("binding", "setup", str(CALDAV["name"]), "--name", "basic/a").code == 2


def test_binding_setup_asks_for_no_value_that_is_given_as_an_option(fake: FakeDaemon, aileron: Command) -> None:
    """The person's own user name is the default identity."""
    fake.secrets = {"pw": b"x"}
    answers = [("Service", "cal"), (f"[{getpass.getuser()}]: ", "")]
    words = ["--username", "mira", "--secret", "pw"]
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers).exits(0)
    assert list(fake.bindings) == [f"basic/cal/{getpass.getuser()}"]


def test_the_prompt_for_an_api_key_calls_it_an_api_key(fake: FakeDaemon, aileron: Command) -> None:
    """A person with an API key does not look for a password."""
    fake.connectors = [{**CALDAV, "credential": {**CALDAV["credential"], "kind": "api_key"}}]
    answers = [("Service [caldav]: ", ""), ("Identity", "home"), ("API key or token: ", SECRET)]
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=answers).exits(0)
    assert fake.secrets == {"caldav-home": SECRET.encode()}
    assert list(fake.bindings) == ["api_key/caldav/home"]


def test_a_locked_vault_is_unlocked_before_the_credential_is_typed(fake: FakeDaemon, aileron: Command) -> None:
    """The vault's passphrase is asked for first."""
    fake.is_locked = True
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    answers = [("The vault is locked. Its passphrase: ", PASSPHRASE), ("Password or token: ", SECRET)]
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers).exits(0)
    assert fake.secrets == {"caldav-home": SECRET.encode()}


def test_a_secret_typed_during_binding_setup_never_overwrites_a_stored_secret(
    fake: FakeDaemon, aileron: Command
) -> None:
    """Setup stores the typed secret under another name."""
    fake.secrets = {"caldav-home": b"the other"}
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=[("Password or token: ", SECRET)])

    assert fake.secrets == {"caldav-home": b"the other", "caldav-home-2": SECRET.encode()}


def test_a_secret_typed_during_binding_setup_is_removed_if_it_cannot_be_bound(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The vault keeps no unused secret."""
    fake.script("POST", "/v1/bindings", error("invalid_request", 400, "basic/caldav/home is bound already"))
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    aileron.at_terminal(
        "binding", "setup", str(CALDAV["name"]), *words, answers=[("Password or token: ", SECRET)]
    ).exits(2)
    assert fake.secrets == {}


def test_the_fix_for_a_missing_secret_is_a_complete_command(fake: FakeDaemon, aileron: Command) -> None:
    """The person can type the command as it is, with the secret's name and without a placeholder."""
    words = ["--name", "basic/caldav/home", "--username", "mira", "--secret", "pw"]
    said = aileron("binding", "setup", str(CALDAV["name"]), *words).exits(3)
    assert said.err.endswith("  fix: aileron secret set pw\n")


def test_a_connector_without_a_credential_cannot_be_bound(fake: FakeDaemon, aileron: Command) -> None:
    """A connector that is not installed cannot be bound either."""
    assert aileron("binding", "setup", str(ADVICE["name"])).code == 2
    assert aileron("binding", "setup", "github://a/b").code == 3


def test_bindings_are_listed_and_revoked(fake: FakeDaemon, aileron: Command) -> None:
    """The name is a single segment of the request's path."""
    binding = {"name": "basic/caldav/home", "connector": CALDAV["name"], "account": "mira", "state": "ok"}
    kept = {"kind": "basic", "username": "mira", "secret": "pw", "created_at": "2026-11-21T03:58:00.000Z"}
    fake.bindings["basic/caldav/home"] = {**binding, **kept, "expires_at": None, "refreshed_at": None}

    assert aileron("binding", "list").out == f"basic/caldav/home\tmira\tok\t{CALDAV['name']}\n"
    assert aileron("binding", "revoke", "basic/caldav/home").code == 0
    assert fake.asked("DELETE")[0].path == "/v1/bindings/basic%2Fcaldav%2Fhome"


def test_the_end_of_input_aborts_binding_setup(fake: FakeDaemon, aileron: Command) -> None:
    """Ctrl-D exits with 2, and nothing is sent."""
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=[("Service", "\x04")]).exits(2)
    assert fake.asked("POST") == []
