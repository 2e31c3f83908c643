"""`aileron run`: its requests and its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.cli.run import OPTIONS
from aileron.client import home_path
from aileron.home import Home
from aileron.model.placeholder import CELL_PLACEHOLDER
from aileron.model.plan import Plan
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon, error

RUN = "/v1/actions/act/run"


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """A daemon with one action that has an input of each type."""
    fake.add_action("act", "text:string", "count:integer", "share:number", "sure:boolean?")
    return fake


# Output


@pytest.mark.parametrize(
    ("result", "printed"),
    [
        ("a\nb ü", "a\nb ü\n"),
        ("null", "null\n"),
        (None, "null\n"),
        (7, "7\n"),
        ([1, "ü"], '[1, "\\u00fc"]\n'),
        ({"a": {"b": 1.5}}, '{"a": {"b": 1.5}}\n'),
    ],
)
def test_a_result_in_a_pipe_is_text_or_json(fake: FakeDaemon, aileron: Command, result: object, printed: str) -> None:
    """Text is printed unchanged, every other value on one line of ASCII; neither stream has anything else."""
    fake.script("POST", RUN, (200, {"audit_id": "run-1", "result": result}))
    said = aileron("run", "act")

    assert (said.out, said.err) == (printed, "")


def test_a_result_at_a_terminal_is_readable(fake: FakeDaemon, aileron: Command) -> None:
    """JSON is indented, and letters are not escaped."""
    fake.script("POST", RUN, (200, {"audit_id": "run-1", "result": {"title": "Grüße"}}))

    assert aileron.at_terminal("run", "act").out == '{\n  "title": "Grüße"\n}\n'


def test_run_with_json_prints_the_whole_response(fake: FakeDaemon, aileron: Command) -> None:
    """The response is ASCII and has the audit id."""
    fake.script("POST", RUN, (200, {"audit_id": "run-1", "result": "ü"}))
    said = aileron("run", "act", "--json")

    assert said.out == '{"audit_id": "run-1", "result": "\\u00fc"}\n'


def test_a_failure_is_explained_on_standard_error_and_with_json_also_on_standard_output(
    fake: FakeDaemon, aileron: Command
) -> None:
    """Three lines are on standard error; with --json the failure and its fix are on standard output too."""
    denied = {
        "requested": "network:b.example:443",
        "granted": ["network:a.example:443"],
        "connector": "github://a/b@1.0.0",
    }
    fake.script("POST", RUN, error("capability_denied", 403, "b.example is not granted", audit_id="run-1", **denied))
    plain, as_json = aileron("run", "act"), aileron("run", "act", "--json")

    assert plain.out == ""
    assert plain.err.splitlines() == [
        "error: b.example is not granted",
        "  why: github://a/b@1.0.0 requested network:b.example:443; granted: network:a.example:443",
        "  look: aileron audit show run-1",
    ]
    assert as_json.err == plain.err
    assert as_json.json["error"]["requested"] == "network:b.example:443"
    assert as_json.json["error"]["fix"] == "aileron audit show run-1"


@pytest.mark.parametrize(
    ("message", "what", "fix"),
    [
        ("the vault is locked; run `aileron vault unlock`", "the vault is locked", "aileron vault unlock"),
        ("action 'a' is disabled: aileron action enable a", "action 'a' is disabled", "aileron action enable a"),
        (
            "x is bound already; use `aileron binding rebind x`, or another IDENTITY",
            "x is bound already; use `aileron binding rebind x`, or another IDENTITY",
            "aileron binding rebind x",
        ),
        ("no command in it", "no command in it", None),
        ("quoted at its end: 'aileron vault lock'", "quoted at its end: 'aileron vault lock'", None),
        ("/h is open for others to use: chmod 700 /h", "/h is open for others to use", "chmod 700 /h"),
        ("'a b' is open: chmod 700 '/a b'", "'a b' is open", "chmod 700 '/a b'"),
        ("quoted at its end: 'x: chmod 700 /h'", "quoted at its end: 'x: chmod 700 /h'", None),
        ("no action 'x: chmod 700 /h' is here", "no action 'x: chmod 700 /h' is here", None),
        ("from somebody else: chmod 777 /h", "from somebody else: chmod 777 /h", None),
        ("the disk is full; free some space and try again", "the disk is full", "free some space and try again"),
    ],
)
def test_a_command_in_the_daemons_message_becomes_the_fix(
    fake: FakeDaemon, aileron: Command, message: str, what: str, fix: str | None
) -> None:
    """The command is cut from the message if it stands at the end. Quoted commands and unknown ones are not taken."""
    fake.script("POST", RUN, error("invalid_request", 400, message))

    assert aileron("run", "act").err.splitlines() == [f"error: {what}", *([f"  fix: {fix}"] if fix else [])]


def test_the_fix_for_an_ambiguous_credential_is_an_option_that_chooses_a_credential(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The daemon's error lists the candidates."""
    details = {"choices": ["basic/caldav/home", "basic/caldav/work"]}
    fake.script("POST", RUN, error("binding_required", 409, "2 credentials could serve", details=details))

    assert aileron("run", "act").err.endswith("  fix: aileron run act --as basic/caldav/home\n")


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("--args", '{"to": "a b"}', "--idempotency-key", "k"), """--args '{"to": "a b"}' --idempotency-key k"""),
        (("--again", "run-1"), "--again run-1"),
        (("--args", json.dumps({"to": "x" * 2000})), "… (with the same arguments)"),
    ],
)
def test_the_suggested_command_with_a_credential_repeats_the_arguments(
    fake: FakeDaemon, aileron: Command, words: tuple[str, ...], typed: str
) -> None:
    """The person can run it as it is; arguments too long for one line are left out completely."""
    details = {"choices": ["basic/caldav/home"]}
    fake.script("POST", RUN, error("binding_required", 409, "2 credentials could serve", details=details))

    assert aileron("run", "act", *words).err.endswith(f"  fix: aileron run act {typed} --as basic/caldav/home\n")


def test_every_line_of_a_connectors_log_is_marked(fake: FakeDaemon, aileron: Command) -> None:
    """A log can have many lines, and none may pass for output of Aileron."""
    details = {"step": "one", "log": "Traceback:\nerror: all is well\n  fix: rm -r ~"}
    fake.script("POST", RUN, error("connector_runtime_error", 502, "it exited", details=details, audit_id="run-1"))

    assert aileron("run", "act").err.splitlines() == [
        "error: it exited",
        "  log: last output of the connector",
        "  │ Traceback:",
        "  │ error: all is well",
        "  │   fix: rm -r ~",
        "  look: aileron audit show run-1",
    ]


# Requests


def test_run_parses_values_by_their_declared_types(fake: FakeDaemon, aileron: Command) -> None:
    """The declared type alone counts: digits are text for an input of type string."""
    said = aileron("run", "act", "text=7", "count=-12", "share=1.5e3", "sure=true")

    assert said.json == {"text": "7", "count": -12, "share": 1500.0, "sure": True}
    assert type(said.json["count"]) is int


@pytest.mark.parametrize("text", ["", "=", "a=b", " true ", "null", '"x"', "ü", "-", "@file", "line\nline"])
def test_a_text_argument_is_sent_exactly_as_typed(fake: FakeDaemon, aileron: Command, text: str) -> None:
    """The text may look like JSON, an option or another argument."""
    assert aileron("run", "act", f"text={text}").json == {"text": text}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("count=7.0", "count='7.0' is not an integer"),
        ("count=1_0", "count='1_0' is not an integer"),
        ("count=٧", "count='٧' is not an integer"),
        ("count=" + "9" * 41, "is not an integer"),
        ("share=nan", "share='nan' is not a number"),
        ("share=Infinity", "share='Infinity' is not a number"),
        ("sure=True", "sure='True' is not true or false"),
        ("sure=1", "sure='1' is not true or false"),
    ],
)
def test_run_refuses_a_value_of_the_wrong_type(fake: FakeDaemon, aileron: Command, word: str, told: str) -> None:
    """The error has the input's name and type."""
    said = aileron("run", "act", word).exits(2)
    assert told in said.err
    assert fake.asked("POST") == []


def test_run_refuses_an_unknown_input_and_suggests_the_nearest(fake: FakeDaemon, aileron: Command) -> None:
    """The error lists all inputs if none is similar."""
    near, far = aileron("run", "act", "txt=1"), aileron("run", "act", "zzz=1")

    assert (near.code, far.code) == (2, 2)
    assert "why: did you mean 'text'?" in near.err
    assert "why: its inputs: text, count, share, sure" in far.err
    assert fake.asked("POST") == []


def test_run_refuses_an_input_that_is_given_twice(fake: FakeDaemon, aileron: Command) -> None:
    """The input is given twice as words, twice in JSON, or once in each."""
    assert "'text' is given twice" in aileron("run", "act", "text=1", "text=2").err
    assert "duplicate key 'text'" in aileron("run", "act", "--args", '{"text": "1", "text": "2"}').err
    assert "'text' is given both in --args" in aileron("run", "act", "text=1", "--args", '{"text": "2"}').err
    assert fake.asked("POST") == []


def test_json_arguments_come_from_an_option_a_file_or_standard_input(
    fake: FakeDaemon, aileron: Command, tmp_path: Path
) -> None:
    """More arguments can be added as words."""
    file = tmp_path / "args.json"
    file.write_text('{"count": 7}')

    assert aileron("run", "act", "--args", '{"count": 7}').json == {"count": 7}
    assert aileron("run", "act", "--args", f"@{file}").json == {"count": 7}
    assert aileron("run", "act", "--args", "-", given='{"count": 7}').json == {"count": 7}
    assert aileron("run", "act", "--args=-", "text=x", given='{"count": 7}').json == {"count": 7, "text": "x"}


@pytest.mark.parametrize(
    "args", ["{", "[1]", "7", '{"a": NaN}', '{"a": 1, "a": 2}', "@/nowhere", "@/", "[" * 100_000, '{"a": 1} {}']
)
def test_run_refuses_arguments_that_are_not_a_json_object(fake: FakeDaemon, aileron: Command, args: str) -> None:
    """The exit code is 2, whatever is wrong with them."""
    said = aileron("run", "act", "--args", args).exits(2)
    assert said.err.startswith("error: --args")
    assert fake.asked("POST") == []


def test_run_refuses_more_than_1_mib_on_standard_input(fake: FakeDaemon, aileron: Command) -> None:
    """The limit bounds the memory."""
    aileron("run", "act", "--args", "-", given=b" " * ((1 << 20) + 1)).exits(2)
    assert fake.asked("POST") == []


def test_run_sends_its_options_to_the_daemon(fake: FakeDaemon, aileron: Command) -> None:
    """Options can be in any order and in both spellings."""
    aileron("run", "--idempotency-key", "k-1", "act", "--as=home", "--wait=90s", "--again", "run-1")
    (sent,) = fake.asked("POST")

    assert sent.headers["idempotency-key"] == "k-1"
    assert sent.body == {"args": {}, "dry_run": False, "binding": "home", "again": "run-1"}
    assert sent.query["wait"] == "2.000"  # the first wait is short: a longer run has an id by then


def test_words_after_two_dashes_are_arguments(fake: FakeDaemon, aileron: Command) -> None:
    """A name can then start with a dash, and is unknown like any other."""
    said = aileron("run", "--", "act", "--json=1")

    assert "act has no input '--json'" in said.err


def test_run_uses_the_agent_socket(fake: FakeDaemon, aileron: Command) -> None:
    """The scope of an agent is enough for a run."""
    aileron("run", "act", "text=x")

    assert {seen.socket for seen in fake.seen} == {"agent"}


@pytest.mark.parametrize("name", ["../connectors", "a/b", "act?wait", "act#x", "ä"])
def test_an_action_name_with_slashes_cannot_reach_another_route(fake: FakeDaemon, aileron: Command, name: str) -> None:
    """The name is always quoted as one segment of the URL's path."""
    aileron("run", name).exits(3)
    assert [seen.path.count("/") for seen in fake.asked("POST")] == [4]
    assert {seen.path for seen in fake.asked("GET")} == {"/v1/actions"}


def test_a_run_without_arguments_takes_one_request(fake: FakeDaemon, aileron: Command) -> None:
    """The action's types are fetched only if there are arguments to convert."""
    aileron("run", "act")

    assert [seen.method for seen in fake.seen] == ["POST"]


def test_run_polls_a_long_run_until_it_ends(fake: FakeDaemon, aileron: Command) -> None:
    """The response to the request has the run's id, by which the command polls."""
    fake.script("POST", RUN, (202, {"status": "running", "run_id": "run-1", "poll_after_ms": 10}))
    running = (200, {"status": "running", "audit_id": "run-1"})
    fake.script("GET", "/v1/runs/run-1", running, running, (200, {"status": "completed", "audit_id": "r", "result": 7}))

    assert aileron("run", "act").out == "7\n"
    assert len(fake.asked("GET", "/v1/runs/run-1")) == 3


def test_a_dry_run_prints_the_plan_and_that_nothing_was_done(fake: FakeDaemon, aileron: Command) -> None:
    """The output shows what would be done, and says that nothing was."""
    planned = aileron("run", "act", "text=x", "--dry-run", "--json").json
    said = aileron("run", "act", "text=x", "--dry-run")

    assert fake.asked("POST")[0].body["dry_run"] is True
    assert said.out.splitlines() == [
        "action\tact 1.0.0",
        "approval\tnot required",
        f"digest\t{msgspec.convert(planned['plan'], Plan).digest}",
        'arguments\ttext = "x"',
    ]
    assert said.err == "dry run: nothing was done\n"
    assert planned["plan"]["args"] == {"text": "x"}


# A locked vault

LOCKED = error("vault_locked", 423, "the vault is locked; run `aileron vault unlock`")
DONE = (200, {"audit_id": "run-1", "result": 7})


def test_a_given_passphrase_unlocks_the_vault_and_the_run_is_sent_again(
    fake: FakeDaemon, aileron: Command, tmp_path: Path
) -> None:
    """The environment or a file has the passphrase; the same request is sent again once."""
    fake.passphrase = "correct horse"
    file = tmp_path / "passphrase"
    file.write_text("correct horse\n")
    for option, environment in (
        ([], {"AILERON_VAULT_PASSPHRASE": "correct horse"}),
        (["--passphrase-file", str(file)], {"AILERON_VAULT_PASSPHRASE": "of another vault"}),
    ):
        fake.seen.clear()
        fake.script("POST", RUN, LOCKED, DONE)

        assert aileron("run", "act", *option, **environment).out == "7\n"
        assert [(seen.socket, seen.path) for seen in fake.asked("POST")] == [
            ("agent", RUN),
            ("operator", "/v1/vault/unlock"),
            ("agent", RUN),
        ]


def test_run_prompts_for_no_passphrase_unless_a_person_is_at_the_terminal(fake: FakeDaemon, aileron: Command) -> None:
    """A locked vault is an error in a pipe, for a program, and for an agent, even one at a terminal."""
    fake.passphrase = "correct horse"
    fake.script("POST", RUN, LOCKED)
    token = {"NO_COLOR": "1", "AILERON_SESSION_TOKEN": "of-an-agent"}
    cell = {"NO_COLOR": "1", "AILERON_SESSION_TOKEN": CELL_PLACEHOLDER}

    for said in (
        aileron("run", "act").err,
        aileron.at_terminal("run", "act", variables=token).out,
        aileron.at_terminal("run", "act", variables=cell).out,
    ):
        assert said == "error: the vault is locked\n  fix: aileron vault unlock\n"
    assert aileron.at_terminal("run", "act", "--json").code == 4
    assert fake.asked("POST", "/v1/vault/unlock") == []


def test_a_locked_vault_is_unlocked_by_the_person_at_the_terminal(fake: FakeDaemon, aileron: Command) -> None:
    """The person has three tries before the command gives up; other commands prompt in the same way."""
    fake.passphrase = "correct horse"
    fake.script("POST", RUN, LOCKED, DONE)
    question = "The vault is locked. Its passphrase: "
    said = aileron.at_terminal("run", "act", answers=[(question, "wrong-word"), (question, "correct horse")])

    assert (said.code, said.out.endswith("\n7\n")) == (0, True)
    assert "wrong-word" not in said.out
    assert "the passphrase is wrong; try again (2 left)" in said.out
    assert [seen.path for seen in fake.asked("POST")] == [RUN, *["/v1/vault/unlock"] * 2, RUN]
    fake.is_locked = True
    listed = aileron.at_terminal("secret", "remove", "x", answers=[(question, "correct horse")])
    assert (listed.code, fake.is_locked) == (0, False)


def test_run_gives_up_after_three_wrong_passphrases(fake: FakeDaemon, aileron: Command) -> None:
    """The command runs nothing; there is no prompt at all if there is no vault."""
    fake.passphrase = "correct horse"
    fake.script("POST", RUN, LOCKED)
    said = aileron.at_terminal("run", "act", answers=[("passphrase: ", "wrong")] * 3)
    assert (said.code, len(fake.asked("POST", RUN))) == (6, 1)

    fake.remove_vault()
    assert aileron.at_terminal("run", "act").code == 4


def test_run_unlocks_the_vault_at_most_once(fake: FakeDaemon, aileron: Command) -> None:
    """A vault that is locked again before the second try is an error."""
    fake.passphrase = "correct horse"
    fake.script("POST", RUN, LOCKED)

    assert aileron("run", "act", AILERON_VAULT_PASSPHRASE="correct horse").code == 4
    assert len(fake.asked("POST", RUN)) == 2


def test_a_wrong_passphrase_causes_no_second_run_request(fake: FakeDaemon, aileron: Command) -> None:
    """The passphrase is not in the output."""
    fake.passphrase = "correct horse"
    fake.script("POST", RUN, LOCKED)
    said = aileron("run", "act", AILERON_VAULT_PASSPHRASE="wrong-word").exits(6)
    assert len(fake.asked("POST", RUN)) == 1
    assert "wrong-word" not in said.out + said.err


@pytest.mark.parametrize("content", [None, b"", b"\n", b"x" * 5000, b"\xff\xff"])
def test_an_invalid_vault_passphrase_file_is_reported(
    fake: FakeDaemon, aileron: Command, tmp_path: Path, content: bytes
) -> None:
    """The error has its path."""
    file = tmp_path / "passphrase"
    if content is not None:
        file.write_bytes(content)
    fake.script("POST", RUN, LOCKED)
    said = aileron("run", "act", "--passphrase-file", str(file)).exits(2)
    assert str(file) in said.err


def test_the_vaults_passphrase_is_removed_from_the_commands_environment() -> None:
    """A daemon that a command starts must not inherit it. Positive control: another variable stays."""
    script = (
        "import os, sys; from aileron.__main__ import main; sys.argv = ['aileron', '--version']; main(); "
        "print('AILERON_VAULT_PASSPHRASE' in os.environ, 'AILERON_HOME' in os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "AILERON_VAULT_PASSPHRASE": "x", "AILERON_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "False True"


# The hot path

DEAR = {
    *("typer", "click", "rich", "msgspec", "pydantic", "asyncio", "anyio", "argparse", "dataclasses", "inspect"),
    *("http", "email", "ssl", "subprocess", "locale", "tempfile", "logging"),
}


def imported(home: Path, *words: str) -> set[str]:
    """Return the modules that a command imports, and the top-level packages that they are in."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "aileron", *words],
        env={**os.environ, "AILERON_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    return names | {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("answer", [DONE, (202, {"status": "pending_approval", "approval_id": "a", "message": "m"})])
def test_a_run_imports_no_expensive_module(fake: FakeDaemon, home: Path, answer: tuple[int, object]) -> None:
    """An agent runs many commands, and waits for the imports of each."""
    fake.script("POST", RUN, answer)

    assert imported(home, "run", "act", "text=x", "--json") & DEAR == set()


def test_daemon_status_imports_no_expensive_module(tmp_path: Path) -> None:
    """`daemon start` calls this check first, and without a daemon there is no response to parse."""
    assert imported(tmp_path / "none", "daemon", "status") & DEAR == set()


def test_wrong_usage_imports_typer(fake: FakeDaemon, home: Path) -> None:
    """Positive control of the test above: the measurement sees an expensive module where there is one."""
    assert {"typer", "inspect"} <= imported(home, "status", "--no-such")


@pytest.mark.parametrize("configured", ["/a//b/./c/", "here/../x", "x", "", None])
def test_commands_and_the_daemon_compute_the_same_home_path(
    configured: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two implementations exist: commands avoid importing pathlib, which home.py uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AILERON_HOME", raising=False)
    if configured is not None:
        monkeypatch.setenv("AILERON_HOME", configured)

    assert home_path() == str(Home.from_environment().path)


def test_wrong_usage_imports_typer_without_pydantic(home: Path) -> None:
    """Importing it takes 100 ms, three times as long as typer, which works without it until 0.29."""
    assert imported(home, "secret", "list", "--no-such") & {"typer", "pydantic"} == {"typer"}


def test_help_and_the_fast_parser_have_the_same_options() -> None:
    """The typer command has the options of run.py: the same names, flags and texts."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    command = get_command(app).commands["run"]  # type: ignore[attr-defined]
    shown = {
        parameter.opts[0]: (None if parameter.is_flag else parameter.metavar, parameter.help)
        for parameter in command.params
        if parameter.param_type_name == "option"
    }

    assert {flag: shown[flag] for flag in shown if flag != "--help"} == {
        option.flag: (option.metavar, option.help) for option in OPTIONS
    }


def test_help_lists_run_first(aileron: Command) -> None:
    """The command that typer does not handle is in the list like any other, and has its help."""
    top, run = aileron("--help"), aileron("run", "--help")

    assert (top.code, run.code) == (0, 0)
    assert "  run       Run an action" in top.out
    assert all(option.flag in run.out for option in OPTIONS)


def test_the_option_version_prints_ailerons_version(aileron: Command) -> None:
    """The command needs no daemon."""
    assert aileron("--version").out.startswith("aileron ")


def test_a_failed_dns_lookup_has_a_suggested_fix_unless_a_connector_reported_it(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The fix is a command that queries the same name. Text of a connector never becomes a command."""
    fake.add_action("send")
    message = "api.example.invalid:443: name resolution failed: Name or service not known"
    for details, has_cure in (({"phase": "resolve"}, True), ({"phase": "resolve", "step": "one"}, False)):
        fake.script("POST", "/v1/actions/send/run", error("network_error", 502, message, details=details))
        said = aileron("run", "send")
        assert ("getent ahosts api.example.invalid" in said.err) == has_cure, said


ALLOW = "`aileron config add egress.private nas.lan:443`"
_CHECK = "check that the service runs, and its host and port: aileron connector list"
CURES = [
    ("capability_denied", {"reason": "address_not_public"}, f"not public; run {ALLOW}", ALLOW.strip("`")),
    ("capability_denied", {"reason": "host_not_granted"}, f"not granted; run {ALLOW}", None),
    ("binding_failed", {"reason": "no_database"}, f"no database: {ALLOW}", ALLOW.strip("`")),
    ("binding_failed", {"reason": "may_write"}, f"as an owner: {ALLOW}", None),
    ("network_error", {"reason": ["x"]}, f"not public; run {ALLOW}", None),
    ("network_error", {"phase": "connect"}, "late", _CHECK),
    ("network_error", {"phase": "connect", "reason": "refused"}, "refused", _CHECK),
    ("network_error", {"phase": "connect", "reason": ["refused"]}, "refused", None),
    ("network_error", {"phase": "resolve"}, "unknown", "correct the host, or fix name resolution on this machine"),
    ("network_error", {"phase": ["x"]}, "unknown", None),
    ("network_error", {}, "x; run `aileron config set egress.ca_file FILE`", "aileron config set egress.ca_file FILE"),
    ("network_error", {}, "x; run `aileron config set egress.ca_file /tmp/mine`", None),
]


@pytest.mark.parametrize(
    ("name", "details", "message", "fix"), CURES, ids=[f"{name}-{at}" for at, (name, *_) in enumerate(CURES)]
)
def test_a_failed_run_suggests_only_a_fix_that_no_connector_could_have_written(
    fake: FakeDaemon, aileron: Command, name: str, details: dict[str, Any], message: str, fix: str | None
) -> None:
    """The fix is a command in the daemon's own message, or fixed text without any variable part."""
    fake.add_action("send")
    fake.script("POST", "/v1/actions/send/run", error(name, 502, message, details={**details, "step": "one"}))
    said = aileron("run", "send")
    fixes = [line.removeprefix("  fix: ") for line in said.err.splitlines() if line.startswith("  fix: ")]

    assert said.code == {"capability_denied": 6, "binding_failed": 4, "network_error": 7}[name]
    assert said.err.startswith(f"error: {message.partition(';')[0].partition(':')[0]}")
    assert fixes == ([] if fix is None else [fix]), said


def test_an_argument_that_is_not_valid_utf_8_is_refused(fake: FakeDaemon, home: Path) -> None:
    """Invalid UTF-8 cannot be sent to the daemon."""
    done = subprocess.run(
        [sys.executable, "-m", "aileron", "run", b"act", b"text=\xff"],
        env={**os.environ, "AILERON_HOME": str(home)},
        capture_output=True,
        timeout=30,
    )

    assert done.returncode == 2
    assert b"argument 3 is not UTF-8" in done.stderr
    assert fake.seen == []


def test_characters_that_the_output_encoding_cannot_express_are_escaped_in_a_result(
    fake: FakeDaemon, aileron: Command
) -> None:
    """The cases are a lone surrogate in JSON, and output in ASCII."""
    fake.script("POST", RUN, (200, json.dumps({"audit_id": "r", "result": "\ud800ü"}).encode()))

    assert aileron("run", "act").out == "\\ud800ü\n"
    assert aileron("run", "act", PYTHONIOENCODING="ascii").out == "\\ud800\\xfc\n"
