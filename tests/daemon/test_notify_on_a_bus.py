"""A desktop notice with real parts: the system's notify-send, a session bus, and a notification server on it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pytest
from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from aileron.config import Settings
from aileron.daemon.notify.notices import NotifyTiming
from tests.daemon.asking import PAGE
from tests.daemon.test_notify_desktop import Desk, notifying, said
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio

_NAME: Final = "org.freedesktop.Notifications"
_PATH: Final = DBusAddress("/org/freedesktop/Notifications", interface=_NAME)
_NEEDED: Final = {"notify-send": "libnotify-bin", "dbus-daemon": "dbus-daemon"}
PACE: Final = NotifyTiming(desktop_s=20.0, settle_s=0.05)


class NotificationServer:
    """A notification server with these capabilities that records notices, and presses each button if `presses`."""

    def __init__(self, address: str, capabilities: list[str], *, presses: bool) -> None:
        self.shown: list[dict[str, Any]] = []
        self._capabilities = capabilities
        self._presses = presses
        self._bus: DBusConnection = open_dbus_connection(address)
        self._bus.send_and_get_reply(message_bus.RequestName(_NAME))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.sock.shutdown(socket.SHUT_RDWR)  # which ends the thread
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._bus.close()

    def _serve(self) -> None:
        while True:
            try:
                message = self._bus.receive()
            except (ConnectionError, OSError):
                return
            if message.header.message_type is MessageType.method_call:
                self._answer(message)

    def _answer(self, message: Message) -> None:
        match message.header.fields.get(HeaderFields.member):
            case "GetCapabilities":
                self._bus.send(new_method_return(message, "as", (self._capabilities,)))
            case "GetServerInformation":
                self._bus.send(new_method_return(message, "ssss", ("tests", "tests", "1", "1.2")))
            case "Notify":
                app, _replaces, _icon, summary, body, actions, _hints, _timeout = message.body
                self.shown.append({"app": app, "summary": summary, "body": body, "actions": actions})
                self._bus.send(new_method_return(message, "u", (len(self.shown),)))
                if actions and self._presses:
                    self._bus.send(new_signal(_PATH, "ActionInvoked", "us", (len(self.shown), actions[0])))
                    self._bus.send(new_signal(_PATH, "NotificationClosed", "uu", (len(self.shown), 2)))
            case _:
                self._bus.send(new_method_return(message))


@pytest.fixture
def bus() -> Iterator[str]:
    """Start a session bus for one test and return its address."""
    if missing := [package for program, package in _NEEDED.items() if shutil.which(program) is None]:
        if os.environ.get("CI"):  # a skip is not a pass
            pytest.fail(f"not installed: {missing}")
        pytest.skip(f"not installed: {missing}")
    with subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.kill()


@pytest.fixture
def desk(bus: str, tmp_path: Path) -> Desk:
    """Prepare a desktop with the real notify-send on that bus, and a browser that records what it opens."""
    folder = tmp_path / "desk"
    folder.mkdir()
    made = Desk(folder)
    made.has_buttons()
    real = shutil.which("notify-send")
    assert real is not None
    (folder / "notify-send").unlink()
    (folder / "notify-send").symlink_to(real)
    made.environment["DBUS_SESSION_BUS_ADDRESS"] = bus
    return made


async def test_pressing_the_button_of_a_desktop_notice_opens_the_page_of_its_question(
    bus: str, desk: Desk, tmp_path: Path
) -> None:
    """Every part is real: notify-send, the bus, the server's signal, and the browser that gets the URL."""
    settings = Settings(notify_details=True)
    with NotificationServer(bus, ["actions", "body"], presses=True) as server:
        async with notifying(desk.environment, tmp_path, PACE, settings) as notifier:
            await notifier.ask(
                "apr-1", "delete-event", "action", headline="Delete “Dentist” & <b>all</b>", until=desk.wait_opened()
            )

    assert server.shown == [
        {
            "app": "Aileron",
            "summary": "Claude asks: delete-event",
            "body": f"The agent says: Delete “Dentist” [U+0026] [U+003C]b[U+003E]all[U+003C]/b[U+003E]\n{PAGE}/approvals/apr-1",
            "actions": ["open", "Open"],
        }
    ]
    assert [opened["arguments"] for opened in desk.opened] == [[f"{PAGE}/approvals/apr-1"]]


async def test_a_notification_server_without_buttons_shows_each_notice_only_once(
    bus: str, desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The notifier understands notify-send's message about it: no notice is repeated, and no error is logged."""
    with NotificationServer(bus, ["body"], presses=True) as server:

        def is_shown(number: int) -> bool:
            return len(server.shown) > number

        async with notifying(desk.environment, tmp_path, PACE) as notifier:
            for number in range(2):
                notifier.asked(f"apr-{number}", "send-mail", "action")
                await wait_until_async(partial(is_shown, number), "it is shown")
            await desk.wait_ended()

    assert [(notice["body"], notice["actions"]) for notice in server.shown] == [
        (f"{PAGE}/approvals/apr-{n}", []) for n in (0, 1)
    ]
    assert desk.opened == []
    assert said(caplog) == []
