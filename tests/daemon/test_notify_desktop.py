"""Desktop notices of pending questions, with a notify-send that is a real process and records how it was started."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import psutil
import pytest

from aileron.config import Settings
from aileron.daemon.notify.desktop import HANDFUL, MAX_OPEN
from aileron.daemon.notify.notices import NotifyTiming
from aileron.daemon.notify.notifier import Notifier
from aileron.egress import Egress
from aileron.vault.vault import Vault
from tests.daemon.asking import PAGE, Asking, Watch
from tests.support.hostile_text import assert_harmless, hostile
from tests.support.waiting import give_turns, jump, wait_text_async, wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("T4")]

QUICK: Final = NotifyTiming(desktop_s=20.0, settle_s=0.05, round_s=60.0)
_SCRIPT: Final = f"""#!{sys.executable} -IS
import json, os, sys, time
folder = {{folder!r}}
if sys.argv[2:] == ["--help"]:
    with open(os.path.join(folder, "helped"), "a") as file:
        print(1, file=file)
    print("-A, --action=[NAME=]Text..." if os.path.exists(os.path.join(folder, "actions")) else "-w, --wait")
    sys.exit(0)
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
if any(word.startswith("--action=") for word in sys.argv):
    if os.path.exists(os.path.join(folder, "bare")):
        print("Actions are not supported by this notifications server. Displaying non-interactively.", file=sys.stderr)
        sys.exit(1)
    if os.path.exists(os.path.join(folder, "press")):
        print("open")
    elif os.path.exists(os.path.join(folder, "wait")):
        time.sleep(3600)
sys.exit(os.path.exists(os.path.join(folder, "fail")))
"""
_OPENER: Final = f"""#!{sys.executable} -IS
import json, os, sys
with open({{folder!r}} + "/opened", "a") as file:
    file.write(json.dumps({{{{"arguments": sys.argv[1:], "environment": dict(os.environ)}}}}) + "\\n")
"""


class Desk:
    """A directory with a notify-send in it, and the notices that it was asked to show."""

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

    def has_buttons(self, *how: str) -> None:
        """Add actions, as of libnotify 0.8, and a browser; `how`: press, wait, or bare for a server without actions."""
        opener = self.folder / "xdg-open"
        opener.write_text(_OPENER.format(folder=str(self.folder)), encoding="utf-8")
        opener.chmod(0o755)
        detach = shutil.which("setsid")
        assert detach is not None
        (self.folder / "setsid").symlink_to(detach)
        for name in ("actions", *how):
            (self.folder / name).touch()

    @property
    def opened(self) -> list[dict[str, Any]]:
        """Pages that the browser was asked to open."""
        path = self.folder / "opened"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def shown(self) -> list[dict[str, Any]]:
        """Records of the notices that were begun and not ended early."""
        path = self.folder / "shown"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Summary and body of each notice."""
        return [tuple(notice["arguments"][-2:]) for notice in self.shown]

    async def wait_shown(self, count: int) -> None:
        """Wait until this many notices were shown."""
        await wait_until_async(lambda: len(self.shown) >= count, f"{count} are shown", seen=lambda: self.shown)

    async def wait_opened(self) -> None:
        """Wait until the browser was asked to open a page."""
        await wait_until_async(lambda: self.opened, "a page is opened", seen=lambda: self.shown)

    async def wait_ended(self) -> None:
        """Wait until every notify-send has ended and the notifier knows it, through a thread for each (ThreadedChildWatcher)."""
        await wait_until_async(
            lambda: (
                not [child for child in psutil.Process().children() if child.name() == "notify-send"]
                and not [thread for thread in threading.enumerate() if thread.name.startswith("waitpid-")]
            ),
            "each notify-send has ended",
        )
        await give_turns()  # for the tasks that read its output to its end


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Prepare a desktop that has shown nothing yet."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder)


@contextlib.asynccontextmanager
async def notifying(
    environment: dict[str, str], tmp_path: Path, pace: NotifyTiming = QUICK, settings: Settings | None = None
) -> AsyncIterator[Asking]:
    """Yield an asker whose notifier serves a daemon with this environment."""
    in_force, asking = settings or Settings(), Asking()
    egress = Egress(in_force, None)  # type: ignore[arg-type] # nothing leaves
    vault = Vault(tmp_path / "vault.json")
    asking.notifier = Notifier(
        in_force, egress, vault, queue=asking.look, page=PAGE, environment=environment, pace=pace
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.notifier.serve)
        with anyio.fail_after(60):
            yield asking
        tasks.cancel_scope.cancel()


async def test_a_desktop_notice_names_the_agent_and_the_action_and_has_the_url_of_the_question(
    desk: Desk, tmp_path: Path
) -> None:
    """Each notice is one process, which gets the bus's address and nothing else of the daemon's environment."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await notifier.ask("apr-2", "github://you/connector-notes", "connector", until=desk.wait_shown(2))
    first, second = desk.shown

    assert first["arguments"] == ["--app-name=Aileron", "--", "Claude asks: send-mail", f"{PAGE}/approvals/apr-1"]
    connector = "A command asks: connector github://you/connector-notes"
    assert second["arguments"][2:] == [connector, f"{PAGE}/approvals/apr-2"]
    assert first["environment"] == {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere", "LC_ALL": "C.UTF-8"}
    assert first["directory"] == "/"
    assert first["open"] == [0, 1, 2]


@hostile
async def test_hostile_names_are_escaped_in_a_desktop_notice(text: str, desk: Desk, tmp_path: Path) -> None:
    """The summary is plain ASCII without markup, and stays one line above the URL."""
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-1", text, "action", agent=text, until=desk.wait_shown(1))
    ((summary, body),) = desk.texts

    assert_harmless(summary)
    assert summary.isascii()
    assert not set(summary) & set("<>&\\\n")
    assert len(summary) < 600
    assert body == f"{PAGE}/approvals/apr-1"


@hostile
async def test_an_agents_text_is_escaped_and_marked_in_a_desktop_notice(text: str, desk: Desk, tmp_path: Path) -> None:
    """The text is one line without markup."""
    async with notifying(desk.environment, tmp_path, settings=Settings(notify_details=True)) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", headline=f"Send “{text}”", until=desk.wait_shown(1))
    ((_summary, body),) = desk.texts
    said, address = body.split("\n")

    assert_harmless(said)
    assert said.startswith("The agent says: Send “")
    assert not set(said) & set("<>&\\")
    assert len(said) < 300
    assert address == f"{PAGE}/approvals/apr-1"


@pytest.mark.parametrize("with_details", [False, True])
async def test_desktop_notices_show_details_only_if_the_setting_is_on(
    with_details: bool, desk: Desk, tmp_path: Path
) -> None:
    """The default is a notice with only the agent and the action."""
    settings = Settings(notify_details=True) if with_details else Settings()
    async with notifying(desk.environment, tmp_path, settings=settings) as notifier:
        await notifier.ask("apr-1", "delete-event", "action", headline="Delete “Dentist”", until=desk.wait_shown(1))

    said = "The agent says: Delete “Dentist”\n" if with_details else ""
    assert desk.texts == [("Claude asks: delete-event", f"{said}{PAGE}/approvals/apr-1")]


async def test_an_already_decided_question_causes_no_desktop_notice(desk: Desk, tmp_path: Path) -> None:
    """The notice would call the person to a question that is no longer pending; the next question is shown."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        notifier.decide("apr-1")
        await notifier.ask("apr-2", "send-mail", "action", until=desk.wait_shown(1))

    assert desk.texts == [("Claude asks: send-mail", f"{PAGE}/approvals/apr-2")]


async def test_a_notice_has_at_least_the_actions_name_if_the_question_cannot_be_read(
    desk: Desk, tmp_path: Path
) -> None:
    """The queue does not answer: a notice without details is better than none."""
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.is_broken = True
        await notifier.ask("apr-1", "send-mail", "action", until=desk.wait_shown(1))

    assert desk.texts == [("Approval needed: send-mail", f"{PAGE}/approvals/apr-1")]


# A button that opens the page


async def test_the_button_of_a_desktop_notice_opens_the_page_of_its_question(desk: Desk, tmp_path: Path) -> None:
    """The browser gets what it needs of the environment, and nothing secret."""
    desk.has_buttons("press")
    desk.environment |= {"DISPLAY": ":0", "HOME": "/home/mira", "AILERON_SESSION_TOKEN": "canary"}
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=desk.wait_opened())
    ((shown,), (opened,)) = desk.shown, desk.opened

    assert shown["arguments"][1:3] == ["--action=open=Open", "--"]
    assert opened["arguments"] == [f"{PAGE}/approvals/apr-1"]
    assert opened["environment"] == {
        name: desk.environment[name] for name in ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "PATH")
    } | {name: value for name, value in opened["environment"].items() if name == "LC_CTYPE"}


async def test_closing_a_desktop_notice_opens_no_page(desk: Desk, tmp_path: Path) -> None:
    """Pressing the next notice's button opens its page."""
    desk.has_buttons()
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=desk.wait_shown(1))
        (desk.folder / "press").touch()
        await notifier.ask("apr-2", "send-mail", "action", until=desk.wait_opened())

    assert [opened["arguments"] for opened in desk.opened] == [[f"{PAGE}/approvals/apr-2"]]
    assert (desk.folder / "helped").read_text() == "1\n"  # its features are asked for only once


async def test_if_the_notification_server_has_no_buttons_further_notices_request_none(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server showed the first notice without its button, so that is not repeated, and no error is logged."""
    desk.has_buttons("bare")
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=desk.wait_shown(1))
        await desk.wait_ended()
        await notifier.ask("apr-2", "send-mail", "action", until=desk.wait_shown(2))

    assert [notice["arguments"][1] for notice in desk.shown] == ["--action=open=Open", "--"]
    assert said(caplog) == []


async def test_an_old_notify_send_or_a_missing_browser_means_a_notice_without_button(
    desk: Desk, tmp_path: Path
) -> None:
    """The notice is shown nevertheless."""
    desk.has_buttons("press")
    (desk.folder / "actions").unlink()
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-older", "send-mail", "action", until=desk.wait_shown(1))
    (desk.folder / "actions").touch()
    (desk.folder / "xdg-open").unlink()
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-bare", "send-mail", "action", until=desk.wait_shown(2))

    assert [notice["arguments"][1] for notice in desk.shown] == ["--", "--"]


async def test_the_number_of_notices_that_wait_for_a_button_press_is_bounded(desk: Desk, tmp_path: Path) -> None:
    """Further notices get no button; when the daemon stops, no notify-send process is left."""
    desk.has_buttons("wait")
    pace = NotifyTiming(desktop_s=20.0, settle_s=0.01, round_s=0.01)
    async with notifying(desk.environment, tmp_path, pace) as notifier:
        for number in range(MAX_OPEN + 2):
            await notifier.ask(f"apr-{number}", "send-mail", "action", until=desk.wait_shown(number + 1))
    began = (desk.folder / "began").read_text().split()

    assert [notice["arguments"][1] for notice in desk.shown] == ["--action=open=Open"] * MAX_OPEN + ["--"] * 2
    assert not [pid for pid in began if Path("/proc", pid).exists()]


async def test_a_notice_waits_for_a_button_press_only_for_a_limited_time(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier then ends the waiting notify-send, so that another notice can have a button."""
    desk.has_buttons("wait")
    pace = NotifyTiming(desktop_s=20.0, open_s=25.0)
    async with notifying(desk.environment, tmp_path, pace) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=desk.wait_shown(1))
        jump(monkeypatch, pace.open_s)
        await desk.wait_ended()

    assert desk.opened == []


# Reminders


_REMINDING: Final = NotifyTiming(desktop_s=20.0, settle_s=0.05, remind_s=10.0, remind_look_s=0.01)


@contextlib.asynccontextmanager
async def reminding(desk: Desk, tmp_path: Path) -> AsyncIterator[tuple[Asking, Watch]]:
    """Yield an asker and its clock, which the test sets, with a notifier that sends reminders."""
    asking, clock = Asking(), Watch()
    asking.clock, asking.lasts_s = clock, 100.0
    asking.notifier = Notifier(
        Settings(),
        Egress(Settings(), None),  # type: ignore[arg-type]
        Vault(tmp_path / "vault.json"),
        queue=asking.look,
        page=PAGE,
        environment=desk.environment,
        pace=_REMINDING,
        clock=clock,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.notifier.serve)
        with anyio.fail_after(60):
            yield asking, clock
        tasks.cancel_scope.cancel()


async def test_one_reminder_is_shown_before_a_pending_question_expires(desk: Desk, tmp_path: Path) -> None:
    """A question that was decided meanwhile gets none."""
    async with reminding(desk, tmp_path) as (asking, clock):
        asking.asked("apr-1", "send-mail", "action")
        asking.asked("apr-2", "delete-event", "action")
        await desk.wait_shown(2)
        await clock.wait_looked_at()  # the clock has not reached the reminder
        assert len(desk.shown) == 2
        asking.decide("apr-2")
        clock.now += 91
        await desk.wait_shown(3)
        asking.asked("apr-3", "post-note", "action")
        await desk.wait_shown(4)

    reminder, last = desk.texts[2:]
    assert reminder == ("Expires soon: claude asks: send-mail", f"{PAGE}/approvals/apr-1")
    assert last == ("Claude asks: post-note", f"{PAGE}/approvals/apr-3")


async def test_a_short_lived_question_gets_no_reminder(desk: Desk, tmp_path: Path) -> None:
    """A reminder right after the notice would say nothing new. A question that waits long enough gets one."""
    async with reminding(desk, tmp_path) as (asking, clock):
        asking.lasts_s = 19.0
        asking.asked("apr-short", "send-mail", "action")
        await desk.wait_shown(1)
        asking.lasts_s = 100.0
        asking.asked("apr-long", "send-mail", "action")
        await desk.wait_shown(2)
        await clock.wait_looked_at()
        clock.now += 95
        await desk.wait_shown(3)

    assert [body.rpartition("/")[2] for _summary, body in desk.texts] == ["apr-short", "apr-long", "apr-long"]


# Names, floods and failures


@pytest.mark.parametrize("name", ["--help", "-u", "$(id)", "; id", "`id`", "--", ""])
async def test_hostile_action_names_reach_notify_send_as_plain_arguments(name: str, desk: Desk, tmp_path: Path) -> None:
    """Names follow `--` and go through no shell, so none is an option or a command; so do agents' names."""
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-1", name, "action", agent=name, until=desk.wait_shown(1))

    asks = f"{name or 'A command'} asks: {name}"
    assert desk.shown[0]["arguments"][1:] == ["--", asks, f"{PAGE}/approvals/apr-1"]


async def test_a_flood_of_questions_causes_a_few_notices_and_a_count(desk: Desk, tmp_path: Path) -> None:
    """A thousand questions give five notices by name and one with the number of the others, one at a time."""
    async with notifying(desk.environment, tmp_path) as notifier:
        for number in range(1000):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 1)
        for number in range(1000):
            notifier.asked(f"apr-again-{number}", "send-mail", "action")
        await anyio.wait_all_tasks_blocked()

    by_name = [("Claude asks: send-mail", f"{PAGE}/approvals/apr-{number}") for number in range(HANDFUL)]
    assert desk.texts == [*by_name, ("And 995 more wait", "aileron approval list")]
    assert [notice["beside"] for notice in desk.shown] == [[]] * (HANDFUL + 1)


async def test_one_question_beyond_the_notice_limit_is_reported_as_a_count(desk: Desk, tmp_path: Path) -> None:
    """The next question after the count is shown by name again."""
    pace = NotifyTiming(desktop_s=20.0, settle_s=0.01, round_s=2.0)
    async with notifying(desk.environment, tmp_path, pace) as notifier:
        for number in range(HANDFUL + 1):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 1)
        await anyio.lowlevel.checkpoint()
        await notifier.ask("apr-last", "send-mail", "action", until=desk.wait_shown(HANDFUL + 2))

    last = f"{PAGE}/approvals/apr-last"
    assert desk.texts[HANDFUL:] == [("And 1 more waits", "aileron approval list"), ("Claude asks: send-mail", last)]


async def test_questions_after_the_notice_limit_are_counted_at_the_end_of_the_notice_round(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten more questions follow a flood, and one the next round: each is reported exactly once."""
    pace = NotifyTiming(desktop_s=20.0, settle_s=0.01, round_s=30.0)
    async with notifying(desk.environment, tmp_path, pace) as notifier:
        for number in range(HANDFUL + 2):
            notifier.asked(f"apr-{number}", "send-mail", "action")
        await desk.wait_shown(HANDFUL + 1)
        await desk.wait_ended()
        for number in range(10):
            notifier.asked(f"apr-more-{number}", "send-mail", "action")
        await give_turns()
        assert len(desk.shown) == HANDFUL + 1
        jump(monkeypatch, pace.round_s)
        await desk.wait_shown(HANDFUL + 2)
        await notifier.ask("apr-last", "send-mail", "action", until=desk.wait_shown(HANDFUL + 3))

    assert [summary for summary, _body in desk.texts[HANDFUL:]] == [
        "And 2 more wait",
        "And 10 more wait",
        "Claude asks: send-mail",
    ]


async def test_a_hanging_notify_send_is_ended_and_the_next_notice_is_shown(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is ended after its deadline, with a line in the log; none is left."""
    hang = desk.folder / "hang"
    hang.touch()
    async with notifying(desk.environment, tmp_path, QUICK) as notifier:
        notifier.asked("apr-hangs", "send-mail", "action")
        notifier.asked("apr-2", "send-mail", "action")
        await wait_until_async(lambda: not hang.exists(), "one hangs")
        jump(monkeypatch, QUICK.desktop_s)
        await desk.wait_shown(1)

    assert desk.texts == [("Claude asks: send-mail", f"{PAGE}/approvals/apr-2")]
    assert desk.shown[0]["beside"] == []
    assert said(caplog) == [f"{desk.folder}/notify-send shows nothing on the desktop: it took over 20 s"]


async def test_a_failing_notify_send_is_logged_once_until_it_works_again(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The program fails twice, then works, then is missing: the log gets two lines."""
    (desk.folder / "fail").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        await notifier.ask("apr-2", "send-mail", "action", until=desk.wait_shown(2))
        (desk.folder / "fail").unlink()
        await notifier.ask("apr-3", "send-mail", "action", until=desk.wait_shown(3))
        (desk.folder / "notify-send").unlink()
        notifier.asked("apr-4", "send-mail", "action")
        await wait_until_async(lambda: len(said(caplog)) >= 2, "both are said", seen=lambda: said(caplog))
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
async def test_without_a_desktop_no_notify_send_is_started(
    change: Callable[[Desk], Any], desk: Desk, tmp_path: Path
) -> None:
    """Questions cause no error either; before the desktop went away, it showed a notice."""
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-before", "send-mail", "action", until=desk.wait_shown(1))
    change(desk)
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-after", "send-mail", "action", until=anyio.wait_all_tasks_blocked())

    assert len((desk.folder / "began").read_text().splitlines()) == 1


async def test_the_default_session_bus_is_used_if_its_environment_variable_is_not_set(
    desk: Desk, tmp_path: Path
) -> None:
    """The default is $XDG_RUNTIME_DIR/bus, as with systemd; without that file no notice is shown."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    del desk.environment["DBUS_SESSION_BUS_ADDRESS"]
    desk.environment["XDG_RUNTIME_DIR"] = str(runtime)
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-without", "send-mail", "action", until=anyio.wait_all_tasks_blocked())
    (runtime / "bus").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        await notifier.ask("apr-with", "send-mail", "action", until=desk.wait_shown(1))

    assert [body for _summary, body in desk.texts] == [f"{PAGE}/approvals/apr-with"]
    assert desk.shown[0]["environment"] == {"XDG_RUNTIME_DIR": str(runtime), "LC_ALL": "C.UTF-8"}


async def test_desktop_notices_can_be_switched_off(desk: Desk, tmp_path: Path) -> None:
    """The setting is `notify.desktop = false`."""
    async with notifying(desk.environment, tmp_path, settings=Settings(notify_desktop=False)) as notifier:
        await notifier.ask("apr-1", "send-mail", "action", until=anyio.wait_all_tasks_blocked())

    assert not (desk.folder / "began").exists()


async def test_stopping_the_daemon_ends_a_running_notify_send(desk: Desk, tmp_path: Path) -> None:
    """A question after the stop causes no error."""
    (desk.folder / "hang").touch()
    async with notifying(desk.environment, tmp_path) as notifier:
        notifier.asked("apr-1", "send-mail", "action")
        pid = (await wait_text_async(desk.folder / "began", "\n")).strip()
    notifier.asked("apr-2", "send-mail", "action")

    assert not Path("/proc", pid).exists()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return Aileron's messages in the log."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("aileron")]


@pytest.fixture(autouse=True)
def _log_of_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
