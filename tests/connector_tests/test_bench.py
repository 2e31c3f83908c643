"""An author's operations in the real jail: which cases pass, which fail, and what the jail keeps out of reach."""

from __future__ import annotations

import base64
import http.server
import importlib.metadata
import importlib.util
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from standardwebhooks import Webhook

from aileron.config import Settings
from aileron.connector_tests.bench import Bench, LocalUpstream, TrialReport, artifact_of
from aileron.connector_tests.cases import CASES, parse_cases
from aileron.connector_tests.fake_credentials import FAKE_SECRET
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialKind
from aileron.model.names import HostPort
from tests.support.elf_programs import compiled
from tests.support.nginx import Nginx, needs_nginx
from tests.support.plain_host import ROOT
from tests.support.upstream import Authority, Seen, Upstream, answer

pytestmark = pytest.mark.jail
MANIFEST = """\
[connector]
name = "github://acme/connector-notes"
version = "0.0.0-dev"

[capabilities.network]
hosts = ["notes.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Read notes"

[capabilities.runtime]
imports = ["http", "tcp", "log"]

[limits]
timeout_s = 20
"""
PROGRAM = '''\
import os, socket, time
from aileron_connector import BadInput, NetworkError, Refused, hosts, http, log, op, run, tcp

@op
def echo(value: str) -> dict:
    """Say it again."""
    log.info("echoing", value=value)
    return {"value": value, "next": None, "whole": 1}

@op
def fetch(path: str, credential: str | None = None, times: int = 1) -> list:
    """GET from the first host."""
    found = []
    for _ in range(times):
        with http.request("GET", hosts()[0].url + path, credential=credential) as answer:
            found.append([answer.status, answer.text()])
    return found

@op
def swallow(url: str) -> str:
    """Ask, and hide what came of it."""
    try:
        with http.request("GET", url) as answer:
            return answer.text()
    except Exception as error:
        return "hidden"

@op
def post(text: str) -> int:
    """Send a body."""
    with http.request("POST", hosts()[0].url + "/notes", body=text.encode()) as answer:
        return answer.status

@op
def reach(path: str) -> dict:
    """What is there of the machine."""
    return {"is_there": os.path.exists(path), "environment": len(os.environ)}

@op
def dial() -> None:
    """Go past the supervisor."""
    socket.create_connection(("93.184.216.34", 443), 1)

@op
def stream() -> None:
    """A stream to a declared host."""
    tcp.connect(hosts()[0].host, hosts()[0].port)

@op
def hang() -> None:
    """Longer than it may."""
    time.sleep(60)

if __name__ == "__main__":
    run()
'''


def sources(directory: Path, manifest: str = MANIFEST, program: str = PROGRAM) -> Path:
    """Write the connector above to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "manifest.toml").write_text(manifest)
    (directory / "connector.py").write_text(program)
    return directory


def bench_of(directory: Path, *hosts: HostPort) -> Bench:
    """Return the directory's bench. Without a jail, skip the test, or fail it in CI."""
    try:
        return Bench(artifact_of(directory, hosts))
    except AileronError as error:
        if error.failure.failure_class is FailureClass.SANDBOX_UNAVAILABLE and not os.environ.get("AILERON_MUST_JAIL"):
            pytest.skip(f"no jail here: {error}")
        raise


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Run one bench for all tests: each case has a jail of its own."""
    with bench_of(sources(tmp_path_factory.mktemp("notes"))) as running:
        yield running


def tried(bench: Bench, case: str, *exchanges: str) -> TrialReport:
    """Return the report on one case of that TOML."""
    text = f'[[case]]\nname = "it"\n{case}\n' + "".join(f"[[case.exchange]]\n{exchange}\n" for exchange in exchanges)
    (report,) = bench.run(parse_cases(text, file="cases.toml").cases)
    return report


GET = 'method = "GET"\npath = "/notes"\n'
FETCH = 'op = "fetch"\nargs = { path = "/notes" }\n'


# What is packed


PACKED = '''\
import importlib.metadata, importlib.resources, pkgutil
from aileron_connector import op, run

@op
def look() -> dict:
    """What the packed libraries say of themselves, and what they read."""
    import certifi
    scripts = importlib.metadata.entry_points(group="console_scripts")
    return {
        "version": importlib.metadata.version("certifi"),
        "needs": importlib.metadata.requires("httpx")[0],
        "scripts": [f"{one.name} = {one.value}" for one in scripts],
        "licence": importlib.metadata.distribution("certifi").read_text("licenses/LICENSE")[:7],
        "distributions": sorted(one.name for one in importlib.metadata.distributions()),
        "of_package": importlib.metadata.packages_distributions().get("certifi"),
        "file": open(certifi.where()).read() == certifi.contents(),
        "data": len(pkgutil.get_data("certifi", "cacert.pem")) > 1000,
        "mark": (importlib.resources.files("certifi") / "py.typed").is_file(),
    }

if __name__ == "__main__":
    run()
'''


def test_a_library_packed_with_a_connector_finds_its_metadata_and_data(tmp_path: Path) -> None:
    """`pip install --target` puts both beside the connector, where the jailed program reads them."""
    directory = sources(tmp_path / "notes")
    (directory / "connector.py").write_text(PACKED)
    for name in ("certifi", "httpx"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        (package,) = spec.submodule_search_locations
        version = importlib.metadata.version(name)
        if name == "certifi":
            shutil.copytree(package, directory / name)
        metadata = f"{name}-{version}.dist-info"
        shutil.copytree(Path(package).parent / metadata, directory / metadata)
    with bench_of(directory) as packed:
        found = packed.call("look", {}, None)

    assert found.failure is None, found.failure
    assert found.output == {
        "version": importlib.metadata.version("certifi"),
        "needs": "anyio",
        "scripts": ["httpx = httpx:main"],
        "licence": "This pa",
        "distributions": ["certifi", "httpx"],
        "of_package": ["certifi"],
        "file": True,
        "data": True,
        "mark": True,
    }


# What passes


def test_the_output_of_an_operation_is_compared_exactly_with_the_case(bench: Bench) -> None:
    """The comparison is of JSON: null is null, and 1 is neither 1.0 nor true. The report has what the operation logged."""
    echo = 'op = "echo"\nargs = { value = "x" }\n'
    right = tried(bench, echo + """output_json = '{"value": "x", "next": null, "whole": 1}'""")
    wrong = [
        tried(bench, echo + f"output_json = '{found}'")
        for found in (
            '{"value": "x", "next": null}',
            '{"value": "x", "next": null, "whole": 1.0}',
            '{"value": "x", "next": null, "whole": true}',
        )
    ]

    assert (right.problem, right.log) == (None, ("info: echoing {'value': 'x'}",))
    assert all("its output is" in (report.problem or "") for report in wrong)


def test_a_request_gets_the_response_of_its_exchange(bench: Bench) -> None:
    """An exchange is a request and its response in a case. Each is used once, in any order."""
    passed = tried(bench, FETCH + 'output = [[200, "ok"]]', GET + 'body = "ok"')
    twice = tried(
        bench,
        'op = "fetch"\nargs = { path = "/notes", times = 2 }\noutput = [[200, "a"], [503, "b"]]',
        GET + 'body = "a"',
        GET + 'status = 503\nbody = "b"',
    )
    whole = bench.run(parse_cases(_large("x" * 100_000), file="c").cases)

    assert (passed.problem, twice.problem, whole[0].problem) == (None, None, None)


def _large(body: str) -> str:
    return f'[[case]]\nname = "large"\n{FETCH}output = [[200, "{body}"]]\n[[case.exchange]]\n{GET}body = "{body}"\n'


def test_a_failure_is_compared_with_the_case_by_class_and_details(bench: Bench) -> None:
    """The case states the expected class, and some of its details."""
    bad = 'op = "echo"\nargs = { value = 1 }\n'

    assert tried(bench, bad + 'failure = "bad_input"\ndetails = { argument = "value" }').problem is None
    assert "expected network_error" in str(tried(bench, bad + 'failure = "network_error"').problem)
    assert "its details are" in str(tried(bench, bad + 'failure = "bad_input"\ndetails = { argument = "x" }').problem)
    assert "it failed with bad_input" in str(tried(bench, bad + "output = 1").problem)
    assert "it succeeded" in str(tried(bench, 'op = "echo"\nargs = { value = "x" }\nfailure = "bad_input"').problem)
    assert tried(bench, 'op = "nothing"\nfailure = "unknown_op"').problem is None
    assert tried(bench, FETCH + 'failure = "network_error"', GET + "unreachable = true").problem is None


def test_the_credential_and_body_of_a_request_are_compared_with_the_case(bench: Bench) -> None:
    """They are compared only if the case states them; a body as JSON or as text."""
    keyed = 'op = "fetch"\nargs = { path = "/notes", credential = "api_key" }\noutput = [[200, ""]]'
    posted = 'op = "post"\nargs = { text = "{\\"a\\": 1}" }\noutput = 200'
    post = 'method = "POST"\npath = "/notes"\n'

    assert tried(bench, keyed, GET + 'credential = "api_key"').problem is None
    assert "expected api_key" in str(
        tried(bench, FETCH + 'output = [[200, ""]]', GET + 'credential = "api_key"').problem
    )
    for sends in ("{ a = 1 }", """'{"a": 1}'""", """'{ "a":1 }'"""):
        assert tried(bench, posted, f"{post}sends = {sends}").problem is None
    assert "no exchange is left for POST" in str(tried(bench, posted, post + "sends = { a = 2 }").problem)


def test_a_response_of_a_case_arrives_as_egress_would_deliver_it(bench: Bench) -> None:
    """Compressed bodies are decompressed; a body that is not in its declared encoding is a network error."""
    plain = tried(
        bench, FETCH + 'output = [[200, "ok"]]', GET + 'headers = { Connection = "close", X-A = "1" }\nbody = "ok"'
    )
    lying = tried(
        bench, FETCH + 'failure = "network_error"', GET + 'headers = { Content-Encoding = "gzip" }\nbody = "ok"'
    )

    assert (plain.problem, lying.problem) == (None, None)


# What fails a case


def test_an_unexpected_request_fails_the_case(bench: Bench) -> None:
    """The case fails even if the operation hides the error, whatever the case expects. The positive control passes."""
    hidden = 'op = "swallow"\nargs = { url = "https://notes.example.com/notes" }\n'
    unasked = tried(bench, hidden + 'output = "hidden"')

    assert tried(bench, hidden + 'output = "ok"', GET + 'body = "ok"').problem is None
    assert unasked.problem == "no exchange is left for GET notes.example.com:443/notes"
    assert "no exchange is left" in str(tried(bench, hidden + 'failure = "not_found"').problem)


def test_an_unused_exchange_fails_the_case(bench: Bench) -> None:
    """Otherwise a case would pass for a connector that no longer calls its service."""
    echo = 'op = "echo"\nargs = { value = "x" }\n' + """output_json = '{"value": "x", "next": null, "whole": 1}'"""

    assert tried(bench, echo).problem is None
    assert tried(bench, echo, GET).problem == "it never asked for GET /notes"


def test_an_undeclared_host_is_denied(bench: Bench) -> None:
    """The rule is that of a run, although the case has a response. A declared host is reached."""
    asked = 'op = "swallow"\nargs = {{ url = "https://{}/notes" }}\n'
    denied = tried(bench, asked.format("evil.example.com") + 'output = "hidden"', GET + 'host = "evil.example.com:443"')

    assert tried(bench, asked.format("notes.example.com") + 'output = "ok"', GET + 'body = "ok"').problem is None
    assert "evil.example.com:443 is not a granted host" in str(denied.problem)
    assert "not encrypted" in str(
        tried(bench, asked.replace("https", "http").format("notes.example.com:443") + "output = 1").problem
    )


# The jail is the real one


def test_files_of_the_machine_are_not_visible_to_a_connector_under_test(bench: Bench, tmp_path: Path) -> None:
    """A file of this machine is missing there, and the environment is empty. The control is a file that the jail has."""
    (tmp_path / "secret").write_text("x")
    words = 'op = "reach"\nargs = {{ path = "{}" }}\noutput = {{ is_there = {}, environment = 0 }}'

    assert tried(bench, words.format(tmp_path / "secret", "false")).problem is None
    assert tried(bench, words.format("/dev/null", "true")).problem is None


def test_bypassing_the_supervisor_is_denied_in_a_case(bench: Bench) -> None:
    """The operations open a socket of their own, and a stream although their credential is for requests."""
    dialled = tried(bench, 'op = "dial"\noutput = 1')

    assert "capability_denied" in str(dialled.problem)
    assert "93.184.216.34:443" in str(dialled.problem)
    assert "gets streams to its logins, not to notes" in str(tried(bench, 'op = "stream"\noutput = 1').problem)


# Streams

MAILBOX = """\
[connector]
name = "github://acme/mailbox"
version = "1.0.0"

[capabilities.network]
hosts = ["imap.example.com:993", "smtp.example.com:465"]

[capabilities.credential]
kind = "login"
scope = "Read mail"
logins = ["imap://imap.example.com:993", "smtp://smtp.example.com:465"]

[capabilities.runtime]
imports = ["tcp"]
"""
TALKER = """\
from aileron_connector import hosts, op, run, tcp

@op
def talk(lines: list[str], host: str = "", waits: bool = True) -> list[str]:
    \"\"\"Each line, and what is answered; then up to the end.\"\"\"
    port = hosts()[0].port
    with tcp.connect(host or hosts()[0].host, port, timeout_s=10) as stream:
        file, heard = stream.makefile("rwb"), []
        for line in lines:
            file.write(line.encode() + b"\\r\\n")
            file.flush()
            heard += [file.readline().decode().strip()] if waits else []
        return heard + ([one.decode().strip() for one in file] if waits else [])

if __name__ == "__main__":
    run()
"""


@pytest.fixture(scope="module")
def mailbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Run a connector with logins, which says what it is told to."""
    with bench_of(sources(tmp_path_factory.mktemp("mailbox"), MAILBOX, TALKER)) as running:
        yield running


def talked(mailbox: Bench, args: str, output: str, *streams: str) -> str | None:
    """Return the problem of that case."""
    text = f'[[case]]\nname = "it"\nop = "talk"\nargs = {{ {args} }}\n{output}\n'
    text += "".join(f"[[case.stream]]\n{stream}\n" for stream in streams)
    (report,) = mailbox.run(parse_cases(text, file="cases.toml").cases)
    return report.problem


TALK = 'talk = ["S: hello", "C: a {word}", "S: {word} it is", "C: bye", "S: bye", "S: now"]'
"""The lines of a service, the first of which answers nothing."""


def test_a_stream_follows_the_scripted_conversation_of_the_case(mailbox: Bench) -> None:
    """The stream ends after the last line. What the connector wrote last is compared even if it waits for nothing."""
    heard = 'output = ["hello", "b it is", "bye", "now"]'
    assert talked(mailbox, 'lines = ["a b", "bye"]', heard, TALK) is None
    assert talked(mailbox, 'lines = ["a b", "bye"], waits = false', "output = []", TALK) is None
    assert talked(mailbox, 'lines = ["a b"]', "output = []", TALK + '\nhost = "smtp.example.com:465"') is not None


@pytest.mark.parametrize(
    ("args", "streams", "words"),
    [
        ('lines = ["a b", "cya"]', [TALK], "imap.example.com:993 was sent 'cya'; expected 'bye'"),
        ('lines = ["a b"], waits = false', [TALK], "the stream to imap.example.com:993 ended before 'bye'"),
        ('lines = ["a b", "bye"], waits = false', [TALK, TALK], "it never asked for the stream to the first host"),
        ('lines = ["a b"]', [], "no [[case.stream]] is left for a stream to imap.example.com:993"),
        ('lines = [], host = "evil.example.com"', [TALK], "evil.example.com:993 is not a granted host"),
    ],
    ids=["another-line", "too-little", "one-too-many", "one-too-few", "another-host"],
)
def test_a_stream_that_differs_from_the_case_fails_it(
    mailbox: Bench, args: str, streams: list[str], words: str
) -> None:
    """The case fails even if the operation returns the expected output."""
    assert words in str(talked(mailbox, args, "output = []", *streams))


# WebSockets

FEED = """\
[connector]
name = "github://acme/feed"
version = "1.0.0"

[capabilities.network]
hosts = ["feed.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Read the feed"

[capabilities.runtime]
imports = ["http", "websocket"]
"""
LISTENER = """\
import os

from aileron_connector import op, run, websocket
from aileron_sandbox.frames import WebSocketMessage, encode

@op
def listen(says: list[str], url: str = "wss://feed.example.com/v1?all=1", waits: bool = True) -> list[str]:
    \"\"\"Each message, then all that comes.\"\"\"
    try:
        with websocket.connect(url, credential="api_key", subprotocols=["v2", "v1"], timeout_s=10) as socket:
            for message in says:
                socket.send(message)
            return [f"{socket.subprotocol}", *socket] if waits else []
    except websocket.HandshakeRefused as error:
        return [str(error.status), error.body.decode()]
    except ConnectionError as error:
        return [type(error).__name__]

@op
def insist() -> list[str]:
    \"\"\"Say the last message twice, in one write: whoever closes after the first has the second by then.\"\"\"
    url = "wss://feed.example.com/v1?all=1"
    with websocket.connect(url, credential="api_key", subprotocols=["v2", "v1"]) as socket:
        socket.send('{"subscribe": 7}')
        os.write(4, b"".join(map(bytes, encode(WebSocketMessage(id=socket._id, text=True), b"bye"))) * 2)
        return [*socket]

@op
def shout() -> str:
    \"\"\"In binary.\"\"\"
    with websocket.connect("wss://feed.example.com/v1") as socket:
        socket.send(b"x")
        return "sent"

if __name__ == "__main__":
    run()
"""


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Run a connector that opens a WebSocket and says what it is told to."""
    with bench_of(sources(tmp_path_factory.mktemp("feed"), FEED, LISTENER)) as running:
        yield running


def listened(feed: Bench, args: str, output: str, *served: str, op: str = "listen") -> str | None:
    """Return the problem of that case."""
    text = f'[[case]]\nname = "it"\nop = "{op}"\nargs = {{ {args} }}\noutput = {output}\n' + "".join(served)
    (report,) = feed.run(parse_cases(text, file="cases.toml").cases)
    return report.problem


SERVED = """
[[case.websocket]]
path = "/v1?all=1"
credential = "api_key"
subprotocol = "v1"
talk = ["S: hello", 'C: {"subscribe": {id}}', 'S: {"subscribed": {id}}', "C: bye", "S: bye"]
"""
SAYS = """says = ['{"subscribe": 7}', "bye"]"""


def test_a_websocket_follows_the_scripted_conversation_of_the_case(feed: Bench) -> None:
    """The WebSocket closes after the last message. The connector's final message is compared too."""
    heard = """["v1", "hello", '{"subscribed": 7}', "bye"]"""
    assert listened(feed, SAYS, heard, SERVED) is None
    assert listened(feed, SAYS + ", waits = false", "[]", SERVED) is None


def test_an_http_response_in_a_case_can_refuse_a_websocket_handshake(feed: Bench) -> None:
    """The service refuses WebSockets, or cannot be reached."""
    exchange = '[[case.exchange]]\nmethod = "GET"\npath = "/v1?all=1"\n'
    assert listened(feed, SAYS, '["401", "who are you?"]', exchange + 'status = 401\nbody = "who are you?"') is None
    assert "network_error" in str(listened(feed, SAYS, "[]", exchange + "unreachable = true"))


@pytest.mark.parametrize(
    ("args", "served", "words"),
    [
        ("says = ['{\"subscribe\": 7}', 'cya']", SERVED, "feed.example.com:443 was sent 'cya'; expected 'bye'"),
        ("says = [], waits = false", SERVED, "the WebSocket /v1?all=1 ended before '{\"subscribe\": {id}}'"),
        (SAYS + ", waits = false", SERVED + SERVED, "it never asked for the WebSocket /v1?all=1"),
        (
            SAYS,
            "",
            "no [[case.websocket]], nor an exchange that answers its GET, is left for wss://feed.example.com/v1",
        ),
        (SAYS, SERVED.replace('"api_key"', '"basic"'), "was asked with api_key credential; expected basic"),
        (SAYS, SERVED.replace('"v1"', '"v3"'), "was offered v2, v1 as subprotocols; expected v3"),
        (SAYS + ', url = "wss://evil.example.com/v1"', SERVED, "evil.example.com:443 is not a granted host"),
        (SAYS + ', url = "https://feed.example.com/v1"', SERVED, "does not start with wss://"),
    ],
    ids=["other", "too-little", "left", "none", "credential", "subprotocol", "host", "scheme"],
)
def test_a_websocket_that_differs_from_the_case_fails_it(feed: Bench, args: str, served: str, words: str) -> None:
    """The case fails even if the operation returns the expected output."""
    assert words in str(listened(feed, args, "[]", served))


def test_an_additional_message_on_a_websocket_fails_the_case(feed: Bench) -> None:
    """The message is written before the connector can have seen the close. Later messages are not sent."""
    assert "was sent 'bye'; expected nothing more" in str(listened(feed, "", "[]", SERVED, op="insist"))


def test_a_binary_websocket_message_fails_the_case(feed: Bench) -> None:
    """The format of a case has only text messages."""
    served = '[[case.websocket]]\npath = "/v1"\ntalk = ["C: x"]\n'
    assert "was sent a binary message" in str(listened(feed, "", '"sent"', served, op="shout"))


def test_the_mail_connector_passes_its_own_cases() -> None:
    """The cases have lines of IMAP and SMTP."""
    folder = ROOT / "connectors" / "mail"
    with bench_of(folder) as running:
        reports = running.run(parse_cases((folder / CASES).read_text(), file=CASES).cases)

    assert {report.case: report.problem for report in reports if report.problem is not None} == {}
    assert len(reports) >= 5


def test_the_limits_of_the_manifest_are_enforced(tmp_path: Path) -> None:
    """An operation that never ends is stopped, and the next case runs."""
    cases = parse_cases(
        '[[case]]\nname = "a"\nop = "hang"\nfailure = "resource_limit_exceeded"\ndetails = { limit = "wall" }\n'
        '[[case]]\nname = "b"\nop = "reach"\nargs = { path = "/x" }\noutput = { is_there = false, environment = 0 }\n',
        file="c",
    ).cases
    with bench_of(sources(tmp_path, MANIFEST.replace("timeout_s = 20", "timeout_s = 5"))) as strict:
        hung, after = strict.run(cases)

    assert (hung.problem, after.problem) == (None, None)
    assert hung.ms >= 5000


def test_the_cases_of_a_compiled_connector_can_be_run(tmp_path: Path) -> None:
    """The connector runs in the jail of compiled programs, with the same results."""
    (tmp_path / "manifest.toml").write_text(MANIFEST)
    (tmp_path / "connector").write_bytes(compiled("connector", "static"))
    with bench_of(tmp_path) as bench:
        fetch = 'op = "fetch"\nargs = { path = "/notes" }\n'
        refused = tried(bench, fetch + 'failure = "network_error"', GET + "unreachable = true")
        unasked = tried(bench, fetch + 'failure = "network_error"')
        dialled = tried(bench, 'op = "reach_out"\nfailure = "network_error"')

    assert refused.problem is None
    assert "no exchange is left" in str(unasked.problem)
    assert "capability_denied" in str(dialled.problem)


def test_placeholders_in_a_manifest_get_invented_values_for_its_cases(tmp_path: Path) -> None:
    """Hosts are those that the cases name, and client values are invented: no real provider is contacted."""
    oauth2 = '[capabilities.credential.oauth2]\nauthorize_url = "https://id.example.com/a"\ntoken_url = "https://id.example.com/t"\n'
    oauth2 += 'client_id = "bound-at-release"\nclient_secret = "bound-at-release"\nscopes = ["x"]\n'
    text = MANIFEST.replace("notes.example.com:443", "bound-at-build").replace("api_key", "oauth2")
    directory = sources(
        tmp_path / "unbound", text.replace("[capabilities.runtime]", f"{oauth2}\n[capabilities.runtime]")
    )
    with pytest.raises(AileronError, match="--host"):
        artifact_of(directory, ())

    manifest = artifact_of(directory, [HostPort("cal.example.com", 443)]).manifest
    assert manifest.hosts == (HostPort("cal.example.com", 443),)
    assert manifest.oauth2 is not None
    assert manifest.oauth2.client_secret == FAKE_SECRET


# A server of the author's own


@pytest.fixture
def upstream() -> Iterator[tuple[LocalUpstream, list[dict[str, Any]]]]:
    """Run a server on loopback that repeats the credential it is shown, and records its requests."""
    asked: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append({"path": self.path, "key": self.headers["Authorization"]})
            data = json.dumps(self.headers["Authorization"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append({"path": self.path, "body": body, "fields": dict(self.headers)})
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield LocalUpstream.parse(f"http://127.0.0.1:{server.server_address[1]}"), asked
        server.shutdown()
        thread.join(10)


def test_an_operation_is_tried_against_a_local_server(
    bench: Bench, upstream: tuple[LocalUpstream, list[dict[str, Any]]]
) -> None:
    """The server stands for the declared hosts. It gets a made-up credential, which never comes back to the jail."""
    server, asked = upstream
    done = bench.call("fetch", {"path": "/notes?x=1", "credential": "api_key"}, server)

    assert asked == [{"path": "/notes?x=1", "key": f"Bearer {FAKE_SECRET}"}]
    assert done.failure is None
    assert done.output[0][0] == 200
    assert FAKE_SECRET not in done.output[0][1]


def test_an_invented_signing_key_signs_requests_as_the_manifest_says(
    upstream: tuple[LocalUpstream, list[dict[str, Any]]],
) -> None:
    """The key has the form of a webhook's key, and the receiver's library verifies the signature."""
    server, asked = upstream
    with bench_of(ROOT / "connectors" / "webhook", HostPort("hooks.example.com", 443)) as bench:
        done = bench.call("send_event", {"event": "a.b", "data": {"c": 1}}, server)

    assert done.failure is None, done.failure
    signed = Webhook(base64.b64encode(FAKE_SECRET.encode()).decode())
    assert signed.verify(asked[0]["body"], asked[0]["fields"])["data"] == {"c": 1}


OAUTH2: Final = """\
[capabilities.credential.oauth2]
authorize_url = "https://id.example.com/a"
token_url = "https://id.example.com/t"
client_id = "notes"
scopes = ["x"]
"""
TABLES: Final[dict[CredentialKind, str]] = {
    "oauth2": OAUTH2,
    "aws_sigv4": '[capabilities.credential.aws]\nregion = "us-east-1"\nservice = "sns"\n',
    "hmac": '[capabilities.credential.hmac]\nmessage = "{time}.{path}"\nheaders = {X-Signature = "{time} {signature}"}\n',
    "oauth2_client": '[capabilities.credential.oauth2_client]\ngrant = "client_credentials"\n'
    'token_url = "https://id.example.com/t"\nclient_auth = "client_secret_basic"\n',
}
"""Additional tables in the manifest of a kind."""
BEARER: Final = f"Authorization: Bearer {FAKE_SECRET}"
SHOWN: Final[dict[CredentialKind, str]] = {
    "api_key": BEARER,
    "oauth2": BEARER,
    "oauth2_client": BEARER,
    "basic": "Authorization: Basic " + base64.b64encode(f"test:{FAKE_SECRET}".encode()).decode(),
    "digest": 'Authorization: Digest username="test"',
    "aws_sigv4": "AWS4-HMAC-SHA256 Credential=test/",
    "hmac": "X-Signature: ",
}
"""Text in the head of the request, by kind. A certificate is not in the head, and a login does not speak HTTP."""


def test_every_kind_of_credential_is_tested_against_a_server() -> None:
    """The two kinds left out have tests of their own."""
    assert set(SHOWN) == set(get_args(CredentialKind)) - {"mtls", "login"}


@pytest.mark.parametrize("kind", SHOWN)
def test_each_kind_of_credential_has_an_invented_value_for_trying_an_operation(
    kind: CredentialKind, tmp_path: Path
) -> None:
    """The credential travels as a real one: the server sees it, and it is masked in the response."""
    authority = Authority(tmp_path)

    def reflect(seen: Seen) -> bytes:
        if kind == "digest" and not seen.values("authorization"):
            return answer(b"", 'WWW-Authenticate: Digest realm="a", nonce="b", qop="auth"', status="401 Unauthorized")
        return answer(seen.head)

    text = MANIFEST.replace('"api_key"', f'"{kind}"').replace(
        "[capabilities.runtime]", TABLES.get(kind, "") + "\n[capabilities.runtime]"
    )
    with (
        Upstream(reflect, authority.server_context("localhost")) as server,
        bench_of(sources(tmp_path / "it", text)) as bench,
    ):
        there = LocalUpstream.parse(f"https://localhost:{server.port}")
        done = bench.call(
            "fetch", {"path": "/notes", "credential": kind}, there, Settings(egress_ca_pem=authority.ca_pem)
        )
        assert done.failure is None, done.failure
        head = server.requests[-1].head.decode()

    assert done.failure is None, done.failure
    [[status, said]] = done.output
    assert (status, SHOWN[kind] in head) == (200, True), head
    assert FAKE_SECRET not in said


@needs_nginx
def test_an_invented_client_certificate_is_sent_to_a_server_that_requests_it(tmp_path: Path) -> None:
    """Only a request that names the credential shows it."""
    authority = Authority(tmp_path)
    settings = Settings(egress_ca_pem=authority.ca_pem)
    with (
        Nginx(tmp_path, authority, authority.ca_file, verify="optional_no_ca") as server,
        bench_of(sources(tmp_path / "it", MANIFEST.replace('"api_key"', '"mtls"'))) as bench,
    ):
        there = LocalUpstream.parse(f"https://localhost:{server.port}")
        done = [
            bench.call("fetch", {"path": "/notes", **credential}, there, settings)
            for credential in ({"credential": "mtls"}, {})
        ]
        assert [attempt.failure for attempt in done] == [None, None]
        shown = [(request.target, request.client, request.status) for request in server.logged(2)]

    assert shown == [("/notes", f"CN={FAKE_SECRET}", 200), ("/notes", "", 200)]


def test_an_operation_under_test_can_reach_only_the_given_local_server(
    bench: Bench, upstream: tuple[LocalUpstream, list[dict[str, Any]]]
) -> None:
    """The declared host, which belongs to others, and another port of this machine are denied."""
    server, asked = upstream
    for url in (
        "https://notes.example.com/",
        f"http://127.0.0.1:{server.address.port + 1 if server.address.port < 65535 else 1}/",
    ):
        done = bench.call("swallow", {"url": url}, server)
        assert done.failure is not None
        assert done.failure.failure_class is FailureClass.CAPABILITY_DENIED
    assert asked == []
    there = bench.call("swallow", {"url": f"http://127.0.0.1:{server.address.port}/"}, server)
    assert (there.failure, len(asked)) == (None, 1)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://10.0.0.1",
        "http://localhost:1/path",
        "http://localhost.evil.com:1",
        "ftp://localhost",
        "x",
    ],
)
def test_an_operation_can_be_tried_only_against_a_server_on_this_machine(url: str) -> None:
    """Real services are reached only through the daemon, with its rules and its record."""
    assert LocalUpstream.parse("https://localhost:8443") == LocalUpstream(HostPort("localhost", 8443), False)
    with pytest.raises(ValueError, match=r"this machine|path|URL"):
        LocalUpstream.parse(url)
