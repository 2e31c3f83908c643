"""A run that lacks a credential, with a real daemon: bound in place at a terminal before it goes on, or refused with a fix."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import flat
from tests.support.home import PROBE, DaemonHome, daemon_home, probe_action
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "probe"
SECRET = "hunter2-hunter2"
VAULT = "correct horse battery staple"
NO = ("continue? [y/N] ", "n")
NEW = [
    ("Bind one now and continue? [y/N] ", "y"),
    ("Service [probe]: ", "notes"),
    ("]: ", "home"),
    ("User name: ", "mira"),
    ("Password or token: ", SECRET),
]


@pytest.fixture
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """A home with the probe and three of its actions, an open vault, and no bindings."""
    with daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        home.install_probe(f"localhost:{upstream.port}")
        home.unlock()
        home.add_probe_action("fetch", "path:string?", "with_credential:boolean?")
        home.add_probe_action("effect", "path:string?")
        home.add_probe_action("effect", "path:string?", name="ask-first", gated=True)
        yield home


def bind(home: DaemonHome, identity: str) -> None:
    """Bind one more account of the probe."""
    name = f"basic/notes/{identity}"
    home.must("POST", "/v1/bindings", {"connector": PROBE, "name": name, "username": identity, "secret": "pw"})


def user(upstream: CountingServer) -> str:
    """Return the user name in the last request's credential."""
    return base64.b64decode(upstream.requests[-1][2].removeprefix("Basic ")).decode().partition(":")[0]


def test_a_run_without_a_credential_offers_to_bind_one_at_a_terminal(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """The connector's need is shown before the prompt; the run is one request under the given idempotency key."""
    before, words = len(upstream.requests), ("run", "fetch", "path=/hello", "--idempotency-key", "k")
    said = aileron.at_terminal(*words, answers=NEW, NO_COLOR="1")
    shown = flat(said)

    assert said.code == 0, said
    assert SECRET not in said.out
    assert shown.index("for Whatever the test server allows") < shown.index("Bind one now")
    assert home.must("GET", "/v1/bindings")["bindings"][0]["name"] == "basic/notes/home"
    aileron(*words).exits(0)
    assert len(upstream.requests) == before + 1


def test_answering_no_to_the_offered_binding_changes_nothing(aileron: Command, home: DaemonHome) -> None:
    """The exit code is 4, and the error has the command that binds."""
    said = aileron.at_terminal("run", "fetch", answers=[NO], NO_COLOR="1").exits(4)
    assert f"aileron binding setup {PROBE} --name basic/SERVICE/IDENTITY" in flat(said).replace("IDENTITY ", "IDENTITY")
    assert home.must("GET", "/v1/bindings")["bindings"] == []
    assert [secret["name"] for secret in home.must("GET", "/v1/secrets")["secrets"]] == ["pw"]


def test_a_missing_vault_is_created_while_binding(aileron: Command, home: DaemonHome) -> None:
    """A yes creates the vault with a typed passphrase, a no creates none, and a script is told the command."""
    home.must("POST", "/v1/vault/lock")
    (home.path / "vault.json").unlink()
    choose = [("New vault passphrase: ", VAULT), ("again: ", VAULT)]

    denied = aileron.at_terminal("run", "fetch", answers=[NO], NO_COLOR="1")
    assert (denied.code, (home.path / "vault.json").exists()) == (4, False)
    by_script = aileron("secret", "set", "pw", given="a secret value", AILERON_VAULT_PASSPHRASE=VAULT)
    assert (by_script.code, (home.path / "vault.json").exists()) == (4, False)
    assert by_script.err.endswith("  fix: aileron vault init\n")

    said = aileron.at_terminal("run", "fetch", answers=[NEW[0], *choose, *NEW[1:]], NO_COLOR="1").exits(0)
    assert "vault created" in said.out
    assert VAULT not in said.out
    home.must("POST", "/v1/vault/lock")
    assert aileron("vault", "unlock", AILERON_VAULT_PASSPHRASE=VAULT).code == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_no_binding_is_offered_without_a_terminal(aileron: Command, words: tuple[str, ...]) -> None:
    """The command exits with 4 and names the command that binds, also at a terminal with --json or --dry-run."""
    said = aileron("run", "fetch", *words).exits(4)
    setup = f"aileron binding setup {PROBE} --name basic/SERVICE/IDENTITY --username USER --secret NAME"
    assert said.err.splitlines()[-1] == f"  fix: {setup}"
    if words:
        assert said.json["error"]["details"]["setup"] == setup
        assert aileron.at_terminal("run", "fetch", "--json", NO_COLOR="1").code == 4
    assert aileron.at_terminal("run", "fetch", "--dry-run", NO_COLOR="1").code == 4


def test_only_the_result_is_on_standard_output_after_binding(aileron: Command, tmp_path: Path) -> None:
    """The note about the new binding does not go to `> FILE`."""
    file = tmp_path / "result"
    shell = Command(aileron.home, program=["sh", "-c", f'exec "$@" > {file}', "sh", *aileron.program])
    said = shell.at_terminal("run", "fetch", answers=NEW, NO_COLOR="1").exits(0)
    assert file.read_text().startswith('{"status": 200')
    assert "bound basic/notes/home" in said.out


def test_one_of_several_bindings_is_chosen_by_number(
    aileron: Command, home: DaemonHome, upstream: CountingServer
) -> None:
    """The list shows each account; an invalid number is asked for again, and an empty answer runs nothing."""
    bind(home, "home")
    bind(home, "work")
    said = aileron.at_terminal(
        "run", "fetch", "with_credential=true", answers=[("Which? [1-2] ", "3"), ("Which? [1-2] ", "2")], NO_COLOR="1"
    ).exits(0)
    assert "2 basic/notes/work work" in flat(said)
    assert "next time: --as basic/notes/work" in said.out
    assert user(upstream) == "work"

    aileron.at_terminal("run", "fetch", answers=[("Which? [1-2] ", "")], NO_COLOR="1").exits(4)
    assert aileron("run", "fetch", "with_credential=true", "--as", "home").code == 0
    assert user(upstream) == "home"
    assert aileron("run", "fetch").err.splitlines()[-1] == "  fix: aileron run fetch --as basic/notes/home"


def test_a_plan_and_its_approval_and_its_record_show_the_account(aileron: Command, home: DaemonHome) -> None:
    """Kind, scope and account appear before a run, while a person decides, and after it."""
    bind(home, "home")
    kept = {"kind": "basic", "scope": "Whatever the test server allows"}
    for words in (("run", "fetch", "--dry-run"), ("run", "ask-first", "--dry-run")):
        assert "home (basic/notes/home)" in aileron(*words).out
        (step,) = aileron(*words, "--json").json["plan"]["steps"]
        use = step["grant"]["credential"]
        assert {name: use["need"][name] for name in kept} == kept
        assert use["account"] == "home"

    asked = aileron("run", "ask-first", "path=/effect", "--json").json["approval_id"]
    for shown in (aileron("approval", "show", asked), aileron("approve", asked, "--yes")):
        assert shown.code == 0, shown
    assert "home (basic/notes/home): Whatever the test server allows" in aileron("approval", "show", asked).out
    run_id = home.must("GET", f"/v1/action-approvals/{asked}")["audit_id"]
    (requested,) = [event for event in home.events(run_id) if event["type"] == "run.requested"]
    assert [(step["credential"], step["account"]) for step in requested["steps"]] == [("basic/notes/home", "home")]


@pytest.fixture
def wider(home: DaemonHome, upstream: CountingServer, tmp_path: Path) -> str:
    """Name of an action of the probe's next version, which asks for one more host; the binding was made before."""
    bind(home, "home")
    source = tmp_path / "probe"
    shutil.copytree(SOURCE, source)
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('version = "1.0.0"', 'version = "1.1.0"'))
    home.install(source, f"localhost:{upstream.port}", "other.example:443")
    text = probe_action("fetch", "path:string?", name="fetch-wider")
    home.must("POST", "/v1/actions", {"text": text.replace('"1.0.0"\nhash', '"1.1.0"\nhash'), "file": "a test"})
    return "fetch-wider"


def test_a_connector_update_that_asks_for_a_wider_reach_suspends_the_binding(
    aileron: Command, home: DaemonHome, wider: str
) -> None:
    """The new version's actions are refused with what is new and the fix; those of the consented version still run."""
    said = aileron("run", wider, "--json").exits(4)
    assert said.json["error"]["details"]["widened"] == ["host other.example:443"]
    assert said.err.splitlines()[-1] == "  fix: aileron binding rebind basic/notes/home"
    assert aileron("run", "fetch").code == 0
    assert aileron("binding", "list").out.split("\t")[2] == "suspended"
    assert "new\thost other.example:443" in aileron("binding", "inspect", "basic/notes/home").out

    assert aileron("binding", "rebind", "basic/notes/home").code == 0
    assert aileron("run", wider).code == 0


def test_a_suspended_binding_can_be_rebound_while_its_run_waits(aileron: Command, wider: str) -> None:
    """A no exits with 4 and changes nothing; a yes rebinds, and the run continues."""
    question = "Approve all of this? [y/N] "
    no = aileron.at_terminal("run", wider, answers=[(question, "n")], NO_COLOR="1").exits(4)
    assert flat(no).index("new host other.example:443") < flat(no).index("Approve all")
    assert aileron("run", wider).code == 4

    aileron.at_terminal("run", wider, answers=[(question, "y")], NO_COLOR="1").exits(0)
    assert aileron("run", wider).code == 0


def test_a_run_approved_for_one_account_does_not_run_with_another_account(aileron: Command, home: DaemonHome) -> None:
    """The binding's account changed while the question was pending, so the run fails; a new request runs."""
    bind(home, "home")
    asked = aileron("run", "ask-first", "path=/effect", "--json").json["approval_id"]
    assert aileron("binding", "rebind", "basic/notes/home", "--username", "eve").code == 0
    refused = aileron("approve", asked, "--yes")

    assert refused.code != 0
    assert "basic/notes/home has another account than when the run was planned" in " ".join(refused.err.split())
    anew = aileron("run", "ask-first", "path=/effect", "--json").json["approval_id"]
    assert aileron("approve", anew, "--yes").code == 0
