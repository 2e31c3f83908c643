"""`aileron approver` at a terminal: what it shows, asks and sends, and what remains after an interruption at any point."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.approver_key import keyfile
from aileron.approver_key.keyfile import create, open_key, public_of
from aileron.config import Settings
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.decision import ApproverStatement, check_signature
from aileron.model.secret import Secret
from tests.cli.command import Answers, Command
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error
from tests.support.home import daemon_home
from tests.support.probed import lend_probe

VAULT = "correct horse battery"
MINE = "nine of swords, reversed"
HOSTILE = "basic/mail/\x1b[2Khome\u202e\u200b"
INVENTORY: dict[str, Any] = {
    "actions": [
        {
            "name": "send",
            "version": "1.0.0",
            "digest": "sha256:" + "1" * 64,
            "gated": True,
            "reaches": ["a.example:443", "b.example:443"],
        },
        {"name": "read", "version": "1.0.0", "digest": "sha256:" + "2" * 64, "gated": False, "reaches": []},
    ],
    "bindings": [{"name": HOSTILE, "connector": "github://o/r", "secret": "mail", "username": None}],
    "connectors": [],
    "settings": {"egress.private": ["nas.example.lan:443"], "sandbox.mode": "namespaces"},
}
NEW = [("New approver passphrase:", MINE), ("again:", MINE)]
INIT: Answers = [("[y/N]", "y"), ("Vault passphrase:", VAULT), *NEW]


class World(FakeDaemon):
    """A daemon with an inventory that accepts every statement whose signatures it can verify."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.passphrase, self.is_locked = VAULT, False
        self.inventory: Any = INVENTORY
        self.digest: str | None = None
        self.named: list[dict[str, Any]] = []
        self.script("GET", "/v1/approver/inventory", self._show)
        self.script("POST", "/v1/approver", self.name)

    def _show(self, _seen: Seen) -> Reply:
        return 200, {
            "inventory": self.inventory,
            "digest": self.digest or sha256_digest(canonical_json(self.inventory)),
        }

    def name(self, seen: Seen) -> Reply:
        """Respond to POST /v1/approver."""
        body = dict(seen.body)
        if body.pop("passphrase") != VAULT:
            return error("unauthorized", 401, "the passphrase is wrong")
        signature, old_signature = body.pop("signature"), body.pop("old_signature", None)
        public = bytes.fromhex(body["public_key"])
        statement = ApproverStatement(
            **{"replaces": None, **body, "key_id": "ed25519:" + _digest(public)},
        )
        check_signature(public, statement, signature)
        if self.approver.get("key_id"):
            assert statement.replaces == self.approver["key_id"]
            check_signature(bytes.fromhex(self.approver["public_key"]), statement, old_signature)
        self.named.append(body)
        self.approver = {
            "status": "ready",
            "key_id": statement.key_id,
            "public_key": statement.public_key,
            "created_at": statement.at,
        }
        return 200, {"key_id": statement.key_id}


def _digest(public: bytes) -> str:
    return sha256_digest(public).removeprefix("sha256:")[:32]


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    """The home's fake daemon."""
    with World(home) as daemon:
        yield daemon


@pytest.fixture
def file(home: Path) -> Path:
    """Path of the key file."""
    return home / "approver.json"


def settled(file: Path) -> bool:
    """Return whether the key file is in its place and no staged file is beside it."""
    return file.exists() and not keyfile.staged(file).exists()


def flat(shown: str) -> str:
    """Return the text without colour and line breaks."""
    return " ".join(shown.replace("\x1b[2m", "").replace("\x1b[0m", "").split())


# Made


def test_init_creates_a_key_that_the_daemon_accepts(world: World, aileron: Command, file: Path) -> None:
    """The signed inventory is the one that was shown; the typed passphrase opens the file, and status shows all of it."""
    said = aileron.at_terminal("approver", "init", answers=INIT).exits(0)
    assert settled(file)
    with open_key(file, Secret(MINE.encode())) as key:
        assert [body["public_key"] for body in world.named] == [key.public_key.hex()]
    assert world.named[0]["inventory"] == sha256_digest(canonical_json(INVENTORY))
    assert f"{key.key_id} now signs decisions for this home" in flat(said.out)
    assert MINE not in said.out
    assert VAULT not in said.out
    status = aileron("approver", "status", "--json").json
    assert (status["status"], status["key_id"]) == ("ready", key.key_id)
    assert status["file"] == {"path": str(file), "status": "matches", "key_id": key.key_id}
    shown = flat(aileron.at_terminal("approver", "status").out)
    assert "decisions must be signed" in shown
    assert "present, matches" in shown
    assert "passkeys" not in shown
    world.approver["passkeys"] = 2
    assert "passkeys 2 can sign too" in flat(aileron.at_terminal("approver", "status").out)


def test_init_shows_everything_that_it_signs_and_escapes_hostile_text(world: World, aileron: Command) -> None:
    """Parts of the inventory that this version does not know are shown too."""
    world.inventory = {**INVENTORY, "something newer": [{"name": "x", "opens": {"a": 1}}], "a number": 7}
    said = aileron.at_terminal("approver", "init", answers=[("[y/N]", "n")], NO_COLOR="1")
    assert [line for line in said.out.splitlines() if len(line) > 80] == [], "a terminal would break these inside words"
    shown = flat(said.out)
    for words in (
        "send 1.0.0",
        "sha256:" + "1" * 64,
        "gated: yes; reaches: a.example:443, b.example:443",
        "read 1.0.0",
        "gated: no; reaches: nothing",
        "connectors none",
        "egress.private: nas.example.lan:443",
        "the other 1: defaults (aileron config get)",
        'x; opens: {"a": 1}',
        "a number 7",
        r"basic/mail/\x1b[2Khome\u202e\u200b; connector: github://o/r; secret: mail; username: ",
    ):
        assert words in shown, words
    assert "\u202e" not in shown


def test_init_describes_each_binding_in_words(world: World, aileron: Command) -> None:
    """A line says which connector can use which secret as which user, and for what. A binding with an unknown field is shown
    field by field.
    """
    known: dict[str, Any] = {
        "name": "login/shop/ada",
        "connector": "github://o/db",
        "secret": "pw",
        "username": "ada",
        "reaches": ["db.example.com:5432"],
        "scopes": [],
        "wire": "login postgres+tls://db.example.com:5432",
        "client": None,
        "replaces": False,
        "account": None,
        "details": {"database": "shop", "read_only": True},
        "commitment": None,
    }
    newer = {**known, "name": "login/shop/eve", "opens": "everything"}
    world.inventory = {**INVENTORY, "bindings": [known, newer]}
    said = aileron.at_terminal("approver", "init", answers=[("[y/N]", "n")], NO_COLOR="1")
    shown = flat(said.out)

    assert (
        "login/shop/ada: github://o/db can use the secret pw as ada goes to db.example.com:5432; "
        "logs in at db.example.com:5432 by PostgreSQL over TLS; database shop; "
        "role only reads, which is checked after each login"
    ) in shown
    assert "login/shop/eve; account: none;" in shown
    assert "opens: everything" in shown
    assert "account: none" not in shown.split("login/shop/eve")[0]


def test_init_shows_actions_last_and_default_settings_in_one_line(world: World, aileron: Command) -> None:
    """The whole inventory without bindings fits on a terminal of 24 rows."""
    defaults = msgspec.to_builtins(Settings().consented())
    world.inventory = {**INVENTORY, "bindings": [], "keys": [], "settings": defaults}
    said = aileron.at_terminal("approver", "init", answers=[("[y/N]", "n")], NO_COLOR="1")
    lines = said.out.splitlines()

    places = [said.out.index(f"\n{name} ") for name in ("keys", "settings", "bindings", "connectors", "actions")]
    assert places == sorted(places)
    assert f"settings      all {len(defaults)}: defaults (aileron config get)" in lines
    assert len(lines) < 24


def test_answering_no_to_init_sends_nothing_and_leaves_no_file(
    world: World, aileron: Command, home: Path, file: Path
) -> None:
    """The command asks for no passphrase, sends nothing and leaves no file."""
    for answers in (["n"], [""], ["yess", "n"], ["yess", MINE, MINE]):
        said = aileron.at_terminal("approver", "init", answers=[("[y/N]", answer) for answer in answers])
        assert MINE not in said.out, (
            "a passphrase that is typed at the wrong question is not shown, and none is left for the shell"
        )
        assert (said.code, "nothing changed" in said.out) == (1, True)
        assert "passphrase:" not in said.out
    assert world.asked("POST", "/v1/approver") == []
    assert {path.name for path in home.iterdir()} <= {"run", "approver.json.lock"}


def test_replacing_the_approvers_key_needs_the_old_keys_signature(world: World, aileron: Command, file: Path) -> None:
    """The new key signs as well; a wrong passphrase for the old key leaves everything as it was."""
    aileron.at_terminal("approver", "init", answers=INIT)
    before = file.read_bytes()
    ask: Answers = [("[y/N]", "y"), ("Vault passphrase:", VAULT), ("current key:", "another"), *NEW]
    said = aileron.at_terminal("approver", "init", "--replace", answers=ask[:3])
    assert (said.code, "wrong passphrase" in flat(said.out)) == (6, True)
    assert file.read_bytes() == before
    aileron.at_terminal("approver", "init", "--replace", answers=[*ask[:2], ("current key:", MINE), *NEW]).exits(0)
    assert (len(world.named), settled(file)) == (2, True)
    assert world.named[1]["replaces"] == json.loads(before)["key_id"]
    assert public_of(file).key_id == world.approver["key_id"] != json.loads(before)["key_id"]


def test_init_opens_a_locked_vault_first(world: World, aileron: Command, file: Path) -> None:
    """The vault's passphrase is asked for once and checked before anything is shown; the third wrong one ends the command."""
    world.is_locked = True
    wrong: Answers = [("Its passphrase:", "no")] * 3
    said = aileron.at_terminal("approver", "init", answers=wrong)
    assert (said.code, "2 left" in said.out, "1 left" in said.out) == (6, True, True)
    said = aileron.at_terminal("approver", "init", answers=[wrong[0], ("Its passphrase:", VAULT), ("[y/N]", "y"), *NEW])
    assert (said.code, settled(file)) == (0, True)


def test_only_the_vaults_passphrase_can_come_from_the_environment(world: World, aileron: Command, file: Path) -> None:
    """The approver's passphrase is always typed, and must differ from the vault's."""
    same: Answers = [("[y/N]", "y"), ("New approver passphrase:", VAULT), ("again:", VAULT)]
    short: Answers = [("New approver passphrase:", "short"), ("again:", "short")]
    answers = [*same, *short, *NEW]
    said = aileron.at_terminal("approver", "init", answers=answers, AILERON_VAULT_PASSPHRASE=VAULT).exits(0)
    assert "this is the vault's passphrase: choose another one; try again (2 left)" in flat(said.out)
    assert "at least" not in said.out
    assert "5 bytes" in said.out
    open_key(file, Secret(MINE.encode())).wipe()


# Refused


def test_init_without_a_terminal_says_what_to_do(world: World, aileron: Command, file: Path) -> None:
    """The environment and standard input make no difference."""
    said = aileron("approver", "init", given=f"y\n{MINE}\n{MINE}\n", AILERON_VAULT_PASSPHRASE=VAULT).exits(2)
    assert "creating an approver needs a terminal" in said.err
    assert "in a terminal of your own" in said.err
    assert (world.seen, file.exists()) == ([], False)


def test_init_replaces_an_approver_only_with_the_option_replace(world: World, aileron: Command, file: Path) -> None:
    """The option --replace is refused if there is no approver, or if the file of the key that has to sign is missing. Without
    the option, an existing approver or a key file of unknown use stays.
    """
    said = aileron.at_terminal("approver", "init", "--replace")
    assert (said.code, "no approver to replace" in said.out) == (2, True)
    create(file, Secret(MINE.encode()))
    said = aileron.at_terminal("approver", "init")
    assert (said.code, "already exists" in flat(said.out)) == (2, True)
    file.unlink()
    aileron.at_terminal("approver", "init", answers=INIT)
    said = aileron.at_terminal("approver", "init")
    assert (said.code, "aileron approver init --replace" in said.out) == (2, True)
    file.rename(file.with_name("elsewhere"))
    said = aileron.at_terminal("approver", "init", "--replace", answers=INIT[:2])
    assert (said.code, "restore approver.json from a backup" in flat(said.out)) == (9, True)
    assert len(world.named) == 1
    status = aileron.at_terminal("approver", "status")
    assert "(missing)" in status.out
    create(file, Secret(MINE.encode()))
    assert aileron("approver", "status", "--json").json["file"]["status"] == "another"
    file.write_bytes(b"{}")
    assert aileron("approver", "status", "--json").json["file"]["status"] == "damaged"


@pytest.mark.parametrize("inventory", [INVENTORY, {"a": 2**60}, None])
def test_init_ends_if_the_digest_does_not_match_the_inventory(world: World, aileron: Command, inventory: Any) -> None:
    """The command must sign no content that was not shown; an inventory without a digest is refused too."""
    world.inventory, world.digest = inventory, "sha256:" + "0" * 64
    said = aileron.at_terminal("approver", "init", answers=INIT).exits(9)
    assert "nothing was signed" in flat(said.out)
    assert "passphrase" not in said.out
    assert world.asked("POST", "/v1/approver") == []


def test_init_leaves_no_key_file_if_the_daemon_refuses_it(world: World, aileron: Command, file: Path) -> None:
    """The daemon's error is shown; a staged key would only lead to a second try that cannot succeed."""
    world.script("POST", "/v1/approver", error("hash_mismatch", 409, "something was added meanwhile"))
    said = aileron.at_terminal("approver", "init", answers=INIT)
    assert (said.code, "something was added meanwhile" in flat(said.out)) == (9, True)
    assert (file.exists(), keyfile.staged(file).exists()) == (False, False)


# Interrupted


def test_init_resolves_an_enrollment_whose_response_was_lost(world: World, aileron: Command, file: Path) -> None:
    """The daemon may have accepted the key: the next init then installs it, and makes a new one otherwise."""

    def named_and_gone(seen: Seen) -> Reply:
        world.name(seen)
        raise ConnectionResetError

    def gone(_seen: Seen) -> Reply:
        raise ConnectionResetError

    world.script("POST", "/v1/approver", gone, named_and_gone)
    for is_named in (False, True):
        said = aileron.at_terminal("approver", "init", answers=INIT)
        assert (said.code, "aileron approver init" in said.out) == (8, True), said
        assert (file.exists(), keyfile.staged(file).exists()) == (False, True)
        status = aileron("approver", "status", "--json").json
        assert status["file"]["status"] == ("waiting" if is_named else "absent")
    assert "key exchange was interrupted" in flat(aileron.at_terminal("approver", "status").out)
    said = aileron.at_terminal("approver", "init")
    assert (said.code, settled(file)) == (0, True)
    assert public_of(file).key_id == world.approver["key_id"]
    with open_key(file, Secret(MINE.encode())):
        assert "is now in place" in flat(said.out)


def test_interrupting_init_sends_nothing_and_leaves_no_key(world: World, aileron: Command, file: Path) -> None:
    """Ctrl-C at each of its questions exits with 130, sends nothing and leaves no key."""
    for number in range(1, len(INIT) + 1):
        answers = [*INIT[: number - 1], (INIT[number - 1][0], "\x03")]
        aileron.at_terminal("approver", "init", answers=answers).exits(130)
    assert world.asked("POST", "/v1/approver") == []
    assert (file.exists(), keyfile.staged(file).exists()) == (False, False)


def test_two_concurrent_inits_lose_no_key(world: World, aileron: Command, file: Path) -> None:
    """The second command is told that another process is changing the key."""

    def second() -> str:
        said = aileron.at_terminal("approver", "init")
        assert (said.code, "changed by another process" in flat(said.out)) == (1, True), said
        return "y"

    said = aileron.at_terminal("approver", "init", answers=[("[y/N]", second), *INIT[1:]])
    assert (said.code, settled(file), len(world.named)) == (0, True, 1)


@pytest.mark.jail
def test_a_real_daemon_accepts_the_new_approver_key_and_its_replacement() -> None:
    """The key is found after a restart, then replaced; a key that an interrupted exchange left staged is installed."""
    with daemon_home() as real:
        lend_probe(real)
        aileron, file = Command(real.path), real.path / "approver.json"
        said = aileron.at_terminal("approver", "init", answers=INIT)
        assert (said.code, "basic/probe/me" in said.out) == (0, True), said
        first = public_of(file).key_id
        real.stop()
        assert aileron("approver", "status", "--json").json["status"] == "locked"
        replace: Answers = [("Its passphrase:", VAULT), ("[y/N]", "y"), ("current key:", MINE), *NEW]
        said = aileron.at_terminal("approver", "init", "--replace", answers=replace)
        assert (said.code, first in said.out) == (0, True), said
        status = aileron("approver", "status", "--json").json
        assert (status["status"], status["file"]["status"]) == ("ready", "matches")
        assert status["key_id"] == public_of(file).key_id != first
        file.rename(keyfile.staged(file))
        assert aileron("approver", "status", "--json").json["file"]["status"] == "waiting"
        assert aileron.at_terminal("approver", "init").code == 0
        assert settled(file)
