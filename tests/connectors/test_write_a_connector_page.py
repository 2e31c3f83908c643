"""docs/how-to/write-a-connector.md: its files are built and run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest
from aileron_sandbox.frames import GrantedHost, HttpRequest, Log, TcpOpen, WebSocketOpen
from tests.support.plain_host import ROOT, ConnectorProcess, PlainHost, invoke
from tests.support.shaped import shaped
from tests.support.upstream import Seen, Upstream, answer

PAGE = (ROOT / "docs" / "how-to" / "write-a-connector.md").read_text(encoding="utf-8")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write the page's files into a directory; return it."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in re.findall(r"^`notes/([a-z.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["connector.py", "manifest.toml"]
    return folder


def examples(heading: str) -> list[str]:
    """Return the Python examples under a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def notes() -> Iterator[GrantedHost]:
    """Run a service that keeps notes, and requires a Content-Type."""
    kept: list[dict[str, Any]] = []

    def script(seen: Seen) -> bytes:
        if seen.method == "GET":
            limit = int(seen.target.rpartition("=")[2])
            return answer(json.dumps(kept[::-1][:limit]).encode())
        if seen.values("content-type") != ["application/json"] or len(kept) >= 2:
            return answer(b"{}", status="507 Insufficient Storage")
        kept.append({"id": len(kept) + 1, **json.loads(seen.body)})
        return answer(json.dumps(kept[-1]).encode(), status="201 Created")

    with Upstream(script) as upstream:
        yield GrantedHost("127.0.0.1", upstream.port, True)


def test_the_how_to_pages_connector_builds_and_its_operations_do_what_the_page_says(
    source: Path, notes: GrantedHost, tmp_path: Path
) -> None:
    """The manifest is valid, the program runs as built, and each operation does what the page says."""
    built = build(source)
    manifest = parse_connector_manifest(built.manifest, file="manifest.toml")
    program = tmp_path / "connector"
    program.write_bytes(built.connector)
    host = PlainHost(program, hosts=[notes])

    assert host.call("list_notes").output == {"notes": []}
    added = host.call("add_note", text="first", tags=["a"])
    assert added.output == {"note": {"id": 1, "text": "first", "tags": ["a"]}}
    assert added.told == [Log(level="info", message="note added", fields={"id": 1})]
    assert host.call("add_note", text="second").output["note"]["tags"] == []
    assert [note["id"] for note in host.call("list_notes", limit=1).output["notes"]] == [2]
    assert added.requests[0].credential == (manifest.credential.kind if manifest.credential else None)

    assert host.call("add_note", text=" ").failure.details == {"argument": "text"}
    assert host.call("list_notes", limit="3").failure.failure_class == "bad_input"
    assert host.call("add_note", text="third").failure.details == {"status": 507}
    assert set(manifest.intents) <= set(shaped(host.call("nothing").failure.details)["operations"])


def test_the_how_to_pages_tests_pass(source: Path) -> None:
    """They run in a process of their own, beside the connector of the page, as an author would run them."""
    (text,) = examples("7. Test it")
    (source / "test_notes.py").write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes.py"],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


def test_the_how_to_pages_library_and_stream_examples_make_the_expected_requests(tmp_path: Path) -> None:
    """The library's request names the credential, and the operations of the stream examples request a stream."""
    library, aws = examples("5. Use a client library")
    streams, websockets = examples("6. Mail, databases, anything with TCP")
    program = tmp_path / "connector.py"
    program.write_text(f"{library}\n{streams}\nfrom aileron_connector import run\n\nrun()\n", encoding="utf-8")
    slack = GrantedHost("slack.com", 443, False)

    report = PlainHost(program, hosts=[]).call("post", channel="#c", text="t")
    with ConnectorProcess(program, invoke("ask", hosts=[slack], question="q")) as process:
        asked = process.receive().message

    assert [(request.url, request.credential) for request in report.requests] == [
        ("https://slack.com/api/chat.postMessage", "api_key")
    ]
    assert not [name for request in report.requests for name, _ in request.headers if name.lower() == "authorization"]
    assert asked == TcpOpen(id=1, host="slack.com", port=443, tls=True)

    program.write_text(f"{websockets}\nfrom aileron_connector import run\n\nrun()\n", encoding="utf-8")
    with ConnectorProcess(program, invoke("watch", hosts=[slack], channel="c")) as process:
        opened = process.receive().message
    assert opened == WebSocketOpen(id=1, url="wss://slack.com/stream", headers=[], credential="api_key")

    program.write_text(f"{aws}\nfrom aileron_connector import run\n\nrun()\n", encoding="utf-8")
    with ConnectorProcess(program, invoke("list_keys", hosts=[slack], bucket="notes")) as process:
        listed = process.receive().message
    assert isinstance(listed, HttpRequest)
    assert (listed.url.partition("?")[0], listed.credential) == ("https://slack.com/notes", "aws_sigv4")
