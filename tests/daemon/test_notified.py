"""A real daemon reports its questions: a gated run, on the desktop and to the webhook of its settings."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.test_notify_desktop import Desk
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe
from tests.support.upstream import Authority, Seen, Upstream, answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

KEY: Final = b"whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef")
_HEARD_S: Final = 20.0


@pytest.fixture
def heard() -> threading.Event:
    """Return an event that every request to the receiver sets."""
    return threading.Event()


@pytest.fixture
def receiver(heard: threading.Event, tmp_path: Path) -> Iterator[tuple[Upstream, Path]]:
    """Start a server on loopback with a certificate, and return it with its authority's file."""
    authority = Authority(tmp_path)

    def take(_seen: Seen) -> bytes:
        heard.set()
        return answer(status="204 No Content")

    with Upstream(take, authority.server_context("localhost")) as server:
        yield server, authority.ca_file


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Prepare a desktop that the daemon finds when it starts."""
    folder = tmp_path / "desk"
    folder.mkdir()
    made = Desk(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", made.environment["DBUS_SESSION_BUS_ADDRESS"])
    return made


@pytest.fixture
def home(desk: Desk, receiver: tuple[Upstream, Path]) -> Iterator[DaemonHome]:
    """Start a home whose daemon notifies in both ways."""
    server, ca_file = receiver
    with daemon_home() as made:
        made.configure(
            f'[egress]\nprivate = ["localhost:{server.port}"]\nca_file = "{ca_file}"\n'
            f'[notify]\nwebhook = "https://localhost:{server.port}/hook"\nwebhook_secret = "webhook-key"\n'
        )
        lend_probe(made)
        made.must("PUT", "/v1/secrets/webhook-key", {"value_base64": base64.b64encode(KEY).decode()})
        yield made


def test_the_question_of_a_gated_run_causes_desktop_and_webhook_notices_but_its_decision_does_not(
    home: DaemonHome, desk: Desk, receiver: tuple[Upstream, Path], heard: threading.Event
) -> None:
    """Notices have the action's name and the question's id, but neither the outcome nor the arguments, which may be
    secret.
    """
    home.add_probe_action("give_back", "text:string", gated=True)
    question = home.asked("give-back", {"text": "an argument"})
    assert heard.wait(_HEARD_S)
    wait_until(lambda: desk.shown, "it is shown")
    home.decide(question, "approve")
    final = home.result(question)
    home.stop()
    server, _ca_file = receiver

    assert final["status"] == "completed", final
    assert len(server.requests) == 1
    assert (
        f'"id": "{question["approval_id"]}", "action": "give-back", "agent": "a command"'.encode()
        in server.requests[0].body
    )
    assert desk.texts == [("A command asks: give-back", question["review_url"])]
    assert b"an argument" not in server.requests[0].body
    assert not any(line for line in (home.path / "logs" / "daemon.log").read_text().splitlines() if "webhook" in line)
