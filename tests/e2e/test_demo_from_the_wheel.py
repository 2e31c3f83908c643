"""The built wheel, installed into a new environment away from the source: every claim of the demo, as root and as nobody."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command, Said
from tests.support.relay import INITIALIZE, Agent, envelope
from tests.support.serving import made_folder
from tests.support.tmux import Tmux

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534

CLAIMS = {
    "events-listed",
    "server-saw-password",
    "gated-waits",
    "approved-created",
    "denied-absent",
    "password-nowhere-inside",
    "undeclared-host-denied",
    "raw-socket-refused",
    "nothing-arrived",
    "file-hidden",
    "process-out-of-reach",
    "echo-scrubbed",
    "agent-cannot-approve",
    "dropped-gate-waits",
    "signed-approval-counts",
    "contradiction-marked",
    "audit-verified",
    "password-nowhere-at-rest",
}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Provide a directory that any user may read, on a short path."""
    with made_folder("wheel-") as path:
        yield path


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    """Build the distribution from a copy of the source that is gone afterwards."""
    source = place / "source"
    kept_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, source, ignore=kept_out)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(place), str(source)],
        check=True,
        capture_output=True,
        timeout=180,
    )
    shutil.rmtree(source)
    return next(place.glob("aileron-*.whl"))


@pytest.fixture(scope="module")
def without_extras(place: Path, wheel: Path) -> Path:
    """Install the command without any extra, in an environment of the system's Python, which an ordinary user may execute."""
    python = SYSTEM_PYTHON if os.geteuid() == 0 else sys.executable
    subprocess.run([python, "-m", "venv", str(place / "venv")], check=True, timeout=60)
    subprocess.run(
        [str(place / "venv/bin/python"), "-m", "pip", "install", "--quiet", str(wheel)],
        check=True,
        capture_output=True,
        timeout=180,
    )
    return place / "venv/bin/aileron"


@pytest.fixture(scope="module")
def refused_demo(without_extras: Path, place: Path) -> Said:
    """Return what the command says to a user who tries the demo first."""
    return Command(place / "nowhere", program=[str(without_extras)])("demo")


@pytest.fixture(scope="module")
def aileron(without_extras: Path, refused_demo: Said) -> Path:
    """Return the command with the demo's extra, added by the command that the refusal gave."""
    _, _, fix = refused_demo.err.partition("fix: ")
    subprocess.run(shlex.split(fix), check=True, capture_output=True, timeout=180)
    return without_extras


def _demo(aileron: Path, **identity: int) -> subprocess.CompletedProcess[str]:
    home = tempfile.mkdtemp(prefix="home-")
    if identity:
        os.chown(home, identity["user"], identity["group"])
    try:
        return subprocess.run(
            [str(aileron), "demo", "--json"],
            env={"PATH": "/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8"},
            cwd=home,
            capture_output=True,
            text=True,
            timeout=200,
            extra_groups=[] if identity else None,
            user=identity.get("user"),
            group=identity.get("group"),
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _assert_every_claim_observed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    not_observed = {claim["name"]: claim["evidence"] for claim in said["claims"] if not claim["observed"]}
    assert not_observed == {}, done.stderr
    assert {claim["name"] for claim in said["claims"]} == CLAIMS
    assert said["complete"]
    assert done.returncode == 0


def test_the_demo_without_its_optional_packages_says_how_to_install_them(refused_demo: Said) -> None:
    """The error has one command for this environment; the other tests show that it adds the extra."""
    assert refused_demo.code == 2
    assert "`radicale`" in refused_demo.err
    assert "-m pip install 'radicale" in refused_demo.err


def test_the_wheel_has_every_file_of_the_source(wheel: Path) -> None:
    """Pages, styles, scripts, templates and the demo's connectors are in it, and both commands."""
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        commands = packed.read(entry_points).decode()

    parents = {"aileron": ROOT, "aileron_sandbox": ROOT / "sandbox", "aileron_connector": ROOT / "connectors" / "sdk"}
    source = {
        str(path.relative_to(parent))
        for package, parent in parents.items()
        for path in (parent / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source - names == set()
    assert {"aileron/web/templates/page.css", "aileron/web/templates/page.js"} <= names
    assert "aileron/launch/pi_extension.js" in names
    services = {name.split("/")[3] for name in names if name.startswith("aileron/catalogue/services/")}
    assert services == {path.parent.name for path in (ROOT / "connectors").glob("*/catalogue.toml")}
    assert {"aileron/catalogue/packed/git/dulwich/objects.py", "aileron/catalogue/services/mail/manifest.toml"} <= names
    assert not any("/tests/" in name for name in names if name.startswith("aileron/catalogue/services/"))
    assert {line.split(" = ")[0] for line in commands.splitlines() if " = " in line} == {"aileron", "aileron-mcp"}


def test_every_claim_of_the_demo_is_confirmed_for_an_ordinary_user(aileron: Path) -> None:
    """The demo asks nothing, and the claims are compared by name. If root runs the tests, the user is nobody, with a home
    of its own.

    The test below checks all of them as the user who runs the tests, root too.
    """
    _assert_every_claim_observed(_demo(aileron, **({"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {})))


@pytest.mark.parametrize(
    ("typed", "told"),
    [("y", "approved and carried out"), ("n", "you did not approve, so the event is neither on the server")],
)
def test_the_demo_at_a_terminal_accepts_an_approval_or_a_denial(
    aileron: Path, place: Path, typed: str, told: str
) -> None:
    """The command shows what would be done before it asks; the claim follows from the reply."""
    at_terminal = Command(place / "nowhere", program=[str(aileron)], deadline_s=200)
    said = at_terminal.at_terminal("demo", answers=[("Approve? [y/N] ", typed)], NO_COLOR="1")

    assert said.code == 0, said.out
    assert "Add “Lunch with Mira”" in said.out.partition("Approve? ")[0]
    assert f"\u2713 {told}" in said.out
    assert f"All {len(CLAIMS)} checks passed" in said.out
    assert "Next: write an action of your own in five minutes." in said.out.rpartition("checks passed")[2]
    assert said.out.rstrip().endswith("aileron demo-server"), "the last line is a command to type"
    assert not (place / "nowhere").exists()


@pytest.mark.parametrize("method", ["server/discover", "initialize"])
def test_an_agent_can_use_the_server_installed_from_the_wheel(aileron: Path, place: Path, method: str) -> None:
    """The MCP server is installed beside the command, starts the daemon, and speaks both eras of the protocol."""
    home = place / "h"
    try:
        with Agent(home, program=[str(aileron.with_name("aileron-mcp"))]) as agent:
            answer = agent.ask(method, INITIALIZE if method == "initialize" else envelope())
        assert "tools" in answer["result"]["capabilities"]
    finally:
        command = Command(home, program=[str(aileron)])
        # The agent may have been answered before its daemon was there, and what is not there yet is not stopped.
        command("daemon", "start")
        command("daemon", "stop")


def test_the_console_and_the_passphrase_page_work_from_the_wheel(aileron: Path, place: Path) -> None:
    """The console draws its first screen and ends when told to; the passphrase page has its style and script."""
    command = Command(place / "c", program=[str(aileron)], deadline_s=60)
    try:
        with Tmux([str(aileron), "console"], {"AILERON_HOME": str(place / "c"), "PATH": "/usr/bin:/bin"}) as console:
            console.until("Set it up now?")
            console.keys("n", "Enter")
            console.until("nothing waiting")
            console.keys("q")
            console.until_over()
        url = urllib.parse.urlsplit(command("open", "approvals").out.strip())
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=30)
        connection.request("GET", url.path)
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        assert (answer.status, "prefers-color-scheme" in page, "addEventListener" in page) == (200, True, True)
    finally:
        command("daemon", "stop")


def test_a_connector_created_from_the_wheels_templates_works(aileron: Path, place: Path) -> None:
    """The wheel contains its templates, including files that begin with a dot; the new connector passes its cases in the jail."""
    command = Command(place / "nowhere", program=[str(aileron)], deadline_s=60)
    made = command("connector", "new", "github://acme/things", str(place / "things"), "--json")
    tried = command("connector", "test", str(place / "things"))

    assert made.code == 0, made
    assert {".gitignore", ".github/workflows/release.yml", "keys/publisher.pub"} <= set(made.json["files"])
    assert (tried.code, "FAILED" in tried.out) == (0, False), tried
