"""Actions, connectors, bindings, secrets and the vault: in a script that nobody answers, and with a person at a terminal."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from aileron.registry.content import content_hash
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon, error
from tests.support.home import probe_action

PROBE = Path(__file__).parents[1] / "support" / "connectors" / "probe"
GOOGLE = Path(__file__).parents[2] / "connectors" / "google"
CALDAV = {
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
    """With two connectors and an open vault."""
    fake.connectors = [CALDAV, ADVICE]
    fake.passphrase, fake.is_locked = PASSPHRASE, False
    return fake


# Actions


def test_an_action_is_added_from_its_file(fake: FakeDaemon, aileron: Command, tmp_path: Path):
    """Its text is sent, its name printed, and what was bound is said."""
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
def test_a_file_that_cannot_be_an_action_is_not_sent(
    fake: FakeDaemon, aileron: Command, tmp_path: Path, content: bytes | None, code: int, told: str
):
    """It is named."""
    file = tmp_path / "a.md"
    if content is not None:
        file.write_bytes(content)
    said = aileron("action", "add", str(file))

    assert said.code == code
    assert str(file) in said.err
    assert told in said.err
    assert fake.seen == []


def test_actions_are_validated_without_a_daemon(aileron: Command, tmp_path: Path, home: Path):
    """Good ones on standard output, problems on standard error with file and line; the code is that of the worst."""
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(probe_action("fetch"))
    bad.write_text(probe_action("fetch").replace('"1.0.0"', '"one"', 1))
    said = aileron("action", "validate", str(good), str(bad))

    assert (said.code, said.out) == (2, f"{good}: ok, fetch 1.0.0\n")
    assert said.err.startswith(f"error: {bad}:3: ")
    assert aileron("action", "validate", str(good)).code == 0
    assert not home.exists()


def test_actions_are_listed_with_their_state(fake: FakeDaemon, aileron: Command):
    """A broken file has its problem in place of what it is for; what no publisher has is the person's own."""
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


def test_where_actions_are_from_can_be_read_on_80_columns(fake: FakeDaemon, aileron: Command):
    """Beside the rest where every row fits; else all of them below, whole and at one indent."""
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


def test_an_empty_list_is_empty_for_a_script_and_a_hint_for_a_person(fake: FakeDaemon, aileron: Command):
    """Nothing on standard output, exit 0."""
    piped, shown = aileron("action", "list"), aileron.at_terminal("action", "list")

    assert (piped.code, piped.out, piped.err) == (0, "", "")
    assert "aileron action add FILE" in shown.out


def test_each_row_of_an_actions_prose_has_its_bar(fake: FakeDaemon, aileron: Command):
    """A line that is longer than the terminal is wide, and an indented one: no row stands at the margin, as ours do."""
    prose = "A line " + "of many words " * 20 + "\n\n    - indented " + "and long " * 20
    fake.add_action("send", body=prose, hosts=[])
    shown = aileron.at_terminal("action", "show", "send", NO_COLOR="1").out.rstrip("\n").split("\n")
    rows = shown[next(number for number, row in enumerate(shown) if "A line" in row) :]

    assert len(rows) > 6
    assert all(row.startswith("  │ ") and len(row) <= 80 for row in rows), rows
    assert " ".join(" ".join(row.removeprefix("  │ ") for row in rows).split()) == " ".join(prose.split())


def test_an_action_is_shown_with_inputs_and_prose(fake: FakeDaemon, aileron: Command):
    """A table at a terminal, and the file's own words behind bars."""
    fake.add_action("send", "to:string", "copies:integer?")
    shown = aileron.at_terminal("action", "show", "send", NO_COLOR="1").out

    assert re.search(r"^reaches +a\.example:443$", shown, re.MULTILINE)
    assert re.search(r"^to +string +yes +The to\.$", shown, re.MULTILINE)
    assert re.search(r"^copies +integer +no ", shown, re.MULTILINE)
    assert "  │ # Prose" in shown
    assert aileron("action", "show", "send", "--json").json["body"] == "# Prose\n"


def test_an_action_is_switched_and_removed(fake: FakeDaemon, aileron: Command):
    """Said on standard error; a name that is none is 3."""
    fake.add_action("send")

    assert aileron("action", "disable", "send").err == "send is disabled\n"
    assert fake.actions["send"]["enabled"] is False
    assert aileron("action", "enable", "send").err == "send is enabled\n"
    assert fake.actions["send"]["enabled"] is True
    assert aileron("action", "remove", "send").code == 0
    assert aileron("action", "remove", "send").code == 3


def test_a_suspended_action_says_so_and_is_resumed(fake: FakeDaemon, aileron: Command):
    """In the list and in the facts; where nobody can be asked, the question's id is printed; unchanged, nothing is asked."""
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
    assert [one.body for one in fake.asked("POST")] == [{}, {"unchanged": True}]


# Connectors


def test_a_build_names_what_it_left_out_and_what_is_no_python(aileron: Command, tmp_path: Path):
    """Otherwise a missing module says only that there is none, and a published file nothing at all."""
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
    assert {one["path"] for one in data["left_out"]} >= {"lib/_speed.abi3.so", "8.md", "note\x1b[2J.txt"}
    assert all(one["reason"] for one in data["left_out"])


def test_a_connector_is_built_without_a_daemon(aileron: Command, tmp_path: Path, home: Path):
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


def test_a_publishers_application_is_built_in_and_never_printed(aileron: Command, tmp_path: Path):
    """The secret comes from a file, and is in the archive alone; without it the build fails, and says which option it lacks."""
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
def test_a_build_that_cannot_be_leaves_nothing(aileron: Command, tmp_path: Path, words: list[str], told: str):
    """Exit 2, and what is wrong."""
    said = aileron("connector", "build", str(PROBE), "-o", str(tmp_path / "x.tar.gz"), *words)

    assert said.code == 2
    assert told in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_connector_is_installed_by_its_whole_path(fake: FakeDaemon, aileron: Command, tmp_path: Path):
    """The daemon is somewhere else; what it may reach is shown."""
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
def test_a_connector_is_named_in_several_ways(fake: FakeDaemon, aileron: Command, wanted: str):
    """Whatever one has at hand."""
    assert aileron("connector", "show", wanted, "--json").json == CALDAV


def test_a_connector_that_is_none_or_several_is_said(fake: FakeDaemon, aileron: Command):
    """With what would tell them apart; nothing is removed by a guess."""
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


def test_a_secret_comes_from_standard_input(fake: FakeDaemon, aileron: Command):
    """Any bytes, without the one line end at their end; and it is not printed."""
    for given, stored in (
        (b"a-secret\n", b"a-secret"),
        (b"a-secret\r\n", b"a-secret"),
        (b"\x00\xff\n\n", b"\x00\xff\n"),
    ):
        said = aileron("secret", "set", "token", given=given)

        assert (said.code, said.out, said.err) == (0, "", "stored token\n")
        assert fake.secrets["token"] == stored


@pytest.mark.parametrize("given", [b"", b"\n", b"x" * (65 * 1024)])
def test_a_secret_that_is_empty_or_endless_is_not_stored(fake: FakeDaemon, aileron: Command, given: bytes):
    """Exit 2."""
    assert aileron("secret", "set", "token", given=given).code == 2
    assert fake.secrets == {}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_is_closed_is_not_a_terminal(fake: FakeDaemon, home: Path, closed: str):
    """As some supervisors start programs: nothing is asked, and nothing fails that needs no answer."""
    words = f"{sys.executable} -m aileron"
    environment = {**os.environ, "AILERON_HOME": str(home)}
    asked = subprocess.run(["sh", "-c", f"{words} secret set token <&- {closed}"], env=environment, timeout=30)
    told = subprocess.run(["sh", "-c", f"{words} vault status {closed}"], env=environment, timeout=30)

    assert (asked.returncode, told.returncode) == (2, 0)
    assert fake.secrets == {}


def test_a_secret_is_typed_unseen(fake: FakeDaemon, aileron: Command):
    """At a terminal."""
    said = aileron.at_terminal("secret", "set", "token", answers=[("Value of token", SECRET)])

    assert said.code == 0
    assert fake.secrets == {"token": SECRET.encode()}
    assert SECRET not in said.out


def test_secrets_are_listed_by_name(fake: FakeDaemon, aileron: Command):
    """And removed."""
    fake.secrets = {"token": b"x"}

    assert aileron("secret", "list").out == "token\t2026-11-21T03:58:00.000Z\t2026-11-21T03:58:00.000Z\there\n"
    assert aileron("secret", "remove", "token").code == 0
    assert fake.secrets == {}


# The vault


def test_a_vault_is_made_with_a_passphrase_from_a_script(fake: FakeDaemon, aileron: Command, tmp_path: Path):
    """A file comes before the variable."""
    file = tmp_path / "passphrase"
    file.write_text(f"{PASSPHRASE}\n")
    aileron("vault", "init", AILERON_VAULT_PASSPHRASE="from the variable")
    assert fake.passphrase == "from the variable"
    aileron("vault", "init", "--passphrase-file", str(file), AILERON_VAULT_PASSPHRASE="from the variable")
    assert fake.passphrase == PASSPHRASE


def test_a_vault_is_made_with_a_passphrase_typed_twice(fake: FakeDaemon, aileron: Command):
    """Until both are the same; none of it is shown."""
    fake.passphrase = None
    question, again = "New vault passphrase: ", "New vault passphrase, again: "
    answers = [(question, PASSPHRASE), (again, "another"), (question, PASSPHRASE), (again, PASSPHRASE)]
    said = aileron.at_terminal("vault", "init", answers=answers)

    assert said.code == 0
    assert fake.passphrase == PASSPHRASE
    assert "they do not match" in said.out
    assert PASSPHRASE not in said.out


@pytest.mark.parametrize("command", ["init", "unlock"])
def test_without_a_terminal_nobody_is_asked(fake: FakeDaemon, aileron: Command, command: str):
    """The ways to give a passphrase are named instead."""
    said = aileron("vault", command)

    assert said.code == 2
    assert "AILERON_VAULT_PASSPHRASE" in said.err
    assert f"fix: aileron vault {command} --passphrase-file FILE" in said.err


def test_a_vault_is_locked_and_unlocked(fake: FakeDaemon, aileron: Command):
    """And says which it is."""
    assert aileron("vault", "lock").code == 0
    assert fake.is_locked
    assert aileron("vault", "status").out == "vault\tlocked\nsecrets\t0\nbindings\t0\n"
    wrong = aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE="a wrong one")
    assert (wrong.code, "a wrong one" in wrong.err) == (6, False)
    typed = aileron.at_terminal("vault", "unlock", answers=[("Vault passphrase", PASSPHRASE)])
    assert (typed.code, PASSPHRASE in typed.out) == (0, False)
    assert aileron("vault", "status", "--json").json["locked"] is False


def test_where_there_is_no_vault_unlocking_says_how_to_make_one(fake: FakeDaemon, aileron: Command):
    """Before anybody types a passphrase for nothing."""
    fake.passphrase = None

    for words in (("vault", "unlock"), ("secret", "set", "token")):
        said = aileron(*words, given="")
        assert said.code == 4
        assert said.err.endswith("  fix: aileron vault init\n")


# Bindings


def test_a_binding_is_made_by_a_script(fake: FakeDaemon, aileron: Command):
    """Everything said, nothing asked."""
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
def test_a_script_is_told_which_options_are_missing(
    fake: FakeDaemon, aileron: Command, given: list[str], missing: list[str]
):
    """Even with input to read: nothing is taken for an answer."""
    said = aileron("binding", "setup", str(CALDAV["name"]), *given, given="home\nmira\nsecret\n")

    assert said.code == 2
    assert said.err.splitlines()[-1] == f"  fix: aileron binding setup {CALDAV['name']} {' '.join([*given, *missing])}"
    assert fake.asked("POST") == []


def test_a_person_is_asked_for_what_is_missing(fake: FakeDaemon, aileron: Command):
    """With answers at hand; the password is typed unseen and stored under a name made of the binding's."""
    answers = [
        ("Service [caldav]: ", ""),
        ("Identity", "home"),
        ("User name: ", "mira"),
        ("Password or token: ", SECRET),
    ]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=answers)

    assert said.code == 0, said
    assert fake.secrets == {"caldav-home": SECRET.encode()}
    assert fake.bindings["basic/caldav/home"]["secret"] == "caldav-home"
    assert fake.bindings["basic/caldav/home"]["username"] == "mira"
    assert SECRET not in said.out


def test_a_name_that_is_none_is_asked_for_again(fake: FakeDaemon, aileron: Command):
    """Before a password is typed for it; a script is told."""
    fake.secrets = {"pw": b"x"}
    answers = [("Service", "cal"), ("Identity", "My Home"), ("Service", ""), ("Identity", "home")]
    words = ["--username", "mira", "--secret", "pw"]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers)

    assert "'basic/cal/My Home' is not KIND/SERVICE/IDENTITY" in said.out
    assert list(fake.bindings) == ["basic/caldav/home"]
    assert aileron("binding", "setup", str(CALDAV["name"]), "--name", "basic/a").code == 2


def test_what_a_person_gave_is_not_asked_again(fake: FakeDaemon, aileron: Command):
    """Only the rest; the user's own name is at hand for the identity."""
    fake.secrets = {"pw": b"x"}
    answers = [("Service", "cal"), (f"[{getpass.getuser()}]: ", "")]
    words = ["--username", "mira", "--secret", "pw"]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers)

    assert said.code == 0
    assert list(fake.bindings) == [f"basic/cal/{getpass.getuser()}"]


def test_a_key_is_asked_for_as_one(fake: FakeDaemon, aileron: Command):
    """The prompt names what the service calls it: who has an API key looks for no password."""
    fake.connectors = [{**CALDAV, "credential": {**CALDAV["credential"], "kind": "api_key"}}]
    answers = [("Service [caldav]: ", ""), ("Identity", "home"), ("API key or token: ", SECRET)]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=answers)

    assert said.code == 0, said
    assert fake.secrets == {"caldav-home": SECRET.encode()}
    assert list(fake.bindings) == ["api_key/caldav/home"]


def test_a_locked_vault_is_opened_before_anything_is_typed_for_it(fake: FakeDaemon, aileron: Command):
    """The passphrase is asked for first."""
    fake.is_locked = True
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    answers = [("The vault is locked. Its passphrase: ", PASSPHRASE), ("Password or token: ", SECRET)]
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=answers)

    assert said.code == 0
    assert fake.secrets == {"caldav-home": SECRET.encode()}


def test_a_stored_secret_is_never_overwritten_by_a_typed_one(fake: FakeDaemon, aileron: Command):
    """The new one has another name."""
    fake.secrets = {"caldav-home": b"the other"}
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    aileron.at_terminal("binding", "setup", str(CALDAV["name"]), *words, answers=[("Password or token: ", SECRET)])

    assert fake.secrets == {"caldav-home": b"the other", "caldav-home-2": SECRET.encode()}


def test_a_typed_secret_goes_again_when_it_cannot_be_bound(fake: FakeDaemon, aileron: Command):
    """Nothing is left that nobody knows of."""
    fake.script("POST", "/v1/bindings", error("invalid_request", 400, "basic/caldav/home is bound already"))
    words = ["--name", "basic/caldav/home", "--username", "mira"]
    said = aileron.at_terminal(
        "binding", "setup", str(CALDAV["name"]), *words, answers=[("Password or token: ", SECRET)]
    )

    assert said.code == 2
    assert fake.secrets == {}


def test_a_secret_that_is_not_there_is_named_with_the_command(fake: FakeDaemon, aileron: Command):
    """Not with a placeholder."""
    words = ["--name", "basic/caldav/home", "--username", "mira", "--secret", "pw"]
    said = aileron("binding", "setup", str(CALDAV["name"]), *words)

    assert said.code == 3
    assert said.err.endswith("  fix: aileron secret set pw\n")


def test_a_connector_without_a_credential_cannot_be_bound(fake: FakeDaemon, aileron: Command):
    """Nor one that is not installed."""
    assert aileron("binding", "setup", str(ADVICE["name"])).code == 2
    assert aileron("binding", "setup", "github://a/b").code == 3


def test_bindings_are_listed_and_revoked(fake: FakeDaemon, aileron: Command):
    """The name is one segment of the path."""
    binding = {"name": "basic/caldav/home", "connector": CALDAV["name"], "account": "mira", "state": "ok"}
    kept = {"kind": "basic", "username": "mira", "secret": "pw", "created_at": "2026-11-21T03:58:00.000Z"}
    fake.bindings["basic/caldav/home"] = {**binding, **kept, "expires_at": None, "refreshed_at": None}

    assert aileron("binding", "list").out == f"basic/caldav/home\tmira\tok\t{CALDAV['name']}\n"
    assert aileron("binding", "revoke", "basic/caldav/home").code == 0
    assert fake.asked("DELETE")[0].path == "/v1/bindings/basic%2Fcaldav%2Fhome"


def test_an_end_of_input_is_no_answer(fake: FakeDaemon, aileron: Command):
    """Ctrl-D ends the command."""
    said = aileron.at_terminal("binding", "setup", str(CALDAV["name"]), answers=[("Service", "\x04")])

    assert said.code == 2
    assert fake.asked("POST") == []
