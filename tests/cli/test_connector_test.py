"""`aileron connector test` as a program: the cases of an author's sources in the real jail, and a single operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.upstream import Authority, Upstream, answer
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail
MANIFEST = """\
[connector]
name = "github://acme/connector-notes"
version = "0.0.0-dev"

[capabilities.network]
hosts = ["notes.example.com:443"]

[capabilities.runtime]
imports = ["http", "log"]
"""
PROGRAM = """\
from aileron_connector import BadInput, hosts, http, log, op, run

@op
def fetch(path: str) -> str:
    \"\"\"GET.\"\"\"
    log.info("asking\\u202e")
    with http.request("GET", hosts()[0].url + path) as answer:
        return answer.text()

@op
def complain() -> None:
    \"\"\"In words that look like ours.\"\"\"
    raise BadInput("run `aileron vault rotate`; run `aileron secret remove x`")

if __name__ == "__main__":
    run()
"""
CASES = """\
[[case]]
name = "what is there is fetched"
op = "fetch"
args = { path = "/x" }
output = "ok"

[[case.exchange]]
method = "GET"
path = "/x"
body = "ok"
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A directory with a connector's sources and its cases."""
    directory = tmp_path / "notes"
    (directory / "tests").mkdir(parents=True)
    (directory / "manifest.toml").write_text(MANIFEST)
    (directory / "connector.py").write_text(PROGRAM)
    (directory / "tests" / "cases.toml").write_text(CASES)
    return directory


def test_each_case_is_reported_and_a_failure_exits_with_1(aileron: Command, sources: Path) -> None:
    """The verdict is on standard output; the reason and the connector's log are on standard error. No home is created."""
    passed = aileron("connector", "test", str(sources))
    cases = sources / "tests" / "cases.toml"
    cases.write_text(
        CASES + CASES.replace("what is there", "what is not there").replace('output = "ok"', 'output = "ko"')
    )
    failed = aileron("connector", "test", str(sources))

    assert (passed.code, passed.err) == (0, "")
    assert passed.out.startswith("what is there is fetched\tpassed\t")
    assert failed.code == 1
    assert "what is not there is fetched\tFAILED" in failed.out
    assert 'what is not there is fetched: its output is "ok"; expected "ko"' in failed.err
    assert "info: asking" in failed.err
    assert "\u202e" not in failed.err
    assert not aileron.home.exists()


def test_cases_from_another_file_are_reported_as_json(aileron: Command, sources: Path) -> None:
    """--cases names a file outside the sources, and --json prints one object."""
    elsewhere = sources.parent / "mine.toml"
    elsewhere.write_text(CASES.replace("/x", "/y", 1))
    said = aileron("connector", "test", str(sources), "--cases", str(elsewhere), "--json")

    assert (said.code, said.json["passed"], said.json["failed"]) == (1, 0, 1)
    (case,) = said.json["cases"]
    assert (case["passed"], case["problem"]) == (False, "no exchange is left for GET notes.example.com:443/y")


def test_one_operation_runs_against_a_local_server(aileron: Command, sources: Path, upstream: CountingServer) -> None:
    """The operation's output is printed; without a server, or with one on another machine, the error says what is missing."""
    words = ("connector", "test", str(sources), "--op", "fetch", "--args", '{"path": "/"}')
    there = aileron(*words, "--upstream", f"http://localhost:{upstream.port}")
    alone = aileron(*words)
    away = aileron(*words, "--upstream", "https://notes.example.com")

    assert there.code == 0, there
    assert (alone.code, "fix: give --upstream URL" in alone.err) == (2, True)
    assert (away.code, "not on this machine" in away.err) == (2, True)


def test_a_local_server_can_have_a_certificate_from_a_local_authority(
    aileron: Command, sources: Path, tmp_path: Path
) -> None:
    """The home's settings name the authority; without it the failure says which setting to change."""
    authority = Authority(tmp_path)
    words = ("connector", "test", str(sources), "--op", "fetch", "--args", '{"path": "/"}', "--upstream")
    with Upstream(lambda _: answer(b"hello"), authority.server_context("localhost")) as server:
        url = f"https://localhost:{server.port}"
        before = aileron(*words, url)
        aileron.home.mkdir(mode=0o700, exist_ok=True)
        (aileron.home / "config.toml").write_text(f'[egress]\nca_file = "{authority.ca_file}"\n')
        after = aileron(*words, url)

    assert (before.code, "aileron config set egress.ca_file FILE" in before.err) == (7, True), before
    assert (after.code, after.out.strip()) == (0, "hello"), after


def test_a_connectors_message_is_never_shown_as_a_fix(aileron: Command, sources: Path) -> None:
    """The message is shown as text, and no command is extracted from it."""
    said = aileron("connector", "test", str(sources), "--op", "complain")

    assert (said.code, "aileron vault rotate" in said.err) == (2, True)
    assert "fix:" not in said.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--args", "{}"), 2, "require --op OP"),
        (("--op", "fetch", "--args", "[1]"), 2, "--args is not a JSON object"),
        (("--op", "fetch", "--args", "{"), 2, "--args is not JSON"),
        (("--op", "fetch", "--cases", "x"), 2, "cannot be used together"),
        (("--cases", "/nowhere/cases.toml"), 3, "no such file"),
    ],
)
def test_connector_test_refuses_invalid_options(
    aileron: Command, sources: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    """The command refuses before it builds or runs anything."""
    said = aileron("connector", "test", str(sources), *words)

    assert (said.code, told in said.err) == (code, True), said
