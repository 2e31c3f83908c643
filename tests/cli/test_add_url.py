"""`aileron add URL`, with a service that describes itself, an MCP server and a calendar server, each a real one."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.home import DaemonHome, daemon_home
from tests.support.mcp_server import app_of, serving
from tests.support.ports import reserve_ports
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail


@pytest.fixture
def home() -> Iterator[DaemonHome]:
    """Provide a home with an open vault."""
    with daemon_home() as made:
        made.unlock()
        yield made


@pytest.fixture
def aileron(home: DaemonHome) -> Command:
    """Return the command in that home."""
    return Command(home.path)


@pytest.fixture
def notes(aileron: Command, home: DaemonHome) -> Iterator[tuple[str, str]]:
    """Start the notes service, which describes itself. Provide the address of its document, and its key."""
    (port,) = reserve_ports(1)
    with aileron.start("demo-server", "--port", str(port)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        key = re.fullmatch(r"API key\t(\S+)\n", process.stdout.readline())
        assert key is not None
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
        yield f"http://localhost:{port}/openapi.json", key[1]
        process.kill()


def test_a_document_becomes_a_service_with_one_question(aileron: Command, notes: tuple[str, str]) -> None:
    """The person names it, chooses operations and types the key once; a read shows that it works; a change asks."""
    url, key = notes

    said = at_terminal(
        aileron,
        "add",
        url,
        answers=[
            ("A name for it; its actions begin with it", "notes"),
            ("Import which", "all"),
            ("API key or token: ", key),
        ],
    )
    services = aileron("services", "--json").json["services"]
    read = aileron("run", "notes-list-notes")
    write = aileron("run", "notes-add-note", "text=mine")

    assert said.code == 0, said
    assert "notes: answered" in flat(said)
    assert key not in said.out
    assert [(entry["name"], entry["state"], len(entry["actions"])) for entry in services] == [("notes", "ready", 5)]
    assert (read.code, write.code) == (0, 75), (read, write)


def test_a_removed_document_leaves_nothing(aileron: Command, notes: tuple[str, str], home: DaemonHome) -> None:
    """Actions, connector, credential and the files that they were made from are gone; it can be added again."""
    url, key = notes
    aileron("secret", "set", "notes-key", given=key)
    words = ["add", url, "--actions", "reads", "--secret", "notes-key", "--yes"]

    added = aileron(*words)
    again = aileron(*words)
    made = [path.name for path in (home.path / "imported").iterdir()]
    removed = aileron("remove", "localhost", "--yes")

    assert added.code == 0, added
    assert (again.code, "is connected already" in again.err) == (2, True)
    assert made == ["localhost"]
    assert "removed localhost: 2 actions, 1 secret, 1 connector" in removed.err
    assert [aileron(noun, "list").out for noun in ("action", "connector", "binding")] == ["", "", ""]
    assert "notes-key" not in aileron("secret", "list").out
    assert list((home.path / "imported").iterdir()) == []


def test_a_password_in_the_url_is_refused_and_not_shown(aileron: Command, notes: tuple[str, str]) -> None:
    """The service is added with the same URL without the password."""
    url, key = notes
    aileron("secret", "set", "notes-key", given=key)
    words = ["--actions", "reads", "--secret", "notes-key", "--yes"]
    refused = aileron("add", url.replace("://", "://ann:hunter2@"), *words)

    assert (refused.code, "the URL has a user name or password" in refused.err) == (2, True), refused
    assert "hunter2" not in refused.out + refused.err
    assert aileron("add", url, *words).code == 0


def test_an_mcp_server_is_found_at_its_own_address(aileron: Command, home: DaemonHome) -> None:
    """The address is that of a tool server, without `mcp+`: its tools become actions, which wait for a person."""
    with serving(app_of()) as port:
        home.configure(f'[egress]\nprivate_plain = ["localhost:{port}"]\n')
        added = aileron("add", f"http://localhost:{port}/mcp", "--actions", "all", "--yes")
        ran = aileron("run", "localhost-list-notes")

    assert added.code == 0, added
    assert "localhost-add-note" in added.out.split()
    assert ran.code == 75, ran


def test_a_calendar_server_goes_on_as_caldav(
    aileron: Command, home: DaemonHome, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server says that it has calendars, so its address is that of the service which came with Aileron."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as server:
        server.make_calendar("work", "Work")
        home.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        aileron("secret", "set", "calendar", given=server.password)
        added = aileron(
            "add",
            f"http://localhost:{server.port}/{server.user}/",
            "--actions",
            "reads",
            "--secret",
            "calendar",
            "--username",
            server.user,
            "--yes",
        )
        ran = aileron("run", "caldav-list-events")

    assert added.code == 0, added
    assert "is a calendar server" in added.err
    assert ran.code == 0, ran


class _Page(http.server.BaseHTTPRequestHandler):
    """Answers every request with a web page."""

    def do_GET(self) -> None:
        """Send the page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "13")
        self.end_headers()
        self.wfile.write(b"<html></html>")

    def do_POST(self) -> None:
        """Send the page."""
        self.do_GET()

    def do_OPTIONS(self) -> None:
        """Send the page."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_web_page_is_refused_with_what_it_is_not(aileron: Command, home: DaemonHome, tmp_path: Path) -> None:
    """The message says what was tried and what to give instead, and the home stays as it was."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = aileron("add", f"http://localhost:{server.server_port}/", "--actions", "all", "--yes")
        server.shutdown()

    assert said.code == 2, said
    assert "is neither an OpenAPI document, an MCP server nor a calendar server" in said.err
    assert not (home.path / "imported").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://github.com/acme/mail", "names no release, so it could change"),
        ("https://github.com/acme/mail/releases/latest", "names no release, so it could change"),
        ("https://[::1", "is not a URL"),
        ("ftp://localhost/x", "expected https://"),
        ("http://localhost:1/openapi.json", "cannot be fetched"),
    ],
)
def test_an_address_without_anything_to_add_is_refused(aileron: Command, url: str, words: str) -> None:
    """The message says why."""
    said = aileron("add", url, "--actions", "all", "--yes")

    assert said.code == 2, said
    assert words in " ".join(said.err.split())
