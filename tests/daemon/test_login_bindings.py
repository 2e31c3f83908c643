"""A login is bound with what its protocol needs, shown, approved, suspended if its connector wants more, and chosen by role."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from aileron.client import Answer
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home, probe_action, word
from tests.support.told import error_of

pytestmark = pytest.mark.jail

DATABASE, GIT = "github://aileron-tests/database", "github://aileron-tests/git"
MANIFEST = """\
[connector]
name = "{name}"
version = "{version}"

[capabilities.network]
hosts = ["{host}"]

[capabilities.credential]
kind = "login"
scope = "Test it"
logins = ["{protocol}://{host}"]
{commands}

[capabilities.runtime]
imports = ["tcp"]
"""
PROGRAM = """\
from aileron_connector import op, run

@op
def query():
    return {"done": "query"}

@op
def execute():
    return {"done": "execute"}

run()
"""
OPERATIONS = '\n[[operations]]\nname = "query"\nlogin = "read_only"\n\n[[operations]]\nname = "execute"\n'
HOST_KEY = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
SSH_KEY = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def install(home: DaemonHome, where: Path, text: str, **fields: str) -> None:
    """Install a connector with that manifest."""
    source = where / f"{fields['name'].rpartition('/')[2]}-{fields['version']}"
    source.mkdir()
    (source / "manifest.toml").write_text(text.format(**{"commands": "", **fields}))
    (source / "__main__.py").write_text(PROGRAM)
    home.install(source)


def install_database(home: DaemonHome, where: Path) -> None:
    """Install a connector with an operation that only reads and one that writes, and an action for each and for both."""
    host = "db.example:5432"
    install(home, where, MANIFEST + OPERATIONS, name=DATABASE, version="1.0.0", host=host, protocol="postgres")
    for op in ("query", "execute"):
        home.add_probe_action(op, connector=DATABASE)
    both = probe_action("query", name="both", connector=DATABASE).replace('["query"]', '["query", "execute"]')
    further = f'[[execute]]\nid = "more"\nconnector = "{DATABASE}"\nop = "execute"\nidempotent = false\n+++\n\n#'
    home.must("POST", "/v1/actions", {"text": both.replace("+++\n\n#", further), "file": "a test"})


def install_git(home: DaemonHome, where: Path, version: str = "1.0.0", *more: str) -> None:
    """Install a connector that can fetch, and run the further commands."""
    commands = f"commands = {['git-upload-pack x.git', *more]}"
    fields = {"name": GIT, "host": "git.example:22", "protocol": "ssh", "commands": commands}
    install(home, where, MANIFEST, version=version, **fields)


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """Start a home whose open vault has a password and a private key."""
    with daemon_home() as made:
        made.ask("GET", "/healthz")
        made.unlock()
        made.must("PUT", "/v1/secrets/key", {"value_base64": base64.b64encode(SSH_KEY).decode()})
        yield made


def bind(home: DaemonHome, connector: str, name: str, **details: Any) -> Answer:
    """Bind a login with the stored password, or with the key for ssh."""
    secret = "key" if connector == GIT else "pw"
    body = {"connector": connector, "name": name, "username": "me", "secret": secret}
    return home.ask("POST", "/v1/bindings", {**body, "details": details} if details else body)


def test_a_database_login_is_bound_and_shown_with_its_details(home: DaemonHome, tmp_path: Path) -> None:
    """All responses show user, database and that the role only reads; the connector's manifest says which server."""
    install_database(home, tmp_path)

    bound = bind(home, DATABASE, "login/db/reader", database="shop", read_only=True)
    listed = home.must("GET", "/v1/bindings")["bindings"]
    shown = home.must("GET", "/v1/bindings/login/db/reader")
    wanted = home.must("GET", "/v1/connectors")["connectors"][0]["credential"]

    assert (bound.status, bound.body["details"]) == (200, {"database": "shop", "read_only": True})
    assert [(binding["name"], binding["username"], binding["details"]) for binding in listed] == [
        ("login/db/reader", "me", {"database": "shop", "read_only": True})
    ]
    assert shown["details"] == {"database": "shop", "read_only": True}
    assert shown["reach"]["wire"] == "login postgres+tls://db.example:5432"
    assert wanted == {
        "kind": "login",
        "scope": "Test it",
        "logins": ["postgres+tls://db.example:5432"],
        "commands": [],
        "read_only": True,
    }


def test_a_login_with_missing_or_unsupported_details_is_not_bound(home: DaemonHome, tmp_path: Path) -> None:
    """An ssh login needs a host key and has no database; the error names the option to add or to leave out."""
    install_git(home, tmp_path)

    refused = error_of(bind(home, GIT, "login/git/me"))
    of_a_database = error_of(bind(home, GIT, "login/git/me", host_key=HOST_KEY, database="x"))
    unknown = bind(home, GIT, "login/git/me", port=1)
    bound = bind(home, GIT, "login/git/me", host_key=HOST_KEY)

    assert (refused["class"], of_a_database["class"]) == ("bad_input", "bad_input")
    assert "add --host-key" in refused["message"]
    assert "leave --database out" in of_a_database["message"]
    assert unknown.status == 400
    assert bound.body["details"] == {"host_key": HOST_KEY}


def test_a_read_only_login_serves_queries_and_a_writing_login_everything_else(home: DaemonHome, tmp_path: Path) -> None:
    """The error for a missing login has the command that binds it with the right role."""
    install_database(home, tmp_path)

    nothing = error_of(home.run("query"))
    bind(home, DATABASE, "login/db/writer")
    still = error_of(home.run("query"))
    written = home.run("execute")
    bind(home, DATABASE, "login/db/reader", read_only=True)
    read, both = home.run("query"), home.run("both")
    plan = home.must("POST", "/v1/actions/both/run", {"args": {}, "dry_run": True})["plan"]
    home.must("DELETE", "/v1/bindings/login/db/writer")
    none_to_write = error_of(home.run("both"))

    setup = f"aileron binding setup {DATABASE} --name login/SERVICE/IDENTITY --username USER --secret NAME"
    for refused in (nothing, still):
        assert refused["class"] == "binding_required"
        assert refused["details"]["setup"] == f"{setup} --read-only"
        assert "as a role that only reads" in refused["message"]
    assert (word(written), word(read), word(both)) == ("ok", "ok", "ok")
    used = [step["grant"]["credential"] for step in plan["steps"]]
    assert [(use["binding"]["identity"], use.get("login")) for use in used] == [
        ("reader", "read_only"),
        ("writer", None),
    ]
    assert none_to_write["details"]["setup"] == setup


def test_a_plan_for_a_read_only_login_does_not_run_after_the_login_can_write(home: DaemonHome, tmp_path: Path) -> None:
    """A rebound login is a different binding, so the pending plan is refused."""
    install_database(home, tmp_path)
    home.add_probe_action("query", name="asked", gated=True, connector=DATABASE)
    bind(home, DATABASE, "login/db/me", read_only=True)
    waiting = home.asked("asked")
    home.must("PATCH", "/v1/bindings/login/db/me", {"details": {}})

    decided = home.ask(
        "POST",
        f"/v1/action-approvals/{waiting['approval_id']}/decide",
        {"decision": "approve", "digest": waiting["digest"]},
    )
    ended = home.must("GET", f"/v1/runs/{waiting['audit_id']}?wait=20", wait_s=20)

    assert decided.status == 200
    assert home.must("GET", "/v1/bindings/login/db/me").get("details") is None
    assert (ended["status"], ended["error"]["class"]) == ("failed", "binding_failed")


@pytest.mark.abuse_case("LP11")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"details": {"database": "test"}}, "with another database: request it again"),
        ({"username": "eve"}, "with another user name: request it again"),
        ({"secret": "new"}, None),
    ],
    ids=["database", "user name", "password"],
)
def test_a_plan_approved_for_one_login_does_not_run_with_a_different_login(
    home: DaemonHome, tmp_path: Path, change: dict[str, Any], words: str | None
) -> None:
    """The login is rebound while a person decides: a changed database or user name fails the run before it begins; a
    changed password does not.
    """
    install_database(home, tmp_path)
    home.add_probe_action("execute", name="asked", gated=True, connector=DATABASE)
    bind(home, DATABASE, "login/db/me", database="shop")
    home.must("PUT", "/v1/secrets/new", {"value_base64": base64.b64encode(b"a new password").decode()})
    waiting = home.asked("asked")
    plan = home.must("GET", f"/v1/action-approvals/{waiting['approval_id']}")["plan"]
    home.must("PATCH", "/v1/bindings/login/db/me", change)

    decided = home.decide(waiting, "approve")
    ended = home.result(waiting)

    bound = plan["steps"][0]["grant"]["credential"]["bound"]
    assert (decided.status, bound) == (200, {"username": "me", "details": {"database": "shop"}})
    if words is None:
        assert (ended["status"], ended["result"]) == ("completed", {"done": "execute"})
        return
    assert (ended["status"], ended["error"]["class"]) == ("failed", "binding_failed")
    assert words in ended["error"]["message"]
    assert ended["error"]["details"]["reason"] == "binding_changed"
    home.decide(again := home.asked("asked"), "approve")
    assert home.result(again)["status"] == "completed"


@pytest.mark.abuse_case("LP11")
@pytest.mark.parametrize("is_moved", [True, False], ids=["bound for another host", "not bound anew"])
def test_a_plan_approved_for_one_host_never_uses_the_secret_of_another_host(
    home: DaemonHome, tmp_path: Path, is_moved: bool
) -> None:
    """A newer version logs in at another host, and the login is bound again for that host with a new password: the
    older version's pending run does not begin. It does while the binding is for the old host.
    """
    install_database(home, tmp_path)
    home.add_probe_action("execute", name="asked", gated=True, connector=DATABASE)
    bind(home, DATABASE, "login/db/me", database="shop")
    home.must("PUT", "/v1/secrets/new", {"value_base64": base64.b64encode(b"a new password").decode()})
    waiting = home.asked("asked")
    elsewhere = MANIFEST.replace("{host}", "moved.example.test:5432") + OPERATIONS
    install(home, tmp_path, elsewhere, name=DATABASE, version="2.0.0", protocol="postgres")
    if is_moved:
        home.must("PATCH", "/v1/bindings/login/db/me", {"secret": "new"})

    home.decide(waiting, "approve")
    ended = home.result(waiting)

    assert ended["status"] == ("failed" if is_moved else "completed"), ended
    if is_moved:
        assert "and not for a login at" in ended["error"]["message"]
        assert ended["error"]["details"]["reason"] == "binding_changed"


def test_a_connector_version_with_another_ssh_command_suspends_its_login_until_rebound(
    home: DaemonHome, tmp_path: Path
) -> None:
    """The old version still runs, and the binding names the new command. Rebinding keeps the server's host key."""
    install_git(home, tmp_path)
    bind(home, GIT, "login/git/me", host_key=HOST_KEY)
    install_git(home, tmp_path, "2.0.0", "git-receive-pack x.git")

    suspended = home.must("GET", "/v1/bindings/login/git/me")
    home.must("PATCH", "/v1/bindings/login/git/me", {})
    after = home.must("GET", "/v1/bindings/login/git/me")

    assert (suspended["state"], suspended["suspended"]) == ("suspended", ["command git-receive-pack x.git"])
    assert (after["state"], after["details"]) == ("ok", {"host_key": HOST_KEY})
    assert [(user["version"], user["suspended"]) for user in after["used_by"]] == [("2.0.0", []), ("1.0.0", [])]


def test_the_approver_signs_a_logins_details(home: DaemonHome, tmp_path: Path) -> None:
    """The login is not bound before the approval, and the question shows the server's host key."""
    approver = Approver()
    install_git(home, tmp_path)
    approver.appoint(home)

    waiting = bind(home, GIT, "login/git/me", host_key=HOST_KEY)
    question = approver.shown(home, waiting.body["approval_id"])
    before = home.must("GET", "/v1/bindings")["bindings"]
    approver.agree(home, waiting)
    shown = home.must("GET", "/v1/bindings/login/git/me")
    encoded = base64.b64encode(b"a tab\tin a password").decode()
    unfit = home.ask("PUT", "/v1/secrets/key", {"value_base64": encoded})

    assert question["subject"]["details"] == {"host_key": HOST_KEY}
    assert question["subject"]["wire"].startswith("login ssh+tls://git.example:22 ")
    assert before == []
    assert shown["details"] == {"host_key": HOST_KEY}
    assert error_of(bind(home, GIT, "login/git/you"))["class"] == "bad_input"  # refused before any question
    assert error_of(unfit)["class"] == "bad_input"
