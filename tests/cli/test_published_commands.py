"""Published artifacts through the command line with a real daemon: installed, updated and synced, with a person and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import INIT, SIGN, at_terminal
from tests.support.forge import ForgeServer
from tests.support.home import DaemonHome, daemon_home
from tests.support.published import KEY, OTHER, Publisher

pytestmark = pytest.mark.jail
BROKEN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
QUESTION = "Install? [y/N] "
MAIL = "github://acme/mail"


@pytest.fixture
def home(forge: ForgeServer) -> Iterator[DaemonHome]:
    """A home that is configured with the forge and trusts Acme's key; decisions are not signed."""
    with daemon_home() as home:
        home.configure(forge.toml())
        home.must("POST", "/v1/keyring", {"authority": MAIL, "key": KEY.public.to_pem(), "source": "a test"})
        yield home


def test_a_connector_is_installed_after_the_person_agrees(aileron: Command, publisher: Publisher) -> None:
    """The signature is shown first, then the capabilities. The default is no, which installs nothing; a yes installs it."""
    pin = publisher.connector("1.0.0", hosts=["api.example.com:443"], credential="api_key")
    command = ("connector", "install", f"{MAIL}@1.0.0")

    declined = aileron.at_terminal(*command, answers=[(QUESTION, "")], NO_COLOR="1")
    nothing = aileron("connector", "list")
    agreed = aileron.at_terminal(*command, answers=[(QUESTION, "y")], NO_COLOR="1")
    again = aileron(*command)

    assert (declined.code, "nothing installed" in declined.out, nothing.out) == (6, True, "")
    shown = " ".join(agreed.out.split())
    assert shown.index("signature") < shown.index("connector") < shown.index("reaches")
    for said in (
        f"verified: {KEY.public.fingerprint}",
        "api.example.com:443",
        "api_key (Send notes)",
        "Acme",
        pin.hash,
    ):
        assert said in shown
    assert agreed.code == 0
    assert f"{MAIL}\t1.0.0" in aileron("connector", "list").out
    assert (again.code, "is already installed with this content" in again.err) == (0, True)


@pytest.mark.abuse_case("B19")
def test_installing_a_connector_without_a_terminal_requires_the_option_yes(
    aileron: Command, publisher: Publisher, home: DaemonHome
) -> None:
    """The error names --yes, and no fetched file remains."""
    publisher.connector("1.0.0")

    said = aileron("connector", "install", f"{MAIL}@1.0.0")
    left = list((home.path / "store" / "fetched").iterdir())
    done = aileron("connector", "install", f"{MAIL}@1.0.0", "--yes")

    assert (said.code, "a person must confirm" in said.err, left) == (2, True, [])
    assert f"fix: aileron connector install {MAIL}@1.0.0 --yes" in said.err
    assert (done.code, f"verified: {KEY.public.fingerprint}" in done.err) == (0, True)


@pytest.mark.abuse_case("B19")
def test_install_refuses_a_connector_whose_hash_differs_from_the_given_hash(
    aileron: Command, publisher: Publisher
) -> None:
    """This holds even if the version is installed already. An incomplete hash is wrong usage."""
    pin = publisher.connector("1.0.0")
    command = ("connector", "install", f"{MAIL}@1.0.0", "--hash")

    half = aileron(*command, "sha256:12")
    other = aileron(*command, f"sha256:{'0' * 64}", "--yes")
    unasked = aileron(*command, pin.hash)
    same = aileron(*command, pin.hash, "--yes")
    installed = aileron(*command, f"sha256:{'0' * 64}", "--yes")

    assert half.code == 2
    assert (other.code, "nothing was installed" in other.err, same.code) == (9, True, 0)
    assert f"fix: aileron connector install {MAIL}@1.0.0 --hash {pin.hash} --yes" in unasked.err
    assert (installed.code, "nothing was installed" in installed.err) == (9, True)


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("github://acme/mail@v1.0.0", 2, "no leading v"),
        ("github://acme/mail", 2, "has no version"),
        ("github://acme/mail@latest", 2, "'latest' is not"),
        ("svn://acme/mail@1.0.0", 2, "has no known scheme"),
        ("github://acme/mail@3.0.0", 3, "has no version 3.0.0: there are 1.0.0"),
        ("github://acme/none@1.0.0", 3, "no version of it is published there"),
        ("hub://acme/mail@1.0.0", 3, "has no version 1.0.0"),
    ],
)
def test_an_artifact_that_cannot_be_fetched_is_reported(
    aileron: Command, publisher: Publisher, what: str, code: int, says: str
) -> None:
    """Ranges, tags and unknown schemes are refused; for a missing version the error lists those that are published."""
    publisher.connector("1.0.0")

    said = aileron("connector", "install", what, "--yes")

    assert (said.code, says in said.err) == (code, True), said.err


@pytest.mark.abuse_case("B19")
def test_a_wrong_signature_is_refused_even_with_the_option_yes(aileron: Command, publisher: Publisher) -> None:
    """An unsigned version is installed with a warning in capitals if a key of its publisher is trusted."""
    publisher.connector("1.0.0", key=OTHER)
    publisher.connector("1.1.0", unsigned=True)

    wrong = aileron("connector", "install", f"{MAIL}@1.0.0", "--yes", "--replace")
    unsigned = aileron("connector", "install", f"{MAIL}@1.1.0", "--yes")

    assert (wrong.code, "is from none of the keys" in wrong.err) == (9, True)
    assert (unsigned.code, "UNSIGNED, although you trust a key of its publisher" in unsigned.err) == (0, True)


def test_installing_an_action_asks_once_about_it_and_its_connectors(
    aileron: Command, publisher: Publisher, home: DaemonHome
) -> None:
    """The question shows every part. A no installs nothing; the connector that needs a credential is named afterwards."""
    pins = [publisher.connector("1.0.0", hosts=["api.example.com:443"], credential="api_key")]
    pins.append(publisher.connector("1.0.0", path="/more"))
    source = publisher.action("say-both", "1.0.0", pins, gated=True)

    declined = aileron.at_terminal("action", "add", source, answers=[(QUESTION, "n")], NO_COLOR="1")
    nothing = aileron("connector", "list").out + aileron("action", "list").out
    agreed = aileron.at_terminal("action", "add", source, answers=[(QUESTION, "y")], NO_COLOR="1")

    assert (declined.code, nothing) == (6, "")
    assert agreed.code == 0
    shown = " ".join(agreed.out.split())
    for said in (f"{MAIL}@1.0.0", f"{MAIL}/more@1.0.0", "say-both (new)", "needs approval"):
        assert said in shown
    assert f"next: aileron binding setup {MAIL}" in shown
    listed = aileron("action", "list").out.rstrip("\n")
    assert (listed.startswith("say-both\t1.0.0"), listed.split("\t")[-1]) == (True, source)
    assert aileron("action", "show", "say-both", "--json").json["source"] == source


def test_an_update_shows_the_changes_and_keeps_local_edits(
    aileron: Command, publisher: Publisher, home: DaemonHome
) -> None:
    """`check` finds the update, `diff` shows it and `update` applies it; --version goes back."""
    publisher.connector("1.0.0")
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    aileron("action", "add", source, "--yes")
    file = home.path / "actions" / "say.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Says it.", "Says it, to me."), encoding="utf-8")
    new = publisher.connector("1.1.0", limits="memory_mb = 128")
    publisher.action("say", "1.1.0", [new])

    check, diff = aileron("connector", "check"), aileron("action", "diff", "say")
    still = aileron("action", "list").out
    updated = aileron.at_terminal("action", "update", "say", answers=[(QUESTION, "y")] * 2, NO_COLOR="1")
    newest = aileron("action", "update", "say")
    back = aileron("action", "update", "say", "--version", "1.0.0", "--yes")

    assert f"{MAIL}\t1.0.0\t1.1.0" in check.out
    assert '+version = "1.1.0"' in diff.out
    assert still.startswith("say\t1.0.0")
    assert (updated.code, "limits.memory_mb: 64 → 128" in updated.out) == (0, True)
    assert "Says it, to me." in file.read_text(encoding="utf-8")
    assert (newest.code, "1.1.0 is the newest version" in newest.err) == (0, True)
    assert (back.code, aileron("action", "list").out.startswith("say\t1.0.0")) == (0, True)


def test_an_update_check_that_reached_no_forge_exits_with_7(
    aileron: Command, publisher: Publisher, forge: ForgeServer
) -> None:
    """A check that reached one of two forges exits with 0 and a note, and so does one with nothing to check."""
    nothing = aileron("connector", "check")
    aileron("action", "add", publisher.action("say", "1.0.0", [publisher.connector("1.0.0")]), "--yes")
    both = aileron("connector", "check")
    forge.disturb(BROKEN)
    partial = aileron("connector", "check", "--json")
    forge.disturb(BROKEN, BROKEN)
    none = aileron("connector", "check", "--json")

    assert (nothing.code, both.code, both.err) == (0, 0, "")
    assert (partial.code, partial.err) == (0, "1 of 2 checks failed\n")
    assert (none.code, none.err.startswith("error: none of the 2 checks succeeded")) == (7, True), none
    assert [bool(json.loads(line)["problem"]) for line in none.out.splitlines()] == [True, True]


def test_an_update_conflict_is_resolved_in_an_editor(
    aileron: Command, publisher: Publisher, home: DaemonHome, tmp_path: Path
) -> None:
    """The file is unchanged without a terminal, if a conflict marker is left, and after a no; a resolved file is installed."""
    pin = publisher.connector("1.0.0")
    aileron("action", "add", publisher.action("say", "1.0.0", [pin]), "--yes")
    file = home.path / "actions" / "say.md"
    mine = file.read_text(encoding="utf-8").replace("Says it.", "Mine.")
    file.write_text(mine, encoding="utf-8")
    publisher.action("say", "1.1.0", [pin], body="Theirs.")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i -e "/^<<<<<<</d;/^=======/,/^>>>>>>>/d" "$1"\n', encoding="utf-8")
    editor.chmod(0o755)

    unasked = aileron("action", "update", "say", "--yes")
    left = aileron.at_terminal("action", "update", "say", "--yes", answers=[], EDITOR="true")
    declined = aileron.at_terminal(
        "action", "update", "say", answers=[(QUESTION, "")], EDITOR=str(editor), NO_COLOR="1"
    )
    untouched = file.read_text(encoding="utf-8")
    done = aileron.at_terminal("action", "update", "say", "--yes", answers=[], EDITOR=str(editor))

    assert (unasked.code, "--theirs" in unasked.err) == (2, True)
    assert (left.code, "conflict markers left" in left.out, untouched) == (2, True, mine)
    assert (declined.code, "action      say (" in declined.out) == (6, True)
    assert done.code == 0
    assert "Mine." in file.read_text(encoding="utf-8")
    assert 'version = "1.1.0"' in file.read_text(encoding="utf-8")


def test_installing_a_suite_continues_after_a_missing_action(
    aileron: Command, publisher: Publisher, forge: ForgeServer, tmp_path: Path
) -> None:
    """Actions are installed in order, and the missing one is reported last."""
    pin = publisher.connector("1.0.0")
    for handle in ("say", "say-more"):
        publisher.action(handle, "1.0.0", [pin])
    text = 'name = "Mail"\ndescription = "Say things."\nactions = ["actions/say", "actions/none", "actions/say-more"]\n'
    forge.files[MAIL, "v1.0.0", "suite.toml"] = text
    own = tmp_path / "mine.toml"
    own.write_text(f'name = "Mine"\ndescription = "One."\nactions = ["{MAIL}/actions/say@1.0.0"]\n', encoding="utf-8")

    suite = aileron("action", "add-suite", f"{MAIL}/suite.toml@v1.0.0", "--yes")
    mine = aileron("action", "add-suite", str(own), "--yes")

    assert suite.code == 3
    assert "2 of 3 installed" in suite.err
    assert f"not installed: {MAIL}/actions/none@1.0.0: {MAIL}/actions/none has no version 1.0.0" in suite.err
    assert [line.split("\t")[0] for line in aileron("action", "list").out.splitlines()] == ["say", "say-more"]
    assert (mine.code, "1 of 1 installed" in mine.err) == (0, True)


def test_sync_installs_the_connectors_that_actions_are_pinned_to(
    aileron: Command, publisher: Publisher, home: DaemonHome
) -> None:
    """The home came with its action files only; missing credentials are reported, and a second sync changes nothing."""
    pin = publisher.connector("1.0.0", hosts=["api.example.com:443"], credential="api_key")
    folder = home.path / "actions"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "say.md").write_text(publisher.text("say", "1.0.0", [pin]), encoding="utf-8")

    first, second = aileron("sync", "--yes"), aileron("sync", "--json")
    bound = aileron("sync", "--bind-all")

    assert (first.code, f"{MAIL} has no credential" in first.err) == (0, True)
    assert second.json == {"connectors": [], "problems": [], "unbound": [MAIL]}
    assert bound.code == 2
    assert aileron("connector", "verify").out.endswith("matches its hash\n")


def test_unused_connectors_are_shown_and_removed_after_confirmation(aileron: Command, publisher: Publisher) -> None:
    """A terminal asks for confirmation; a script needs --yes."""
    publisher.connector("1.0.0")
    aileron("connector", "install", f"{MAIL}@1.0.0", "--yes")

    unasked = aileron("connector", "remove", "--unused")
    kept = aileron.at_terminal("connector", "remove", "--unused", answers=[("Remove? [y/N] ", "")])
    removed = aileron("connector", "remove", "--unused", "--yes")
    none = aileron("connector", "remove", "--unused")

    assert (unasked.code, kept.code, removed.code, none.code) == (2, 6, 0, 0)
    assert f"removed {MAIL}@1.0.0" in removed.err
    assert "no unused connectors" in none.err


def test_installing_an_action_and_its_connector_takes_one_signature_of_the_approver(
    aileron: Command, publisher: Publisher, home: DaemonHome
) -> None:
    """A single question at the terminal covers both; a denial installs neither."""
    home.unlock()
    assert aileron.at_terminal("approver", "init", answers=INIT).code == 0
    source = publisher.action("say", "1.0.0", [publisher.connector("1.0.0")])
    yes, no = ("leave it waiting: ", "y"), ("leave it waiting: ", "n")

    declined = at_terminal(
        aileron, "action", "add", source, answers=[no, ("sent to the agent and signed): ", "no"), SIGN]
    )
    nothing = aileron("connector", "list").out + aileron("action", "list").out
    waiting = aileron("action", "add", source, "--yes")
    ids = waiting.out.split()
    agreed = at_terminal(aileron, "action", "add", source, answers=[yes, SIGN])

    assert (declined.code, nothing) == (5, "")
    assert (waiting.code, len(ids)) == (75, 1)
    assert agreed.code == 0, agreed
    assert "Install “say”: 1 connector, 1 action" in agreed.out
    assert aileron("action", "list").out.startswith("say\t1.0.0")
    assert aileron("approval", "list").out == ""
    assert aileron("run", "say").code == 0


def test_install_with_a_hash_fails_if_the_installed_version_differs(aileron: Command, publisher: Publisher) -> None:
    """An installed version with other content must not count as success."""
    pin = publisher.connector("1.0.0")
    aileron("connector", "install", f"{MAIL}@1.0.0", "--yes")

    same = aileron("connector", "install", f"{MAIL}@1.0.0", "--hash", pin.hash, "--yes")
    other = aileron("connector", "install", f"{MAIL}@1.0.0", "--hash", f"sha256:{'0' * 64}", "--yes")

    assert (same.code, other.code) == (0, 9)


def test_an_update_with_a_resolved_conflict_still_needs_consent(
    aileron: Command, publisher: Publisher, home: DaemonHome, tmp_path: Path
) -> None:
    """Closing the editor is not an approval: the publisher's other changes come with the file."""
    pin = publisher.connector("1.0.0")
    aileron("action", "add", publisher.action("say", "1.0.0", [pin], gated=True), "--yes")
    file = home.path / "actions" / "say.md"
    mine = file.read_text(encoding="utf-8").replace("Says it.", "Mine.")
    file.write_text(mine, encoding="utf-8")
    publisher.action("say", "1.1.0", [pin], body="Theirs.", gated=False)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i -e "/^<<<<<<</d;/^=======/,/^>>>>>>>/d" "$1"\n', encoding="utf-8")
    editor.chmod(0o755)

    declined = aileron.at_terminal("action", "update", "say", answers=[(QUESTION, "")], EDITOR=str(editor))
    untouched = file.read_text(encoding="utf-8")
    agreed = aileron.at_terminal("action", "update", "say", answers=[(QUESTION, "y")], EDITOR=str(editor))

    assert (declined.code, untouched) == (6, mine)
    assert agreed.code == 0
    assert "required = false" in file.read_text(encoding="utf-8")
