"""The command line with a real daemon: from an empty home to a result; and the fake daemon compared with the real one."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, Said
from tests.cli.test_run_command import imported
from tests.support.fake_daemon import FakeDaemon, Seen
from tests.support.home import PASSPHRASE, PROBE, DaemonHome, daemon_home, probe_action
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
PROBE_SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "probe"
SECRET = "hunter2-hunter2"


@pytest.fixture(scope="module")
def home(upstream: CountingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """A home that a script set up with commands."""
    folder = tmp_path_factory.mktemp("probe")
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        aileron = Command(home.path)

        def must(*words: str, **options: Any) -> Said:
            said = aileron(*words, **options)
            assert said.code == 0, (words, said)
            return said

        must("vault", "init", AILERON_VAULT_PASSPHRASE=PASSPHRASE)
        must("secret", "set", "pw", given=SECRET + "\n")
        archive = str(folder / "probe.tar.gz")
        built = must(
            "connector", "build", str(PROBE_SOURCE), "--host", f"localhost:{upstream.port}", "-o", archive, "--json"
        )
        installed = must("connector", "install", archive, "--json")
        assert built.json["hash"] == installed.json["hash"]
        must("binding", "setup", PROBE, "--name", "basic/probe/me", "--username", "mira", "--secret", "pw")
        for op, inputs, options in (
            ("give_back", ("text:string?", "number:integer?", "flag:boolean?", "share:number?"), {}),
            ("fetch", ("path:string?", "with_credential:boolean?"), {}),
            ("effect", ("path:string?",), {"gated": True}),
            ("report", ("times:integer", "seconds:number", "message:string?"), {}),
            ("leave", (), {}),
            ("fetch_url", ("url:string",), {}),
        ):
            file = folder / f"{op}.md"
            file.write_text(probe_action(op, *inputs, **options))  # type: ignore[arg-type]
            must("action", "add", str(file))
        yield home


def test_a_run_prints_its_result(aileron: Command) -> None:
    """Arguments of every type go through a jail and back."""
    said = aileron("run", "give-back", "text=7", "number=7", "flag=true", "share=1.5")

    assert said.json == {"text": "7", "number": 7, "flag": True, "share": 1.5}


def test_a_run_uses_its_credential_and_no_output_shows_the_secret(aileron: Command, upstream: CountingServer) -> None:
    """The run succeeds with it, and no output contains it."""
    said = aileron("run", "fetch", "with_credential=true", "--json").exits(0)
    assert SECRET not in said.out + said.err
    shown = aileron("audit", "show", said.json["audit_id"], "--json")
    assert {event["type"] for event in shown.json["events"]} >= {"run.requested", "egress.sending", "run.finished"}
    assert shown.json["result"] == said.json["result"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["give-back", "--args", '{"text": 7}'], 2, "fix: aileron action show give-back"),
        (["nope"], 3, "fix: aileron action list"),
        (["fetch-url", "url=https://example.com/"], 6, "requested network:example.com:443"),
        (["leave"], 1, "│ "),
        (["give-back", "--as", "nobody"], 4, "nobody"),
    ],
)
def test_a_refusal_says_what_happened_and_how_to_fix_it(
    aileron: Command, words: list[str], code: int, told: str
) -> None:
    """Each kind of refusal has an exit code of its own."""
    said = aileron("run", *words).exits(code)
    assert said.err.startswith("error: ")
    assert told in said.err


def test_a_connectors_progress_is_shown_while_it_runs(aileron: Command) -> None:
    """The report comes from a jail and is erased before the result."""
    said = aileron.at_terminal("run", "report", "times=4", "seconds=3", "message=reading")
    painted, _, rest = said.out.rpartition("\r\x1b[K")

    assert " of 4  │ reading" in painted
    assert (said.code, rest) == (0, "4\n")


def test_a_run_continues_after_its_command_stopped_waiting(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """The command says that the run continues, and `audit show` has its end."""
    with upstream.holding():
        said = aileron("run", "fetch", "path=/held", "--wait", "100ms", "--json")

    assert said.code == 75
    home.must("GET", f"/v1/runs/{said.json['run_id']}?wait=20", wait_s=20)
    shown = aileron("audit", "show", said.json["run_id"])
    assert shown.out.splitlines()[1] == "status\tcompleted"


def test_running_again_with_the_same_idempotency_key_returns_the_first_response(aileron: Command) -> None:
    """Repeating the key with different arguments is a conflict."""
    first = aileron("run", "give-back", "text=a", "--idempotency-key", "k", "--json").json
    again = aileron("run", "give-back", "text=a", "--idempotency-key", "k", "--json").json
    other = aileron("run", "give-back", "text=b", "--idempotency-key", "k")

    assert again == first
    assert other.code == 2


def test_a_given_passphrase_unlocks_the_vault_for_a_run(aileron: Command) -> None:
    """This works with an idempotency key too: the refused run does not occupy it."""
    assert aileron("vault", "lock").code == 0
    assert aileron("run", "fetch").code == 4
    assert aileron("run", "fetch", AILERON_VAULT_PASSPHRASE="wrong").code == 6
    aileron("run", "fetch", "--idempotency-key", "locked", AILERON_VAULT_PASSPHRASE=PASSPHRASE).exits(0)
    assert aileron("vault", "status", "--json").json["locked"] is False


def test_a_dry_run_is_not_recorded(aileron: Command) -> None:
    """The plan is shown, and the ledger does not grow."""
    before = aileron("audit", "list", "--limit", "1", "--json").json["events"][0]["seq"]
    said = aileron("run", "fetch", "--dry-run")

    assert "account\tmira (basic/probe/me): Whatever the test server allows\n" in said.out
    assert aileron("audit", "list", "--limit", "1", "--json").json["events"][0]["seq"] == before


def test_action_show_lists_the_constraints_that_a_refusal_names(aileron: Command, tmp_path: Path) -> None:
    """`action show` and the error use the same words; an array is typed as JSON."""
    file = tmp_path / "a.md"
    text = probe_action("give_list", "text:string?", "number:array?", name="with-rules")
    text = text.replace('type = "array"', 'type = "array"\nschema = {maxItems = 1}\ndefault = [7]')
    file.write_text(text.replace('type = "string"', 'type = "string"\npattern = "^[a-z]+$"'))
    assert aileron("action", "add", str(file)).code == 0

    shown = aileron("action", "show", "with-rules").out
    assert 'text\tstring\tno\tFor the test.\tpattern "^[a-z]+$"\n' in shown
    assert "number\tarray\tno\tFor the test.\tmaxItems 1, default [7]\n" in shown
    for word, problem in (
        ("text=A", 'pattern "^[a-z]+$"'),
        ("number=[1, 2]", "maxItems 1"),
        ("number=1", "a JSON array"),
    ):
        said = aileron("run", "with-rules", word)
        assert (said.code, problem in said.err) == (2, True), said
        assert "fix: aileron action show with-rules" in said.err
    assert aileron("action", "remove", "with-rules").code == 0


def test_actions_secrets_and_bindings_are_listed_changed_and_removed(aileron: Command, tmp_path: Path) -> None:
    """The daemon's state agrees with each command."""
    file = tmp_path / "a.md"
    file.write_text(probe_action("give_back", name="short-lived"))
    assert aileron("action", "add", str(file)).code == 0
    assert aileron("action", "disable", "short-lived").code == 0
    assert aileron("run", "short-lived").code == 6
    assert "short-lived\t1.0.0\tdisabled" in aileron("action", "list").out
    assert aileron("action", "remove", "short-lived").code == 0
    assert aileron("action", "show", "short-lived").code == 3

    assert aileron("secret", "set", "other", given="another-secret").code == 0
    words = ["--name", "basic/probe/other", "--username", "mira", "--secret", "other"]
    assert aileron("binding", "setup", PROBE, *words).code == 0
    assert aileron("run", "fetch").code == 4  # two could serve now
    assert aileron("run", "fetch", "--as", "me").code == 0
    assert aileron("secret", "remove", "other").code == 2  # a binding uses it
    assert aileron("binding", "revoke", "basic/probe/other").code == 0
    assert aileron("secret", "remove", "other").code == 0


def test_the_audit_trail_is_filtered_and_verified(aileron: Command) -> None:
    """The daemon filters it; verifying needs no daemon."""
    assert (aileron("run", "nope").code, aileron("run", "fetch", "--args", '{"path": 7}').code) == (3, 2)

    def listed(*words: str) -> set[tuple[str, str | None]]:
        events = aileron("audit", "list", *words, "--json").json["events"]
        return {(event["type"], event.get("action")) for event in events}

    assert listed("--type", "run.refused", "--action", "fetch") == {("run.refused", "fetch")}
    assert listed("--type", "run.refused") >= {("run.refused", "fetch"), ("run.refused", "nope")}
    assert listed("--type", "action.added", "--action", "fetch") == {("action.added", "fetch")}
    assert aileron("audit", "list", "--type", "run.finishd").code == 2
    assert aileron("audit", "list", "--since", "soon").code == 2
    assert aileron("audit", "verify").code == 0


def test_completion_gets_action_names_from_a_running_daemon(aileron: Command) -> None:
    """The running daemon provides the names."""
    said = Command(aileron.home, module="tests.cli.patient")(
        COMP_WORDS="aileron run fe", COMP_CWORD="2", _AILERON_COMPLETE="complete_bash"
    )

    assert said.out.split() == ["fetch", "fetch-url"]


def test_a_run_continues_after_its_command_is_interrupted(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """Ctrl-C after its start exits with 130, and the run completes."""
    since = home.must("GET", "/v1/audit?limit=1")["events"][0]["seq"]
    with upstream.holding(), aileron.start("run", "fetch", "path=/held") as process:
        run_id = _run_that_began(home, since)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "continues" in err
    assert home.must("GET", f"/v1/runs/{run_id}?wait=20", wait_s=20)["status"] == "completed"


def _run_that_began(home: DaemonHome, since: int) -> str:
    """Return the run that started after row `since`."""
    pause = threading.Event()
    for _ in range(400):
        events = home.must("GET", f"/v1/audit?type=run.started&after={since}&limit=1")["events"]
        if events:
            return str(events[0]["run"])
        pause.wait(0.02)
    raise AssertionError("the run did not begin")


def test_the_daemon_is_started_restarted_and_stopped(upstream: CountingServer) -> None:
    """Starting and stopping twice is no error. The daemon's environment has no passphrase."""
    with daemon_home() as home:
        aileron = Command(home.path)
        assert aileron("daemon", "start", AILERON_VAULT_PASSPHRASE="a-passphrase").code == 0
        assert aileron("daemon", "start").err.startswith("already running")
        status = aileron("daemon", "status", "--json").json
        if os.geteuid() == 0:  # the process is not dumpable: only root may read this
            assert b"a-passphrase" not in Path(f"/proc/{status['pid']}/environ").read_bytes()
        assert "ready: version" in aileron("daemon", "logs").out
        home.unlock()
        again = aileron("daemon", "restart").exits(0)
        assert re.fullmatch(r"stopped\nstarted, pid \d+\nthe vault is locked: aileron vault unlock\n", again.err)
        assert aileron("daemon", "status", "--json").json["pid"] != status["pid"]
        assert aileron("daemon", "stop").err == "stopped\n"
        assert not Path(f"/proc/{status['pid']}").exists() or _is_zombie(status["pid"])
        assert aileron("daemon", "stop").err == "no daemon is running\n"
        assert aileron("daemon", "status").code == 69


def _is_zombie(pid: int) -> bool:
    """Return whether the process has ended, in a container whose first process does not reap."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_invalid_settings_are_reported_when_the_daemon_starts() -> None:
    """The exit code is 69, and the error has the file and the nearest name."""
    with daemon_home() as home:
        home.configure('[egress]\nprivat = ["a:1"]\n')
        said = Command(home.path)("daemon", "start").exits(69)
        assert "config.toml:2: unknown key 'privat' in [egress]; did you mean 'private'?" in said.err


# Deciding

ASKS = "leave it waiting: "


@pytest.fixture
def asked(aileron: Command) -> str:
    """Id of a question that waits."""
    said = aileron("run", "effect", "path=/x", "--json")
    assert (said.code, said.json["status"]) == (75, "pending_approval"), said
    return str(said.json["approval_id"])


def test_a_gated_action_waits_for_approval_and_its_question_shows_what_it_would_do(
    aileron: Command, asked: str, upstream: CountingServer
) -> None:
    """The action has not run, and the approval shows exactly what it would do."""
    before = upstream.effects
    shown = aileron("approval", "show", asked)

    assert "path\t/x" in shown.out
    assert asked in aileron("approval", "list").out
    assert upstream.effects == before
    assert aileron("deny", asked).code == 0


def test_an_approved_run_happens_only_once_even_after_a_second_decision(
    aileron: Command, asked: str, upstream: CountingServer
) -> None:
    """The result is printed; a second decision comes too late and has no effect."""
    before = upstream.effects
    said = aileron("approve", asked, "--reason", "fine")
    again, denied = aileron("approve", asked), aileron("deny", asked)

    assert (said.code, said.json["body"]) == (0, "done")
    assert (again.code, denied.code) == (6, 6)
    assert again.err.startswith(f"error: {asked} is already completed\n")
    assert upstream.effects == before + 1
    shown = aileron("approval", "show", asked).out
    assert "status\tcompleted\n" in shown
    assert "reason\tfine\n" in shown


def test_a_denied_or_withdrawn_run_does_not_happen(aileron: Command, asked: str, upstream: CountingServer) -> None:
    """A caller that repeats the request with the same key gets the reason."""
    before = upstream.effects
    keyed = ("run", "effect", "--idempotency-key", "denied-once", "--json")
    other = aileron(*keyed).json["approval_id"]

    assert aileron("approval", "cancel", asked[-12:]).err == f"withdrawn {asked}\n"
    assert aileron("deny", other, "--reason", "not today").code == 0
    heard = aileron(*keyed)
    assert (heard.code, heard.json["error"]["details"]) == (5, {"reason": "not today"})
    assert [aileron("approve", name).code for name in (asked, other)] == [6, 6]
    assert upstream.effects == before


@pytest.mark.parametrize(
    ("answers", "code", "effects"),
    [
        ([(ASKS, "y")], 0, 1),
        ([(ASKS, "n"), ("sent to the agent): ", "not today")], 5, 0),
        ([(ASKS, "")], 75, 0),
        ([(ASKS, "\x03")], 130, 0),
    ],
    ids=["yes", "no", "enter", "ctrl-c"],
)
def test_a_person_at_the_terminal_can_approve_or_deny_their_own_run(
    aileron: Command, upstream: CountingServer, answers: list[tuple[str, str]], code: int, effects: int
) -> None:
    """Each answer has its exit code, and only a yes runs the action."""
    before = upstream.effects
    said = aileron.at_terminal("run", "effect", "path=/x", answers=answers, NO_COLOR="1").exits(code)
    assert upstream.effects == before + effects
    assert ("a person denied it: not today" in said.out) == (code == 5)


def test_an_approval_after_a_decision_made_elsewhere_is_reported_as_too_late(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """The question is denied elsewhere while it is on the screen, so the person's approval comes too late."""
    before = upstream.effects

    def late() -> str:
        for entry in home.must("GET", "/v1/action-approvals")["approvals"]:
            home.decide(entry, "deny", "somebody was quicker")
        return "y"

    said = aileron.at_terminal("run", "effect", "path=/x", answers=[(ASKS, late)], NO_COLOR="1").exits(5)
    assert "already decided elsewhere: denied\n" in said.out
    assert "error: a person denied it: somebody was quicker\n" in said.out
    assert upstream.effects == before


def test_an_expired_question_cannot_be_decided(aileron: Command, upstream: CountingServer, tmp_path: Path) -> None:
    """Approving and denying both exit with 6."""
    before = upstream.effects
    file = tmp_path / "short.md"
    file.write_text(probe_action("effect", name="short", gated=True, expires_in="1s"))
    assert aileron("action", "add", str(file)).code == 0
    name = aileron("run", "short", "--json").json["approval_id"]
    while aileron("approval", "show", name, "--json").json["status"] != "expired":
        pass

    assert [aileron(*words).code for words in (("approve", name), ("deny", name))] == [6, 6]
    assert upstream.effects == before


def test_a_run_approved_while_the_vault_is_locked_starts_after_the_vault_is_unlocked(
    aileron: Command, asked: str, home: DaemonHome, upstream: CountingServer
) -> None:
    """The command exits with 0 and reports the locked vault; the run starts after the unlock."""
    before = upstream.effects
    assert aileron("vault", "lock").code == 0
    said = aileron("approve", asked).exits(0)
    assert "starts once the vault is unlocked\n  fix: aileron vault unlock\n" in said.err
    assert upstream.effects == before
    assert f"{asked}\t" in aileron("approval", "list").out
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=PASSPHRASE).code == 0
    assert home.must("GET", f"/v1/action-approvals/{asked}/result?wait=20", wait_s=20)["status"] == "completed"
    assert upstream.effects == before + 1


def test_approving_with_a_given_passphrase_unlocks_the_vault(aileron: Command, asked: str) -> None:
    """The result is printed then."""
    assert aileron("vault", "lock").code == 0
    said = aileron("approve", asked, AILERON_VAULT_PASSPHRASE=PASSPHRASE)

    assert (said.code, said.json["body"]) == (0, "done")


# The fake daemon


def shape(value: Any) -> Any:
    """Return the names in a response without the values; a list keeps its first entry."""
    if isinstance(value, dict):
        return {name: shape(entry) for name, entry in value.items() if name not in ("limits", "jail")}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None


@pytest.mark.parametrize(
    "path", ["/v1/actions", "/v1/connectors", "/v1/bindings", "/v1/secrets", "/v1/vault/status", "/v1/status"]
)
def test_every_field_of_the_fake_daemons_responses_is_also_in_the_real_daemons_responses(
    home: DaemonHome, tmp_path: Path, path: str
) -> None:
    """Each response that commands read is compared; the real one may have more fields."""
    home.unlock()
    answers = json.loads(json.dumps(shape(home.must("GET", path))))
    fake = FakeDaemon(tmp_path)
    fake.add_action("a", "text:string")
    fake.connectors = home.must("GET", "/v1/connectors")["connectors"]
    fake.bindings["b"] = {"name": "b", "connector": "c", "username": "u", "secret": "s", "kind": "k", "created_at": "t"}
    fake.secrets["s"] = b""
    fake.passphrase = "x"
    _, spoken = fake.reply(Seen("operator", "GET", path, {}, {}, None))

    assert _missing(shape(spoken), answers) == []


def _missing(fake: Any, real: Any, where: str = "") -> list[str]:
    """Return the names that only the fake has."""
    match fake, real:
        case dict(), dict():
            return [
                name
                for key, value in fake.items()
                for name in ([f"{where}.{key}"] if key not in real else _missing(value, real[key], f"{where}.{key}"))
            ]
        case [inner], [other]:
            return _missing(inner, other, where + "[]")
        case _:
            return []


# Imports of a command

NEVER = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "asyncio",
    "anyio",
    "argparse",
    "http",
    "email",
    "ssl",
    "subprocess",
    "tempfile",
}
"""Most take 20 ms or more, and no command that is called often needs one of them in a pipe."""
DEAR = {
    *NEVER,
    "aileron.cards.card",
    "aileron.cli.commands.done",
    "inspect",
    "dataclasses",
    "logging",
    "sqlite3",
    "tomllib",
    "difflib",
    "hashlib",
    "shutil",
    "tarfile",
    "zipfile",
}
"""Modules of NEVER, and those that take 2 ms or more."""
NEEDS_NOTHING = (
    *(
        "status",
        "daemon status",
        "daemon start",
        "vault status",
        "action list",
        "action show give-back",
        "approval list",
    ),
    *("audit list", "connector list", "grant list", "binding list", "secret list", "sessions list", "keyring list"),
    *("approve {approved} --yes", "deny {denied}", "approval cancel {cancelled}"),
)
NEEDS = {
    "action validate {file}": {"tomllib"},  # TOML
    "secret set pw": {"aileron.cli.commands.done"},  # a question, where decisions are signed
    "audit verify": {"sqlite3"},  # it reads the ledger itself, row by row
    "config get": {"tomllib"},  # settings are TOML
}
"""Commands that people and scripts call often, with the modules of DEAR that they need, and why."""


def test_each_command_imports_only_the_expensive_modules_that_it_needs(home: DaemonHome) -> None:
    """A person or a script waits for the imports of each command."""
    needs: dict[str, set[str]] = {**{command: set() for command in NEEDS_NOTHING}, **NEEDS}
    home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
    waiting = {
        name: home.asked("ask-first", {"text": name})["approval_id"] for name in ("approved", "denied", "cancelled")
    }
    typed = {
        command: command.format(file=home.path / "actions" / "give-back.md", **waiting).split() for command in needs
    }
    found = {command: imported(home.path, *typed[command]) & DEAR for command in needs}
    home.must("DELETE", "/v1/actions/ask-first")
    more = {command: found[command] - needs[command] for command in needs}

    assert {command: names for command, names in more.items() if names} == {}
    assert all(allowed & NEVER == set() for allowed in needs.values())
    assert "tomllib" in found["config get"], "nothing is seen"
