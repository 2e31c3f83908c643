"""`aileron hub`: a Hub built by the command itself, then searched and shown with a real daemon."""

from __future__ import annotations

import functools
import http.server
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon
from tests.support.home import DaemonHome, daemon_home
from tests.support.hostile_text import as_in_a_file, assert_harmless, assert_no_line_begins, hostile
from tests.support.hub import CONNECTOR, KEY, OTHER, SEND, Release, static
from tests.support.upstream import Authority, Upstream

pytestmark = pytest.mark.jail


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """A connector in a signed and an unsigned version, and a signed action that needs it."""
    made = Release(tmp_path / "out")
    made.key()
    pin = made.connector(version="1.0.0", signed_by=KEY, at="one")
    made.connector(version="1.1.0", at="two")
    made.action(needs=(CONNECTOR, "1.0.0", pin), signed_by=KEY, at="action")
    return made


@pytest.fixture
def hub(tmp_path: Path, authority: Authority) -> Iterator[tuple[Path, Upstream]]:
    """Path of a site that is not built yet, and a file server for it."""
    with Upstream(static(tmp_path / "site"), authority.server_context("localhost")) as server:
        yield tmp_path / "site", server


@pytest.fixture
def own(hub: tuple[Path, Upstream], authority: Authority) -> Iterator[DaemonHome]:
    """A home that is configured with that Hub."""
    port = hub[1].port
    with daemon_home() as home:
        home.configure(
            f'[egress]\nprivate = ["localhost:{port}"]\nca_file = "{authority.ca_file}"\n'
            f'[hub]\nurl = "https://localhost:{port}/hub"\n'
        )
        yield home


def test_the_hub_commands_lead_from_a_release_to_its_installation(
    own: DaemonHome, hub: tuple[Path, Upstream], release: Release
) -> None:
    """A Hub is built, searched and shown: in a pipe, as JSON, and at a terminal."""
    aileron = Command(own.path)
    before = aileron("hub", "search", "email")
    assert (before.code, "no Hub at" in before.err, "hub.url in config.toml" in before.err) == (3, True, True)

    built = aileron("hub", "build", str(release.path), "-o", str(hub[0]))
    assert (built.code, built.err) == (0, "")
    assert built.out == f"site\t{hub[0]}\nartifacts\t2\nversions\t3\nnew\t3\n"
    again = aileron("hub", "build", str(release.path), "--output", str(hub[0]), "--json")
    assert again.json == {"site": str(hub[0]), "artifacts": 2, "versions": 3, "new_versions": 0, "written": 0}

    found = aileron("hub", "search", "send", "email")
    assert found.out == (
        f"{CONNECTOR}\t1.1.0\tconnector\tUNSIGNED\tsend_email, list_folders\n"
        f"{SEND}\t1.0.0\taction\t{KEY.public.fingerprint}\tsend an email\n"
    )
    assert aileron("hub", "search", "--kind", "action").out.startswith(SEND)
    assert [entry["match"] for entry in aileron("hub", "search", "Send-Email", "--json").json["entries"]] == [
        "intent",
        "name",
    ]
    assert "no matches on the Hub" in aileron.at_terminal("hub", "search", "nowhere").out
    table = aileron.at_terminal("hub", "search", "email", NO_COLOR="1").out
    assert "details: aileron hub show NAME" in table
    assert "UNSIGNED" in table

    shown = aileron.at_terminal("hub", "show", f"{CONNECTOR}@1.0.0", NO_COLOR="1")
    for part in (
        CONNECTOR,
        "Acme Mail",
        "mail.example.com:443",
        "api_key: Send mail as you",
        KEY.public.fingerprint,
        "not trusted here",
        f"aileron keyring trust {CONNECTOR}",
        f"  aileron connector install {CONNECTOR}@1.0.0\n",
    ):
        assert part in shown.out, shown
    aileron("keyring", "trust", CONNECTOR, "--yes")
    assert "trusted here" in aileron("hub", "show", f"{CONNECTOR}@1.0.0").out
    assert "UNSIGNED: the publisher is not verified" in aileron("hub", "show", CONNECTOR).out
    assert f"aileron action add {SEND}@1.0.0" in aileron("hub", "show", SEND).err
    assert aileron("hub", "show", SEND, "--json").json["requires"] == [f"{CONNECTOR}@1.0.0"]


def test_hub_show_marks_a_version_not_signed_with_the_published_key(
    own: DaemonHome, hub: tuple[Path, Upstream], release: Release
) -> None:
    """The version was signed before its publisher replaced the key."""
    aileron = Command(own.path)
    assert aileron("hub", "build", str(release.path), "-o", str(hub[0])).code == 0
    release.key(OTHER.public, former=[KEY.public])
    assert aileron("hub", "build", str(release.path), "-o", str(hub[0])).code == 0

    shown = aileron("hub", "show", f"{CONNECTOR}@1.0.0").out

    assert "NOT THE KEY that its repository publishes now" in shown
    assert "NOT THE KEY" not in aileron("hub", "show", CONNECTOR).out


def test_hub_build_lists_every_problem_and_writes_nothing(home: Path, tmp_path: Path, release: Release) -> None:
    """Each problem is shown with its file; no daemon is needed or started."""
    aileron, site = Command(home), tmp_path / "site"
    release.put(b"garbage", "bad")
    release.connector(version="1.2.0", signed_by=OTHER, at="forged")

    said = aileron("hub", "build", str(release.path), "-o", str(site))
    as_json = aileron("hub", "build", str(release.path), "-o", str(site), "--json")

    assert (said.code, said.out) == (2, "")
    assert f"{release.path}/bad/aileron.tar.gz: not an archive" in said.err
    assert f"{release.path}/forged/aileron.tar.gz: it is not signed with the key of {CONNECTOR}" in said.err
    assert "error: 2 problems found; nothing was written" in said.err
    assert (as_json.code, len(as_json.json["error"]["details"]["problems"])) == (2, 2)
    assert not site.exists()
    assert not home.exists()
    missing = aileron("hub", "build", str(tmp_path / "none"))
    assert (missing.code, "no such directory" in missing.err) == (3, True)


def test_hub_commands_report_wrong_usage_and_a_missing_hub(home: Path) -> None:
    """The error names the setting that is missing."""
    with daemon_home() as bare:
        aileron = Command(bare.path)
        said = aileron("hub", "search", "mail")
        assert (said.code, "config.toml names no Hub: [hub] url" in said.err) == (2, True)
    assert Command(home)("hub", "search", "--kind", "plugin").code == 2
    assert Command(home)("hub", "show").code == 2


class Quiet(http.server.SimpleHTTPRequestHandler):
    """The file server that comes with Python, without its log."""

    def log_message(self, *_: object) -> None:
        """Ignore the message."""


def test_the_how_to_page_on_running_a_hub_works_as_written(
    tmp_path: Path, authority: Authority, release: Release
) -> None:
    """The folders, commands and settings are the page's, the file server knows nothing of Hubs, and only the address differs."""
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/run-a-hub.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in re.findall(r"^ *\$ (aileron .*)$", page, re.MULTILINE)]
    (toml,) = re.findall(r"^ *```toml\n(.*?)```$", page, re.DOTALL | re.MULTILINE)
    release.path.rename(tmp_path / "released")
    serve = functools.partial(Quiet, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server, daemon_home() as home:
        server.socket = authority.server_context("localhost").wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"localhost:{server.server_port}"
        way = f'[egress]\nprivate = ["{address}"]\nca_file = "{authority.ca_file}"\n'
        home.configure(way + toml.replace("hub.example.com", address))
        try:
            said = [Command(home.path)(*_in(tmp_path, words)) for words in commands]
        finally:
            server.shutdown()

    assert [words[:2] for words in commands] == [
        ["hub", "build"],
        ["hub", "search"],
        ["hub", "show"],
        ["keyring", "trust"],
    ]
    assert [result.code for result in said] == [0, 0, 0, 2], said  # a person must confirm that a key is trusted
    assert said[1].out.splitlines()[0].startswith(CONNECTOR)
    assert f"aileron connector install {CONNECTOR}@1.1.0" in said[2].err
    assert KEY.public.fingerprint in said[3].err


def _in(folder: Path, words: list[str]) -> list[str]:
    """Return the words with directories relative to this folder."""
    return [str(folder / word) if word.endswith("/") else word for word in words]


@hostile
def test_hostile_text_from_a_hub_is_escaped(aileron: Command, fake: FakeDaemon, text: str) -> None:
    """The text is in each field of the Hub's entries, as if the daemon had let it through."""
    text = as_in_a_file(text)
    entry = {
        "name": text,
        "kind": "connector",
        "version": text,
        "match": "name",
        "signature": {"status": "signed", "key": text, "trusted": "no"},
        "publisher": text,
        "description": text,
        "intents": [text],
        "hosts": [text],
        "credential": {"kind": text, "scope": text},
        "requires": [text],
        "newest": text,
        "versions": [
            {"version": text, "hash": text, "signed_by": text},
            {"version": text, "hash": text, "signed_by": None},
        ],
        "hash": text,
        "publisher_key": text,
        "install": text,
        "hub": text,
        "as_of": text,
    }
    fake.script("GET", "/v1/hub", (200, {"hub": text, "as_of": text, "total": 99, "entries": [entry]}))
    fake.script("GET", "/v1/hub/entry", (200, entry))
    for words in (("hub", "search", "x"), ("hub", "show", "x")):
        said = aileron.at_terminal(*words).exits(0)
        assert_harmless(said.out)
        assert_no_line_begins(said.out, "  fix: curl", "Approve? [y/N] yes", "signed by")
