"""Attacks of a same-user process on a console in which the approver's key is open: looking in, pressing keys, altering responses.

The person's console runs at a real terminal, in lines, where questions and replies can be told apart, and on its whole
screen; and in tmux, where other processes can send keys to it. Beside each attempt the person does the same, and it succeeds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron.approver_key import keyfile
from aileron.model.secret import Secret
from tests.attacks.same_user.between import Between, Passed
from tests.attacks.same_user.fullscreen import FullScreen
from tests.attacks.same_user.house import House, house, only_as_an_ordinary_user
from tests.attacks.same_user.reading import ways_into, ways_into_a_child
from tests.attacks.same_user.terminal import APPROVER, Someone, environment
from tests.attacks.tally import Attack
from tests.cli.command import Said
from tests.support.tmux import Tmux
from tests.support.waiting import wait_text

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]
ROOT = Path(__file__).resolve().parents[2]
REFUSED = {"EACCES", "EPERM"}
YES = "yes"


class Typist(Someone):
    """A user who types these lines in turn at `> `, both passphrases at their prompts, and the word that approves."""

    def __init__(self, *lines: str) -> None:
        super().__init__(())
        object.__setattr__(self, "_lines", [*lines, "quit"])

    def reply(self, shown: str) -> str | None:
        """Return what the user types now; None if they wait."""
        lines: list[str] = self._lines  # type: ignore[attr-defined]
        if re.search(r"passphrase[^\n]*: \Z", shown, re.I):
            return APPROVER
        if shown.endswith("not decided): "):
            return YES
        return lines.pop(0) if shown.endswith("> ") and lines else None


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """Provide one home for all tests."""
    with house() as made:
        yield made


def console(home: House, *lines: str, at_prompt: Callable[[int, str, str], None] = lambda *_: None) -> Said:
    """Run the person's console in lines."""
    return home.person("console", "--plain", someone=Typist(*lines), at_prompt=at_prompt)


@contextlib.contextmanager
def in_tmux(home: House) -> Iterator[Tmux]:
    """Provide the person's console in lines, in a terminal to which any process of theirs can send keys."""
    given = {
        name: value for name, value in environment(home.home.path).items() if name in ("AILERON_HOME", "TZ", "PATH")
    }
    words = [sys.executable, "-m", "aileron", "console", "--plain"]
    with Tmux(words, {**given, "PYTHONPATH": str(ROOT)}, size=(100, 50)) as at:
        at.until("type help")
        yield at


def number(question: dict[str, Any]) -> str:
    """Return the end of a question's id, by which the person names it."""
    return str(question["approval_id"])[-8:]


def test_a_console_with_an_open_key_and_its_terminal_cannot_be_inspected(attack: Attack, home: House) -> None:
    """Tracing, memory, environment, descriptors and terminal of each of its processes stay closed while a word is enough
    to decide.
    """
    question = home.asked()
    seen: dict[int, dict[str, str]] = {}
    opened: list[str] = []

    def look(pid: int, terminal: str, shown: str) -> None:
        if "the key is open" in shown and not seen:
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                seen[process.pid] = ways_into(process.pid)
            opened.append(_opening(terminal))

    said = console(home, "unlock", "list", f"approve {number(question)}", at_prompt=look)
    assert len(seen) >= 2, f"nobody looked while the key was open: {said}"
    for nth, ways in enumerate(seen.values(), start=1):
        attack.all_answered(f"process {nth} of the console, key open", REFUSED, ways)
    attack.answered("opening the console's terminal", ["EBUSY"], opened)
    attack.worked("the person approves it by a word", (0, 1), (said.code, home.done(question)))
    attack.worked("into a process that does nothing against it", {"ok"}, set(ways_into_a_child().values()))


def test_a_full_screen_console_with_an_open_key_cannot_be_read_or_drawn_on(attack: Attack, home: House) -> None:
    """Each process of the full-screen console and its terminal stay closed; the person then approves by a key."""
    question = home.asked()
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        processes = at.processes
        attack.control("the console is two processes", 2, len(processes))
        for nth, process in enumerate(processes, start=1):
            attack.all_answered(f"process {nth} of the screen, key open", REFUSED, ways_into(process.pid))
        for how, flags in (("reading", os.O_RDONLY), ("writing", os.O_WRONLY)):
            attack.answered(f"opening the screen's terminal for {how}", "EBUSY", _opening(at.terminal, flags))
        at.press("!", "A")
        at.until("any other key")
        at.press("y")
        attack.worked("the person approves it by a key", 1, home.done(question))
    attack.worked("into a process that does nothing against it", {"ok"}, set(ways_into_a_child().values()))
    attack.worked("opening a terminal that nobody holds", "ok", _opening_another())


def test_a_console_that_was_stopped_has_no_open_key_when_it_goes_on(attack: Attack, home: House) -> None:
    """A stopped console's memory stays closed, but the shell has its terminal; when it goes on it holds the terminal again."""
    question = home.asked()
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        command, alone = at.processes
        for process in (alone, command):
            process.suspend()
            attack.all_answered("of the screen, standing still", REFUSED, ways_into(process.pid))
        for process in (command, alone):
            process.resume()
        at.until("key locked (L)")
        attack.answered("opening its terminal when it goes on", "EBUSY", _opening(at.terminal, os.O_WRONLY))
        at.press("!", "A")
        at.until("any other key")
        at.press("y")
        at.until("Approver passphrase, to approve")
        attack.answered("a yes after it", "pending_approval", home.status(question), "the passphrase is asked for")
        at.press(APPROVER + "\n")
        attack.worked("the person, who knows it", 1, home.done(question))


def test_keys_pressed_by_another_process_lead_to_the_passphrase_prompt(
    attack: Attack, home: House, tmp_path: Path
) -> None:
    """The process comes when the key is open, and presses all keys of an approval (TIOCSTI): the key is wiped, and
    nothing is decided.
    """
    question, told = home.asked(), tmp_path / "told"
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        at.beside(_PRESSES, str(told), "!", "A")
        if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text(encoding="ascii").strip() == "0":
            wait_text(told, "EIO")
            attack.answered("TIOCSTI", "EIO", "EIO", "the kernel has it no more")
        else:
            at.until("any other key")  # the second step: what comes sooner after it counts as having been on its way
            at.beside(_PRESSES, str(told), "y")
            at.until("Approver passphrase, to approve")
            wait_text(told, "ok\nok\nok\n")
        attack.answered(
            "TIOCSTI, a yes with its second step",
            ("pending_approval", 0),
            (home.status(question), home.effects(question)),
            "the key is wiped, and the passphrase asked for",
        )
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        at.press("!", "A")
        at.until("any other key")
        at.press("y")
        attack.worked("the person presses the same", 1, home.done(question))


def test_bytes_written_to_an_earlier_terminal_descriptor_decide_nothing(
    attack: Attack, home: House, tmp_path: Path
) -> None:
    """A process that opened the terminal before the console held it can draw on it, but what it draws is not typed."""
    question, told = home.asked(), tmp_path / "told"
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        at.beside(_WRITES, str(told), "!Ay\r")
        wait_text(told, "ok")
        at.press("5")
        at.until("pages")
        attack.answered(
            "keys written to the terminal",
            ("pending_approval", 0),
            (home.status(question), home.effects(question)),
            "drawn, and not typed",
        )
        at.press("q")
    said = console(home, "unlock", f"approve {number(question)}")
    attack.worked("the person approves it", (0, 1), (said.code, home.done(question)))


def test_keys_sent_to_a_console_in_tmux_lead_to_the_passphrase_prompt(attack: Attack, home: House) -> None:
    """Any process of the user can send keys there, so no key is kept open and they decide nothing."""
    question = home.asked()
    with in_tmux(home) as at:
        at.type("unlock")
        at.until("the passphrase is asked for each time: this is a terminal of tmux")
        at.type(f"approve {number(question)}")
        at.until("not decided):")
        at.type(YES)
        at.until("Approver passphrase, to approve")
        attack.answered(
            "tmux send-keys, a yes with its word",
            ("pending_approval", 0),
            (home.status(question), home.effects(question)),
            "the passphrase is asked for",
        )
        at.type(APPROVER)
        at.until("approved:")
        home.home.result(question)
    attack.worked("the person, who knows it", 1, home.done(question))


def test_keys_sent_while_previews_are_open_can_read_but_not_decide(attack: Attack, home: House) -> None:
    """The person's passphrase opened previews: what is kept for that loads another preview, and signs no decision."""
    questions = [home.asked("previewed", path=f"/effect/open-{name}") for name in ("one", "two")]
    first, second = map(number, questions)
    with in_tmux(home) as at:
        at.type(f"preview {first}")
        at.until("Approver passphrase, to load previews for 15 minutes")
        at.type(APPROVER)
        at.until("CURRENT STATE")
        at.type(f"preview {second}")
        at.until("CURRENT STATE", "/effect/open-two")
        at.type(f"approve {second}")
        at.until("not decided):")
        at.type(YES)
        at.until("Approver passphrase, to approve")
        attack.answered(
            "tmux send-keys where previews are open, a yes with its word",
            ("pending_approval", 0),
            (home.status(questions[1]), home.effects(questions[1])),
            "the passphrase is asked for",
        )
        at.type(APPROVER)
        at.until("approved:")
        home.home.result(questions[1])
    attack.worked("the person, who knows it", 1, home.done(questions[1]))


def test_an_open_console_does_not_show_another_plan_under_the_same_digest(attack: Attack, home: House) -> None:
    """A socket in between shows other arguments; the console says which digests differ, and signs nothing."""
    question = home.asked()

    def alter(passed: Passed) -> Any:
        if passed.method == "GET" and passed.path.endswith(question["approval_id"]) and passed.status == 200:
            plan = {**passed.answer["plan"], "args": {"path": "/effect/harmless"}}
            return {**passed.answer, "plan": plan}
        return passed.answer

    with Between(home.home.path, alter) as between:
        said = console(home, "unlock", f"approve {number(question)}")
    attack.answered(
        "another plan under the digest",
        (False, [], "pending_approval"),
        (
            "harmless" in said.out,
            [exchange.path for exchange in between.passed if exchange.path.endswith("/decide")],
            home.status(question),
        ),
        next((line for line in said.out.splitlines() if line.startswith("! ")), "without a word"),
    )
    said = console(home, "unlock", f"approve {number(question)}")
    attack.worked("with nobody in between", (0, 1), (said.code, home.done(question)))


def test_a_question_swapped_before_the_decision_is_not_approved(attack: Attack, home: House) -> None:
    """Another question, whole and with its own digest, stands under the id of the one that was asked: the signature
    is refused.
    """
    question, other = home.asked(), home.asked()
    shown: list[int] = []

    def alter(passed: Passed) -> Any:
        if passed.method == "GET" and passed.path.endswith(other["approval_id"]) and passed.status == 200:
            shown.append(1)
            return {**passed.answer, "plan": question["plan"], "digest": question["digest"]}
        return passed.answer

    with Between(home.home.path, alter):
        console(home, "unlock", f"approve {number(other)}")
    attack.control("the false question was read", True, bool(shown))
    attack.answered(
        "the plan of one question under the id of another",
        (("pending_approval", 0), ("pending_approval", 0)),
        ((home.status(question), home.effects(question)), (home.status(other), home.effects(other))),
        "a signature names both",
    )
    said = console(home, "unlock", f"approve {number(question)}")
    attack.worked("under its own id", (0, 1), (said.code, home.done(question)))


def test_a_key_in_the_place_of_the_persons_key_decides_nothing(attack: Attack, home: House, tmp_path: Path) -> None:
    """The key was made with the passphrase that the person types: the console says that it is not the approver's, and
    sends nothing.
    """
    question, file = home.asked(), home.home.path / "approver.json"
    kept = tmp_path / "kept.json"
    shutil.move(file, kept)
    try:
        keyfile.create(file, Secret(APPROVER.encode())).wipe()
        since = home.newest()
        said = console(home, "unlock", f"approve {number(question)}")
        attack.answered(
            "another key in approver.json",
            (True, [], "pending_approval"),
            (
                "is not that of this home's approver" in " ".join(said.out.split()),
                home.why(since),
                home.status(question),
            ),
        )
    finally:
        file.unlink()
        shutil.move(kept, file)
    said = console(home, "unlock", f"approve {number(question)}")
    attack.worked("with the person's own", (0, 1), (said.code, home.done(question)))


@pytest.mark.parametrize("number_of", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT])
def test_a_signal_ends_an_open_console_and_decides_nothing(
    attack: Attack, home: House, number_of: signal.Signals
) -> None:
    """The console leaves no core dump, and the question stays pending."""
    question = home.asked()
    before = set(os.listdir("."))

    def strike(pid: int, _terminal: str, shown: str) -> None:
        if "the key is open" in shown:
            for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                if process.is_running():
                    process.send_signal(number_of)

    code = None
    try:
        code = console(home, "unlock", f"approve {number(question)}", at_prompt=strike).code
    except (OSError, psutil.NoSuchProcess):
        code = -1
    attack.answered(f"{number_of.name} while the key is open", True, code != 0, f"exit {code}")
    attack.answered("what came of it", ("pending_approval", 0), (home.status(question), home.effects(question)))
    attack.answered("a core dump", [], [name for name in set(os.listdir(".")) - before if "core" in name])
    said = console(home, "unlock", f"approve {number(question)}")
    attack.worked("left alone", (0, 1), (said.code, home.done(question)))


_PRESSES = """
import errno, fcntl, sys, termios, time
for key in sys.argv[2:]:
    time.sleep(0.7)
    try:
        fcntl.ioctl(0, termios.TIOCSTI, key.encode())
        said = "ok"
    except OSError as error:
        said = errno.errorcode[error.errno]
    with open(sys.argv[1], "a") as told:
        print(said, file=told)
time.sleep(10)
"""
"""Program that presses keys and stays a while: the console does not see a process that has ended before it checks."""
_WRITES = """
import os, sys
os.write(1, sys.argv[2].encode())
open(sys.argv[1], "w").write("ok")
"""


def _unlocked(at: FullScreen, question: dict[str, Any]) -> None:
    """Open the key, and show this question on the screen."""
    at.until("key locked (L)", "goes to")
    at.press("/", f"{number(question)}\r")
    at.until("! only")
    at.press("L")
    at.until("to decide for 15 minutes")
    at.press(APPROVER + "\n")
    at.until("key open")


def _opening_another() -> str:
    master, slave = pty.openpty()
    try:
        return _opening(os.ttyname(slave), os.O_WRONLY)
    finally:
        os.close(master)
        os.close(slave)


def _opening(terminal: str, flags: int = os.O_RDONLY) -> str:
    try:
        os.close(os.open(terminal, flags | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"
