"""Beginning an action file, and the schema for an editor."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import jsonschema
import pytest

from aileron.actions.manifest import SCHEMA, parse_action
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon

PIN = "sha256:" + "ab" * 32
MAIL = {"name": "github://acme/mail", "version": "1.2.0", "hash": PIN}


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files are written that nobody named."""
    monkeypatch.chdir(tmp_path)


def test_a_new_action_is_valid_at_once(aileron: Command, tmp_path: Path):
    """Without a daemon, and none is started; what nobody knows is a placeholder, and is said."""
    said = aileron("action", "new", "send-email")
    action = parse_action((tmp_path / "send-email.md").read_text("utf-8"), file="x", allow_placeholder=True)

    assert (said.code, said.out) == (0, "send-email.md\n")
    assert "still to be named: the connector, its version, the operation" in said.err
    assert action.approval.required
    assert aileron("action", "validate", "send-email.md").out == "send-email.md: ok, send-email 0.1.0\n"
    assert not (aileron.home / "run").exists()


def test_an_installed_connector_gives_its_version_and_hash(fake: FakeDaemon, aileron: Command, tmp_path: Path):
    """The one that is meant; of several none, and another version stays a placeholder."""
    fake.connectors = [MAIL, {**MAIL, "name": "github://acme/mail2"}]
    known = aileron("action", "new", "a", "--connector", "github://acme/mail", "--op", "send_email")
    action = parse_action((tmp_path / "a.md").read_text("utf-8"), file="a.md")

    assert [str(one.name) + one.version + one.hash for one in action.connectors] == ["github://acme/mail1.2.0" + PIN]
    assert (action.steps[0].op, action.connectors[0].capabilities) == ("send_email", ("send_email",))
    assert "still" not in known.err

    fake.connectors.append({**MAIL, "version": "1.3.0"})
    for name, wanted in (("b", "github://acme/mail"), ("c", "github://acme/mail@9.0.0")):
        assert "its version" in aileron("action", "new", name, "--connector", wanted, "--op", "x").err
        assert 'hash = "sha256:bound-at-release"' in (tmp_path / f"{name}.md").read_text("utf-8")
    assert aileron("action", "new", "d", "--connector", "github://acme/mail@1.3.0").code == 0
    assert 'version = "1.3.0"' in (tmp_path / "d.md").read_text("utf-8")


def test_no_file_is_overwritten(aileron: Command, tmp_path: Path):
    """Nor what a link leads to; another name is taken."""
    (tmp_path / "a.md").write_text("mine")
    os.symlink(tmp_path / "elsewhere", tmp_path / "link.md")

    for words in (("a",), ("b", "-o", "a.md"), ("b", "-o", "link.md")):
        said = aileron("action", "new", *words)
        assert said.code == 2
        assert "is there already, and is not overwritten" in said.err
    assert (tmp_path / "a.md").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
    assert aileron("action", "new", "b", "--output", "c.md").out == "c.md\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("Send Email",), "name 'Send Email' is not lower-case letters"),
        (("../a",), "name '../a' is not"),
        (('a"\nb',), "is not lower-case letters"),
        (('a" # ',), "is not lower-case letters"),
        (("a", "--op", 'x"] # '), "is not a lower-case letter"),
        (("a", "--op", "send-email"), "--op 'send-email' is not a lower-case letter"),
        (("a", "--connector", "acme/mail"), "'acme/mail' has no known scheme"),
        (("a", "--connector", "github://acme/mail@latest"), "'latest' is not a SemVer version"),
        (("a", "-o", "/nowhere/a.md"), "No such file or directory"),
    ],
)
def test_what_would_not_be_an_action_is_not_written(
    aileron: Command, tmp_path: Path, words: tuple[str, ...], told: str
):
    """Refused as `validate` would, before there is a file."""
    said = aileron("action", "new", *words)

    assert (said.code, list(tmp_path.glob("*.md"))) == (2, [])
    assert told in said.err


def test_the_schema_describes_what_new_writes(aileron: Command, tmp_path: Path):
    """Printed as JSON; of a manifest with --manifest."""
    aileron("action", "new", "send-email")
    frontmatter = (tmp_path / "send-email.md").read_text("utf-8").split("+++\n")[1]
    found = aileron("action", "schema").json

    assert list(found["properties"]) == list(SCHEMA)
    assert found["properties"]["inputs"]["items"]["properties"]["type"]["enum"][:2] == ["string", "integer"]
    assert list(jsonschema.Draft202012Validator(found).iter_errors(tomllib.loads(frontmatter))) == []
    assert aileron("action", "schema", "--manifest").json["required"] == ["connector"]
