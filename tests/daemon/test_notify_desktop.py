"""That a question waits, told on a desktop: by a notify-send that writes down how it was started, which is a real process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from aileron.config import Settings
from aileron.daemon.notify.desktop import HANDFUL
from aileron.daemon.notify.notices import NotifyTiming
from aileron.daemon.notify.notifier import Notifier
from aileron.egress import Egress
from aileron.vault.vault import Vault
from tests.support.hostile_text import assert_harmless, hostile

pytestmark = pytest.mark.anyio

QUICK: Final = NotifyTiming(desktop_s=20.0, settle_s=0.05, round_s=60.0)
_SCRIPT: Final = f"""#!{sys.executable} -IS
import json, os, sys, time
folder = {{folder!r}}
with open(os.path.join(folder, "began"), "a") as file:
    print(os.getpid(), file=file)
if os.path.exists(os.path.join(folder, "hang")):
    os.remove(os.path.join(folder, "hang"))
    time.sleep(3600)
others = [pid for pid in open(os.path.join(folder, "began")).read().split() if int(pid) != os.getpid()]
seen = {{{{
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "directory": os.getcwd(),
    "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "beside": [pid for pid in others if os.path.exists("/proc/" + pid)],
}}}}
with open(os.path.join(folder, "shown"), "a") as file:
    file.write(json.dumps(seen) + "\\n")
sys.exit(os.path.exists(os.path.join(folder, "fail")))
"""


class Desk:
    """A directory with a notify-send in it, and what that was asked to show."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "notify-send"
        program.write_text(_SCRIPT.format(folder=str(folder)), encoding="utf-8")
        program.chmod(0o755)
        self.environment = {
            "PATH": str(folder),
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere",
            "AILERON_VAULT_PASSPHRASE": "canary",
            "LD_PRELOAD": "/nowhere.so",
        }

    @property
    def shown(self) -> list[dict[str, Any]]:
        """One for each that was begun and not ended before its time."""
        path = self.folder / "shown"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Summary and body of each."""
        return [tuple(one["arguments"][2:]) for one in self.shown]

    async def wait_shown(self, count: int) -> None:
        """Until so many were shown."""
        while len(self.shown) < count:
            await anyio.sleep(0.005)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty one."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder)


@contextlib.asynccontextmanager
async def notifying(
    environment: dict[str, str], tmp_path: Path, pace: NotifyTiming = QUICK, settings: Settings | None = None
) -> AsyncIterator[Notifier]:
    """A notifier that serves a daemon with this environment."""
    in_force = settings or Settings()
    egress = Egress(in_force, None)  # type: ignore[arg-type] # nothing leaves
    notifier = Notifier(in_force, egress, Vault(tmp_path / "vault.json"), environment=environment, pace=pace)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.serve)
        with anyio.fail_after(60):
            yield notifier
        tasks.cancel_scope.cancel()


async def test_a_question_is_shown_by_its_name_and_id(desk: Desk, tmp_path: Path) -> None:
    """One process, with arguments after `--`, the way to the bus, and nothing else of what the daemon has."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        notifier.asked("apr-2", "github://you/connector-notes", "connector")
        await desk.wait_shown(2)
    first, second = desk.shown

    assert first["arguments"] == ["--app-name=Aileron", "--", "An action waits for you", "send-mail\napr-1"]
    assert second["arguments"][2:] == ["A change waits for your consent", "github://you/connector-notes\napr-2"]
    assert first["environment"] == {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere", "LC_ALL": "C.UTF-8"}
    assert first["directory"] == "/"
    assert first["open"] == [0, 1, 2]


@hostile
async def test_what_others_write_is_visible_on_the_desktop(text: str, desk: Desk, tmp_path: Path) -> None:
    """Plain ASCII, no markup, no escape, and the name is still one line above the id."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", text, "action")
        await desk.wait_shown(1)
    ((_summary, body),) = desk.texts
    name, approval_id = body.split("\n")

    assert_harmless(body)
    assert name.isascii()
    assert not set(name) & set("<>&\\")
    assert len(name) < 300
    assert approval_id == "apr-1"


@pytest.mark.parametrize("name", ["--help", "-u", "$(id)", "; id", "`id`", "--", ""])
async def test_a_name_is_no_option_and_no_command(name: str, desk: Desk, tmp_path: Path) -> None:
    """It is an argument behind `--`, as it stands."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", name, "action")
        await desk.wait_shown(1)

    assert desk.shown[0]["arguments"][1:] == ["--", "An action waits for you", f"{name}\napr-1"]


async def test_a_flood_is_a_handful_and_one_count(desk: Desk, tmp_path: Path) -> None:
    """A thousand questions: five by name, and one that says how many more; one process at a time."""
    async with notifying(desk.environment, tmp_path) as notifier:
        for number in range(1000):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 1)
        for number in range(1000):
            notifier.asked(f"apr-again-{number}", "send-mail", "action")
        await anyio.wait_all_tasks_blocked()

    by_name = [("An action waits for you", f"send-mail\napr-{number}") for number in range(HANDFUL)]
    assert desk.texts == [*by_name, ("And 995 more wait", "aileron approval list")]
    assert [one["beside"] for one in desk.shown] == [[]] * (HANDFUL + 1)


async def test_what_came_in_the_rest_of_a_round_is_counted_when_it_is_over(desk: Desk, tmp_path: Path) -> None:
    """A flood, a few more, and after the round single questions again: nothing is told twice, nothing is forgotten."""
    async with notifying(
        desk.environment, tmp_path, NotifyTiming(desktop_s=20.0, settle_s=0.01, round_s=2.0)
    ) as notifier:
        for number in range(HANDFUL + 2):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 1)
        for number in range(10):
            notifier.asked(f"apr-more-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 2)
        notifier.asked("apr-last", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 3)

    assert [summary for summary, _body in desk.texts[HANDFUL:]] == [
        "And 2 more wait",
        "And 10 more wait",
        "An action waits for you",
    ]


async def test_one_that_hangs_is_ended_and_the_next_is_shown(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After its deadline, with a line in the log; no process is left."""
    (desk.folder / "hang").touch()
    async with notifying(desk.environment, tmp_path, NotifyTiming(desktop_s=3.0)) as notifier:
        notifier.asked("apr-hangs", "send-mail", "action")
        notifier.asked("apr-2", "send-mail", "action")
        await desk.wait_shown(1)

    assert desk.texts == [("An action waits for you", "send-mail\napr-2")]
    assert desk.shown[0]["beside"] == []
    assert said(caplog) == [f"{desk.folder}/notify-send shows nothing on the desktop: it took over 3 s"]


async def test_what_fails_is_said_once_until_it_works_again(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit status 1, twice; then it works; then the program is gone."""
    (desk.folder / "fail").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        notifier.asked("apr-2", "send-mail", "action")
        await desk.wait_shown(2)
        (desk.folder / "fail").unlink()
        notifier.asked("apr-3", "send-mail", "action")
        await desk.wait_shown(3)
        (desk.folder / "notify-send").unlink()
        notifier.asked("apr-4", "send-mail", "action")
        while len(said(caplog)) < 2:
            await anyio.sleep(0.005)
    program = f"{desk.folder}/notify-send"

    assert said(caplog)[0] == f"{program} shows nothing on the desktop: it ended with 1"
    assert said(caplog)[1].startswith(f"{program} shows nothing on the desktop: [Errno 2] No such file")


@pytest.mark.parametrize(
    "change",
    [
        lambda desk: desk.environment.update(PATH="/nowhere"),
        lambda desk: desk.environment.pop("PATH"),
        lambda desk: desk.environment.update(PATH=os.path.relpath(desk.folder)),
        lambda desk: desk.environment.pop("DBUS_SESSION_BUS_ADDRESS"),
        lambda desk: (desk.folder / "notify-send").chmod(0o644),
    ],
    ids=["not in the path", "no path", "a path from somewhere", "no bus", "not a program"],
)
async def test_where_there_is_no_desktop_nothing_is_started(
    change: Callable[[Desk], Any], desk: Desk, tmp_path: Path
) -> None:
    """Asking is as quiet there; the same desk before the change shows what is asked."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-before", "send-mail", "action")
        await desk.wait_shown(1)
    change(desk)
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-after", "send-mail", "action")
        await anyio.wait_all_tasks_blocked()

    assert len((desk.folder / "began").read_text().splitlines()) == 1


async def test_a_bus_where_the_session_keeps_it_is_enough(desk: Desk, tmp_path: Path) -> None:
    """$XDG_RUNTIME_DIR/bus, as systemd has it, and without that there is none."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    del desk.environment["DBUS_SESSION_BUS_ADDRESS"]
    desk.environment["XDG_RUNTIME_DIR"] = str(runtime)
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-without", "send-mail", "action")
        await anyio.wait_all_tasks_blocked()
    (runtime / "bus").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-with", "send-mail", "action")
        await desk.wait_shown(1)

    assert [body for _summary, body in desk.texts] == ["send-mail\napr-with"]
    assert desk.shown[0]["environment"] == {"XDG_RUNTIME_DIR": str(runtime), "LC_ALL": "C.UTF-8"}


async def test_switched_off_it_is_off(desk: Desk, tmp_path: Path) -> None:
    """`notify.desktop = false`."""
    async with notifying(desk.environment, tmp_path, settings=Settings(notify_desktop=False)) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await anyio.wait_all_tasks_blocked()

    assert not (desk.folder / "began").exists()


async def test_stopping_ends_the_one_that_runs(desk: Desk, tmp_path: Path) -> None:
    """A daemon that stops leaves no notify-send behind, and asking afterwards is harmless."""
    (desk.folder / "hang").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        while not (desk.folder / "began").exists() or (desk.folder / "hang").exists():
            await anyio.sleep(0.005)
    pid = (desk.folder / "began").read_text().strip()
    notifier.asked("apr-2", "send-mail", "action")

    assert not Path("/proc", pid).exists()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What stands in the log."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("aileron")]


@pytest.fixture(autouse=True)
def _log_of_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
