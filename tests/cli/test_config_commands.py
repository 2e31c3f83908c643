"""`aileron config`: reading and changing settings; a change keeps the file valid and its other text as it was."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cli.problem import Problem
from aileron.cli.settings import changed, kind_of, list_in_force, read_text, write_text
from aileron.config import SETTINGS, Settings, parse_settings, written_settings
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon
from tests.support.shaped import shaped

TEXT = """\
# Mine.
[notify]   # words
desktop = false  # too loud

[egress]
private = [
  "nas.lan:443",  # the NAS
]
"""


@pytest.fixture
def file(home: Path) -> Path:
    """Path of that home's settings file, with comments in it."""
    home.mkdir(mode=0o700, exist_ok=True)
    path = home / "config.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


# Reading


def test_config_get_shows_a_setting_and_its_source(aileron: Command, file: Path) -> None:
    """The value is on standard output, the source on standard error; no daemon is started."""
    written, default = aileron("config", "get", "notify.desktop"), aileron("config", "get", "sandbox.mode")

    assert (written.code, written.out) == (0, "false\n")
    assert written.err == f"from the file: {file}\n"
    assert (default.out, default.err) == ("namespaces\n", f"from the default: {file}\n")
    assert aileron("config", "get", "egress.private").out == "nas.lan:443\n"
    assert aileron("config", "get", "hub.url").out == "none\n"
    assert aileron("config", "get", "egress.private", "--json").json == {
        "key": "egress.private",
        "value": ["nas.lan:443"],
        "from": "file",
        "waiting": None,
        "file": str(file),
    }
    assert not (aileron.home / "run").exists()


def test_config_get_without_a_key_shows_all_settings(aileron: Command, home: Path) -> None:
    """Settings are in the order of the documentation page; no home is needed or created."""
    found = aileron("config", "get", "--json").json

    assert [entry["key"] for entry in found["settings"]] == list(SETTINGS)
    assert {entry["from"] for entry in found["settings"]} == {"default"}
    assert "sandbox.mode\tnamespaces\tdefault" in aileron("config", "get").out
    assert not home.exists()


@pytest.mark.parametrize("words", [("get", "notify.dekstop"), ("set", "notify.dekstop", "true")])
def test_an_unknown_setting_is_refused(aileron: Command, file: Path, words: tuple[str, ...]) -> None:
    """The error suggests the nearest name."""
    said = aileron("config", *words).exits(2)
    assert "unknown setting 'notify.dekstop'" in said.err
    assert "why: did you mean 'notify.desktop'?" in said.err
    assert file.read_text() == TEXT


def test_config_get_says_if_a_setting_is_not_in_effect(
    fake: FakeDaemon, aileron: Command, file: Path, monkeypatch: Any
) -> None:
    """Either the daemon cannot read the file, or the setting waits for a restart or for consent."""
    fake.settings_problem = "config.toml: cannot be read"
    assert "cannot be read, so it is not in effect" in aileron("config", "get", "notify.desktop").err
    fake.settings_problem, fake.settings_at_start = None, ["sandbox.mode"]
    assert "when the daemon restarts: aileron daemon restart" in aileron("config", "get", "sandbox.mode").err

    fake.settings_waiting = ["egress.private"]
    assert "needs your approval" in aileron("config", "get", "egress.private").err
    assert aileron("config", "get", "egress.private", "--json").json["waiting"] == "consent"
    assert aileron("config", "get", "notify.desktop", "--json").json["waiting"] is None


# Changing


def test_config_set_changes_one_setting_and_keeps_the_rest_of_the_file(aileron: Command, file: Path) -> None:
    """Comments, order and blank lines stay; new tables are appended."""
    assert aileron("config", "set", "notify.desktop", "true").code == 0
    assert file.read_text() == TEXT.replace("desktop = false", "desktop = true")

    aileron("config", "set", "gateway.upstreams.anthropic.secret", "claude")
    aileron("config", "set", "egress.private", "a.lan:443, b.lan:8443")
    text = file.read_text()
    assert text.startswith("# Mine.\n[notify]   # words\ndesktop = true  # too loud\n")
    assert tomllib.loads(text) == {
        "notify": {"desktop": True},
        "egress": {"private": ["a.lan:443", "b.lan:8443"]},
        "gateway": {"upstreams": {"anthropic": {"secret": "claude"}}},
    }
    assert file.stat().st_mode & 0o777 == 0o600


def test_config_set_with_the_option_default_removes_a_setting(aileron: Command, file: Path) -> None:
    """The setting leaves the file; a second time changes nothing."""
    assert aileron("config", "set", "notify.desktop", "--default").code == 0
    assert "desktop" not in tomllib.loads(file.read_text())["notify"]
    assert "nothing changed" in aileron("config", "set", "notify.desktop", "--default").err
    assert "nothing changed" in aileron("config", "set", "hub.url", "--default").err


def test_the_first_setting_creates_the_file_and_the_home(aileron: Command, home: Path) -> None:
    """Only its owner can access the new home."""
    assert aileron("config", "set", "vault.lock_after", "15m").code == 0

    assert (home / "config.toml").read_text() == '[vault]\nlock_after = "15m"\n'
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("notify.desktop", "yes"), "notify.desktop must be true or false, not 'yes'"),
        (("daemon.port", "http"), "daemon.port must be a number, not 'http'"),
        (("daemon.port", "80"), "port = 80 is not between 1024 and 65535"),
        (("egress.private", "*.lan:443"), "wildcards are not allowed"),
        (("egress.private", "nas.lan"), "'nas.lan' has no port"),
        (("sandbox.mode", "none"), "mode 'none' is not one of namespaces, landlock"),
        (("egress.ca_file", "ca.pem"), "egress.ca_file is not an absolute path"),
        (("vault.lock_after", "forever"), "vault.lock_after is not a duration"),
        (
            ("notify.webhook", "https://hooks.example.com/a"),
            "notify.webhook and notify.webhook_secret must be set together",
        ),
        (("notify.desktop",), "give a VALUE, or --default"),
        (("notify.desktop", "true", "--default"), "give a VALUE, or --default"),
        (("notify.desktop", "true", "--also", "x"), "--also 'x' is not KEY=VALUE"),
        (("notify.desktop", "true", "--also", "notify.desktop=true"), "notify.desktop is given twice"),
        (("sandbox.mode", "a\x1b[2Kb"), "mode 'a\\x1b[2Kb' is not one of"),
    ],
)
def test_config_set_refuses_a_value_that_the_daemon_would_reject(
    aileron: Command, file: Path, words: tuple[str, ...], told: str
) -> None:
    """The error says why, and the file is unchanged."""
    said = aileron("config", "set", *words).exits(2)
    assert told in said.err
    assert "\x1b" not in said.err
    assert file.read_text() == TEXT
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


def test_config_add_appends_an_entry_to_a_list_setting_and_keeps_its_entries(aileron: Command, file: Path) -> None:
    """Layout and comments stay; several entries can be added at once, and an entry that is named twice is added once."""
    first = aileron("config", "add", "egress.private", "db.lan:5432")
    again = aileron("config", "add", "egress.private", "db.lan:5432", "nas.lan:443")
    aileron("config", "add", "egress.private", "a.lan:1,b.lan:2", "a.lan:1")

    assert (first.code, first.out, again.code) == (0, "", 0)
    assert f"changed {file}\negress.private: nas.lan:443, db.lan:5432\n" in first.err
    assert again.err.startswith(f"nothing changed in {file}\n")
    added = "".join(f'  "{entry}",\n' for entry in ("db.lan:5432", "a.lan:1", "b.lan:2"))
    assert file.read_text() == TEXT.replace("# the NAS\n", f"# the NAS\n{added}")


def test_config_remove_deletes_one_entry_of_a_list_setting(aileron: Command, file: Path) -> None:
    """An entry that is not in the list is no mistake; removing the last one leaves an empty list."""
    aileron("config", "add", "egress.private", "db.lan:5432", "b.lan:2")
    assert aileron("config", "remove", "egress.private", "b.lan:2", "db.lan:5432", "c.lan:1").code == 0
    assert file.read_text() == TEXT
    again = aileron("config", "remove", "egress.private", "db.lan:5432")
    assert (again.code, again.err.splitlines()[0]) == (0, f"nothing changed in {file}")

    assert "egress.private: an empty list\n" in aileron("config", "remove", "egress.private", "nas.lan:443").err
    assert tomllib.loads(file.read_text())["egress"] == {"private": []}


def test_adding_to_an_unset_list_setting_keeps_its_default_entries(aileron: Command, home: Path) -> None:
    """The default entries stay in effect, and the file is created if there is none. Removing an unlisted entry creates none."""
    default = shaped(parse_settings("", Path("x")).values()["forges.gitlab.storage"])
    assert aileron("config", "remove", "forges.gitlab.storage", "https://a.example").code == 0
    assert not (home / "config.toml").exists()

    assert aileron("config", "add", "forges.gitlab.storage", "https://a.example").code == 0
    assert aileron("config", "get", "forges.gitlab.storage", "--json").json["value"] == [*default, "https://a.example"]


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("daemon.port", "8080"),
            "daemon.port is not a list\n  why: it is a number\n  fix: aileron config set daemon.port",
        ),
        (("notify.dekstop", "true"), "unknown setting 'notify.dekstop'\n  why: did you mean 'notify.desktop'?"),
        (("egress.private", " , "), "give a VALUE\n  fix: aileron config get egress.private"),
        (("egress.private",), "missing argument"),
    ],
    ids=["a number", "no setting", "no entry", "no word"],
)
def test_config_add_and_remove_refuse_settings_that_are_not_lists(
    aileron: Command, file: Path, verb: str, words: tuple[str, ...], told: str
) -> None:
    """The error also covers unknown settings and missing entries, with a fix; the file is unchanged."""
    said = aileron("config", verb, *words)

    assert (said.code, told in said.err) == (2, True), said
    assert file.read_text() == TEXT


def test_config_add_refuses_an_entry_that_the_daemon_would_reject(aileron: Command, file: Path) -> None:
    """A valid entry in the same command is not added either."""
    for entry, told in (("nas.lan", "'nas.lan' has no port"), ("*.lan:443", "wildcards are not allowed")):
        said = aileron("config", "add", "egress.private", "b.lan:2", entry)
        assert (said.code, told in said.err) == (2, True), said
    assert file.read_text() == TEXT


def test_config_set_names_the_list_entries_that_it_removes_and_the_undo_command(aileron: Command, file: Path) -> None:
    """The person may have meant `add`; the note is absent if no entry is lost."""
    kept = aileron("config", "set", "egress.private", "nas.lan:443,db.lan:5432")
    lost = aileron("config", "set", "egress.private", "b.lan:2")

    assert "no longer" not in kept.err
    undo = "  undo: aileron config add egress.private nas.lan:443 db.lan:5432\n"
    assert f"no longer in egress.private: nas.lan:443 db.lan:5432\n{undo}" in lost.err


def test_added_and_removed_list_entries_wait_for_consent(fake: FakeDaemon, aileron: Command, file: Path) -> None:
    """The daemon requests consent for a change whichever command wrote the file."""
    fake.settings_waiting = ["egress.private"]
    for verb in ("add", "remove"):
        said = aileron("config", verb, "egress.private", "b.lan:443").err
        assert "egress.private: not in effect, needs your approval: aileron approval list" in " ".join(said.split())


def test_settings_that_need_each_other_are_set_in_one_step(aileron: Command, file: Path) -> None:
    """The example is the webhook and the secret that signs its requests."""
    url = "https://hooks.example.com/a?b=c"
    aileron("config", "set", "notify.webhook", url, "--also", "notify.webhook_secret=hook").exits(0)
    assert tomllib.loads(file.read_text())["notify"] == {
        "desktop": False,
        "webhook": url,
        "webhook_secret": "hook",
    }


def test_config_set_says_when_the_setting_takes_effect(fake: FakeDaemon, aileron: Command, file: Path) -> None:
    """The setting takes effect at once, after a restart, or after consent."""
    fake.settings_at_start = ["notify.desktop"]
    plain = aileron("config", "set", "notify.desktop", "true").err
    assert "notify.desktop: takes effect when the daemon restarts: aileron daemon restart" in plain
    assert "approval list" not in plain
    assert "in effect: egress.private\n" in aileron("config", "set", "egress.private", "a.lan:443").err

    fake.settings_waiting = ["egress.private"]
    said = aileron("config", "set", "egress.private", "b.lan:443").err
    assert "egress.private: not in effect, needs your approval: aileron approval list" in " ".join(said.split())


def test_config_commands_do_not_change_a_broken_or_linked_config_file(aileron: Command, file: Path) -> None:
    """The file's problem is shown, by `get` as well; a symbolic link is not followed."""
    file.write_text("[notify\n")
    for words in (("get", "notify.desktop"), ("set", "notify.desktop", "true")):
        assert (said := aileron("config", *words)).code == 2
        assert str(file) in said.err
    assert file.read_text() == "[notify\n"

    file.unlink()
    file.symlink_to(file.parent / "elsewhere.toml")
    assert aileron("config", "set", "notify.desktop", "true").code != 0
    assert not (file.parent / "elsewhere.toml").exists()


# In an editor


def editor(directory: Path, program: str) -> str:
    """Return the command of an editor that runs this Python on the file's content in `text`."""
    script = directory / "editor.py"
    script.write_text(
        f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n{program}\nfile.write_text(text)\n"
    )
    return f"{sys.executable} {script}"


def test_config_edit_saves_the_edited_file(aileron: Command, file: Path, tmp_path: Path) -> None:
    """The editor runs at a terminal; $VISUAL takes precedence over $EDITOR."""
    aileron.at_terminal(
        "config", "edit", VISUAL=editor(tmp_path, "text = text.replace('false', 'true')"), EDITOR="false"
    ).exits(0)
    assert file.read_text() == TEXT.replace("desktop = false", "desktop = true")
    assert aileron.at_terminal("config", "edit", VISUAL=editor(tmp_path, "")).out.strip() == "nothing changed"


def test_config_edit_shows_an_error_and_opens_the_editor_again(aileron: Command, file: Path, tmp_path: Path) -> None:
    """The editor opens the text as it was left; the file is unchanged until the text is valid."""
    program = "text = text.replace('maybe', 'true') if 'maybe' in text else text.replace('false', \"'maybe'\")"
    program += "\ntext = text.replace(\"'true'\", 'true')"
    said = aileron.at_terminal(
        "config", "edit", VISUAL=editor(tmp_path, program), answers=[("Edit it again?", "y")]
    ).exits(0)
    assert "'desktop' is a string; expected a boolean" in " ".join(said.out.split())
    assert file.read_text() == TEXT.replace("desktop = false", "desktop = true")


def test_config_edit_saves_no_invalid_file(aileron: Command, file: Path, tmp_path: Path) -> None:
    """A failing editor and a script without a terminal change nothing either."""
    wrong = editor(tmp_path, "text = '[notify]\\ndekstop = true\\n'")
    left = aileron.at_terminal("config", "edit", VISUAL=wrong, answers=[("Edit it again?", "n")])
    failed = aileron.at_terminal("config", "edit", VISUAL="false")
    piped = aileron("config", "edit", VISUAL=wrong)

    assert (left.code, failed.code, piped.code) == (2, 1, 2)
    assert "did you mean 'desktop'?" in " ".join(left.out.split())
    assert "no terminal to edit at" in piped.err
    assert file.read_text() == TEXT


def test_config_edit_does_not_overwrite_a_file_that_changed_meanwhile(
    aileron: Command, file: Path, tmp_path: Path
) -> None:
    """The daemon may have written its port, or another editor the whole file."""
    program = f"pathlib.Path({str(file)!r}).write_text('[notify]\\n')\ntext = text.replace('false', 'true')"
    said = aileron.at_terminal(
        "config", "edit", VISUAL=editor(tmp_path, program), answers=[("Edit it again?", "n")]
    ).exits(2)
    assert "was changed by another program" in " ".join(said.out.split())
    assert file.read_text() == "[notify]\n"


def test_config_edit_can_fix_a_broken_file(aileron: Command, file: Path, tmp_path: Path) -> None:
    """The command `set` refuses a broken file."""
    file.write_text("[notify\ndesktop = false\n")
    mends = editor(tmp_path, "text = text.replace('[notify', '[notify]')")
    aileron.at_terminal("config", "edit", VISUAL=mends).exits(0)
    assert tomllib.loads(file.read_text()) == {"notify": {"desktop": False}}


# Concurrent changes, and entries that a shell or a comma would split


def test_concurrent_config_changes_are_not_lost(file: Path) -> None:
    """A writer that finds the file changed reports that and writes nothing, so no completed change is undone."""

    def add(entry: str) -> None:
        for _ in range(200):
            before = read_text(file)
            there = list_in_force("egress.private", before, file)
            with contextlib.suppress(Problem):
                write_text(file, before, changed(before, {"egress.private": [*there, entry]}, file))
                return

    wanted = [f"h{number}.lan:443" for number in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(add, wanted))
    assert sorted(list_in_force("egress.private", read_text(file), file)) == sorted(["nas.lan:443", *wanted])


def test_config_add_refuses_a_file_with_a_string_in_place_of_a_list(aileron: Command, file: Path) -> None:
    """The string's characters must not become entries. Positive control: a file with a list accepts the entry."""
    file.write_text('[mcp]\nkeep_listed = "abc"\n')
    assert aileron("config", "add", "mcp.keep_listed", "send").code != 0
    assert tomllib.loads(file.read_text()) == {"mcp": {"keep_listed": "abc"}}

    file.write_text('[mcp]\nkeep_listed = ["abc"]\n')
    assert aileron("config", "add", "mcp.keep_listed", "send").code == 0
    assert tomllib.loads(file.read_text()) == {"mcp": {"keep_listed": ["abc", "send"]}}


@pytest.mark.parametrize(
    ("entry", "undo"),
    [
        ("/my own;reboot=tag:x", "  undo: aileron config add mcp.folders '/my own;reboot=tag:x'\n"),
        ("/a,b=tag:x", None),
    ],
    ids=["shell", "comma"],
)
def test_the_undo_command_of_config_set_can_be_pasted_into_a_shell(
    aileron: Command, file: Path, entry: str, undo: str | None
) -> None:
    """Words are quoted for the shell; for an entry that no argument can express, no command is shown."""
    file.write_text(f"[mcp]\nfolders = [{entry!r}]\n")
    said = aileron("config", "set", "mcp.folders", "/c=tag:y")

    assert f"no longer in mcp.folders: {entry}\n" in said.err
    assert (undo in said.err) if undo is not None else ("undo:" not in said.err), said.err


# The text


TEXTS = [
    "",
    TEXT,
    "notify.desktop = false\n",
    "notify = {desktop = false}\n",
    "[gateway.upstreams.openai]\nurl = 'https://a.example'\n[notify]\n",
    "gateway.require_vault = true # x\nsandbox.mode = 'landlock'\n",
    "[gateway]\nupstreams.openai.url = 'https://a.example'\n[gateway.upstreams.anthropic]\nurl = 'https://b.example'\n",
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "true or false": st.booleans(),
    "a number": st.integers(1024, 65535),
    "a list, separated by commas": st.lists(st.sampled_from(["a.lan:1", "b"]), max_size=3),
    "text": st.text("ab\"'\\\n#=[].\u00e9", max_size=6),
}


@given(st.sampled_from(TEXTS), st.data())
def test_changing_a_setting_alters_no_setting_that_was_not_named(text: str, data: st.DataObject) -> None:
    """This holds for every notation in the file; a change that cannot be inserted is refused."""
    path = Path("config.toml")
    keys = data.draw(st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=3, unique=True))
    changes = {key: data.draw(st.none() | VALUES[kind_of(key)]) for key in keys}
    try:
        found = changed(text, changes, path)
    except Problem as problem:
        fix = problem.fix
    else:
        fix = None
    if fix is not None:
        assert fix == "aileron config edit"
        return

    assert written_settings(found, path) == {
        key: value for key, value in {**written_settings(text, path), **changes}.items() if value is not None
    }
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in found.splitlines() if line.startswith("#") and line in text
    ]


def test_every_setting_has_a_default_value_and_a_kind() -> None:
    """The defaults have the names of the documentation page."""
    values = Settings().values()

    assert list(values) == list(SETTINGS)
    assert {kind_of(key) for key in SETTINGS} == {*VALUES}
    assert parse_settings("[vault]\nlock_after = '15m'\n", Path("x")).values()["vault.lock_after"] == 900
