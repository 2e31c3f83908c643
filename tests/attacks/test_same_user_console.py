"""Attacks of a same-user process on a console in which the approver's key is open: looking in, pressing keys, altering responses.

The person's console runs at a real terminal, and in tmux, where other processes can send keys to it. Beside each attempt the
person does the same, and it succeeds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.approver_key import keyfile
from aileron.model.secret import Secret
from tests.attacks.same_user.between import Between, Passed
from tests.attacks.same_user.fullscreen import FullScreen
from tests.attacks.same_user.house import House, house, only_as_an_ordinary_user
from tests.attacks.same_user.reading import ways_into, ways_into_a_child
from tests.attacks.same_user.terminal import APPROVER, environment
from tests.attacks.tally import Attack
from tests.support.tmux import Tmux
from tests.support.waiting import wait_ended, wait_text, wait_until

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]
ROOT = Path(__file__).resolve().parents[2]
REFUSED = {"EACCES", "EPERM"}
YES = "yes"


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """Provide one home for all tests."""
    with house() as made:
        yield made


@contextlib.contextmanager
def in_tmux(home: House, question: dict[str, Any]) -> Iterator[Tmux]:
    """Provide the person's console with this question on it, in a terminal to which any process of theirs can send keys."""
    given = {
        name: value for name, value in environment(home.home.path).items() if name in ("AILERON_HOME", "TZ", "PATH")
    }
    words = [sys.executable, "-m", "aileron", "console"]
    with Tmux(words, {**given, "PYTHONPATH": str(ROOT)}, size=(100, 50)) as at:
        at.until("passphrase each time")
        _only(at, question)
        yield at


def _only(at: Tmux, question: dict[str, Any]) -> None:
    """Show only this question, by the end of its id."""
    at.until_pressed("/", "words, agent:x")
    at.type(number(question))
    at.until(number(question))


def number(question: dict[str, Any]) -> str:
    """Return the end of a question's id, by which the person names it."""
    return str(question["approval_id"])[-8:]


@pytest.mark.abuse_case("D30")
def test_neither_a_console_with_an_open_key_nor_its_terminal_can_be_inspected(attack: Attack, home: House) -> None:
    """Tracing, memory, environment, descriptors and terminal of each of its processes stay closed while a key press is enough to
    decide.
    """
    question = home.asked()
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        processes = at.processes
        attack.control("the console is two processes", 2, len(processes))
        for nth, process in enumerate(processes, start=1):
            attack.all_answered(f"process {nth} of the screen, key open", REFUSED, ways_into(process.pid))
        for how, flags in (("reading", os.O_RDONLY), ("writing", os.O_WRONLY)):
            attack.answered(f"opening the screen's terminal for {how}", "EBUSY", _opening(at.terminal, flags))
        _press_approval(at)
        attack.worked("the person approves it by a key", 1, home.done(question))
    attack.worked("into a process that does nothing against it", {"ok"}, set(ways_into_a_child().values()))
    attack.worked("opening a terminal that nobody holds", "ok", _opening_another())


def test_a_console_that_was_stopped_asks_for_the_passphrase_again(attack: Attack, home: House) -> None:
    """Others can type while the console is stopped, because the shell has the terminal. Its memory stays protected."""
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
        _press_approval(at)
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
        _press_approval(at)
        attack.worked("the person presses the same", 1, home.done(question))


def test_bytes_written_to_a_terminal_opened_before_the_console_decide_nothing(
    attack: Attack, home: House, tmp_path: Path
) -> None:
    """A process that opened the terminal early can draw on it, but what it writes does not count as input."""
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
    attack.worked("the person approves it", 1, _approved(home, question))


@pytest.mark.abuse_case("D31")
def test_keys_sent_to_a_console_in_tmux_lead_to_the_passphrase_prompt(attack: Attack, home: House) -> None:
    """Any process of the user can send keys to tmux, so the console keeps no key open there."""
    question = home.asked()
    with in_tmux(home, question) as at:
        at.keys("L")
        at.until("the passphrase is asked for each time")
        at.keys("!")
        at.until_pressed("A", "any other key")
        at.keys("y")
        at.until("Approver passphrase, to approve")
        attack.answered(
            "tmux send-keys, a yes with its second step",
            ("pending_approval", 0),
            (home.status(question), home.effects(question)),
            "the passphrase is asked for",
        )
        at.type(APPROVER)
        at.until("✓ done")
        home.home.result(question)
    attack.worked("the person, who knows it", 1, home.done(question))


def test_keys_sent_to_a_console_with_open_previews_can_load_previews_but_not_decide(
    attack: Attack, home: House
) -> None:
    """The passphrase opened previews: the key kept for them can load another preview, but signs no decision."""
    first, second = (home.asked("previewed", path=f"/effect/open-{name}") for name in ("one", "two"))
    with in_tmux(home, first) as at:
        at.until_pressed("p", "Approver passphrase, to load previews for 15 minutes")
        at.type(APPROVER)
        at.until("CURRENT STATE", "/effect/open-one")
        at.keys("Escape")
        wait_until(lambda: "! only" not in at.text, "the filter is removed", seen=lambda: at.text)
        _only(at, second)
        at.until("CURRENT STATE", "/effect/open-two")
        at.keys("!")
        at.until_pressed("A", "and press Enter")
        at.type("yes")
        at.until("Approver passphrase, to approve")
        attack.answered(
            "tmux send-keys where previews are open, a yes with its word",
            ("pending_approval", 0),
            (home.status(second), home.effects(second)),
            "the passphrase is asked for",
        )
        at.type(APPROVER)
        at.until("✓ done")
        home.home.result(second)
    attack.worked("the person, who knows it", 1, home.done(second))


@pytest.mark.abuse_case("D32")
def test_a_console_signs_nothing_if_the_plan_does_not_match_its_digest(attack: Attack, home: House) -> None:
    """A man-in-the-middle socket sends other arguments; the console names the digests that differ and signs nothing."""
    question = home.asked()

    def alter(passed: Passed) -> Any:
        if passed.method == "GET" and passed.path.endswith(question["approval_id"]) and passed.status == 200:
            plan = {**passed.answer["plan"], "args": {"path": "/effect/harmless"}}
            return {**passed.answer, "plan": plan}
        return passed.answer

    with Between(home.home.path, alter) as between, in_tmux(home, question) as at:
        shown = at.until("is not what would be decided; nothing was signed")
        at.keys("!", "A", "y")
        at.until_pressed("5", "pages")
    attack.answered(
        "another plan under the digest",
        (False, [], "pending_approval"),
        (
            "harmless" in shown,
            [exchange.path for exchange in between.passed if exchange.path.endswith("/decide")],
            home.status(question),
        ),
        "it names both digests",
    )
    attack.worked("with nobody in between", 1, _approved(home, question))


@pytest.mark.abuse_case("D33")
def test_a_question_swapped_before_the_decision_is_not_approved(attack: Attack, home: House) -> None:
    """The attacker serves another complete question under the id of the first: the daemon refuses the signature."""
    question, other = home.asked(), home.asked()
    shown: list[int] = []

    def alter(passed: Passed) -> Any:
        if passed.method == "GET" and passed.path.endswith(other["approval_id"]) and passed.status == 200:
            shown.append(1)
            return {**passed.answer, "plan": question["plan"], "digest": question["digest"]}
        return passed.answer

    with Between(home.home.path, alter), FullScreen(home.home.path) as at:
        _unlocked(at, other)
        _press_approval(at)
        at.until("has changed: load i")
    attack.control("the false question was read", True, bool(shown))
    attack.answered(
        "the plan of one question under the id of another",
        (("pending_approval", 0), ("pending_approval", 0)),
        ((home.status(question), home.effects(question)), (home.status(other), home.effects(other))),
        "a signature names both",
    )
    attack.worked("under its own id", 1, _approved(home, question))


@pytest.mark.abuse_case("D34")
def test_an_attackers_key_file_in_place_of_the_approvers_key_file_decides_nothing(
    attack: Attack, home: House, tmp_path: Path
) -> None:
    """The attacker's key even has the same passphrase: the console says that it is not the approver's, and sends
    nothing.
    """
    question, file = home.asked(), home.home.path / "approver.json"
    kept = tmp_path / "kept.json"
    shutil.move(file, kept)
    try:
        keyfile.create(file, Secret(APPROVER.encode())).wipe()
        since = home.newest()
        with FullScreen(home.home.path) as at:
            _try_to_unlock(at, question)
            at.until("this home's approver, ")
        attack.answered(
            "another key in approver.json", ([], "pending_approval"), (home.why(since), home.status(question))
        )
    finally:
        file.unlink()
        shutil.move(kept, file)
    attack.worked("with the person's own", 1, _approved(home, question))


@pytest.mark.abuse_case("D35")
@pytest.mark.parametrize("number_of", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT])
def test_a_signal_ends_an_open_console_and_decides_nothing(
    attack: Attack, home: House, number_of: signal.Signals
) -> None:
    """The console writes no core dump, and the question stays pending."""
    question = home.asked()
    before = set(os.listdir("."))

    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        at.press("!", "A")
        at.until("any other key")
        processes = at.processes
        for process in reversed(processes):
            process.send_signal(number_of)
        for process in processes:
            wait_ended(process.pid)
    attack.answered(f"{number_of.name} while the key is open", 2, len(processes), "both have ended")
    attack.answered("what came of it", ("pending_approval", 0), (home.status(question), home.effects(question)))
    attack.answered("a core dump", [], [name for name in set(os.listdir(".")) - before if "core" in name])
    attack.worked("left alone", 1, _approved(home, question))


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


def _approved(home: House, question: dict[str, Any]) -> int:
    """Have the person approve the question on a screen of its own. Return how many effects it then has had."""
    with FullScreen(home.home.path) as at:
        _unlocked(at, question)
        _press_approval(at)
        return home.done(question)


def _press_approval(at: FullScreen) -> None:
    """Press the keys of an approval with its second step."""
    at.press("!", "A")
    at.until("any other key")
    at.press("y")


def _unlocked(at: FullScreen, question: dict[str, Any]) -> None:
    """Open the key, and show this question on the screen."""
    _try_to_unlock(at, question)
    at.until("key open")


def _try_to_unlock(at: FullScreen, question: dict[str, Any]) -> None:
    at.until("key locked (L)", "goes to")
    at.press("/", f"{number(question)}\r")
    at.until("! only")
    at.press("L")
    at.until("to decide for 15 minutes")
    at.press(APPROVER + "\n")


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
