"""The approver's key in the console: wiped at its time whatever else goes on, and as soon as another program can type."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aileron.approver_key import keyfile
from aileron.approver_key.keyfile import ApproverKey
from aileron.approver_key.signing import PreviewAsked, ReadingKey
from aileron.model.decision import DecisionStatement
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.tui import key_session, timed_key
from aileron.tui.key_session import KeySession
from tests.support.waiting import wait_still, wait_until

if TYPE_CHECKING:
    from aileron.tui.key_session import Reader

PASSPHRASE = "correct horse battery"
DEADLINE_S = 10.0


class Clock:
    """A clock, in seconds since the machine began, that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Home:
    """A key file, a clock, and the other programs that can type."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "approver.json"
        keyfile.create(self.file, Secret(PASSPHRASE.encode())).wipe()
        self.clock = Clock()
        self.asked: list[str] = []
        self.who: str | None = None
        self.comes: str | None = None
        """The program that can type from the next passphrase prompt on."""
        self.key_session = KeySession(self.file, ask=self._ask, who_else=lambda: self.who, clock=self.clock)

        self.breaks: BaseException | None = None
        """Exception that ends the next prompt."""

    def _ask(self, question: str) -> Secret:
        self.asked.append(question)
        breaks, self.breaks = self.breaks, None
        if breaks is not None:
            raise breaks
        self.who = self.comes or self.who
        return Secret(PASSPHRASE.encode())

    def opened(self) -> ApproverKey:
        """Open the key. Return the object in this process's memory."""
        self.key_session.open("to decide")
        with self.key_session.key("to decide") as key:
            return key


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Make a home whose key is checked often."""
    monkeypatch.setattr(timed_key, "CHECK_S", 0.01)
    made = Home(tmp_path)
    yield made
    made.key_session.close()


def is_wiped(key: ApproverKey) -> bool:
    """Return whether the key can no longer sign."""
    with contextlib.suppress(RuntimeError):
        key.sign(decision(key.key_id))
        return False
    return True


def decision(key_id: str) -> DecisionStatement:
    """Return the statement that is signed for a denial."""
    return DecisionStatement(
        approval_id="act-1",
        digest="sha256:1",
        decision="deny",
        reason=None,
        at="2026-11-21T04:00:00Z",
        key_id=key_id,
    )


def test_the_approvers_key_is_wiped_on_time_while_the_console_is_busy(home: Home) -> None:
    """A separate thread wipes the key, by a clock that also counts the time when the machine is suspended."""
    key = home.opened()
    home.clock.now_s += timed_key.OPEN_S - 1
    assert wait_still(lambda: is_wiped(key), "it is not wiped", for_s=0.1) is False

    home.clock.now_s += 1
    # This is the console's thread, which does nothing else meanwhile, as while an editor runs.
    wait_until(lambda: is_wiped(key), "it is wiped")
    assert home.key_session.why_locked() == "its time was over"
    assert home.key_session.why_locked() is None
    assert not home.key_session.is_open


def test_the_approvers_key_is_wiped_once_another_program_can_type_at_the_terminal(home: Home) -> None:
    """A periodic check finds the program and names it; the key can be opened again when the program is gone."""
    key = home.opened()
    home.who = "process 7 (spy) is of this terminal too"
    home.clock.now_s += timed_key.LOOK_S
    wait_until(lambda: is_wiped(key), "it is wiped")

    assert home.key_session.why_locked() == home.who
    home.who = None
    assert not is_wiped(home.opened())


def test_each_use_of_the_approvers_key_first_checks_for_programs_that_can_type(home: Home) -> None:
    """A program that is found wipes the key at once; each use then needs the passphrase and keeps no key."""
    key = home.opened()
    assert len(home.asked) == 1
    home.who = "process 7 (spy) is of this terminal too"
    for count in (2, 3):
        with home.key_session.key("to approve") as used:
            assert not is_wiped(used)
        assert len(home.asked) == count
    assert is_wiped(key)
    assert not home.key_session.is_open


def test_a_program_that_can_type_during_the_passphrase_prompt_keeps_the_key_closed(home: Home) -> None:
    """The check for programs that can type is repeated after the prompt."""
    home.comes = "process 7 (spy) is of this terminal too"
    with home.key_session.key("to approve") as used:
        assert not is_wiped(used)
    assert is_wiped(used)


TMUX = "this is a terminal of tmux"


def read(home: Home, about: str) -> Reader:
    """Open a reader of a question's preview, with a passphrase if need be, and use it."""
    with home.key_session.reader("to load the current state", about, ()) as by:
        PreviewAsked(by, about, f"sha256:{'0' * 64}")
        return by


def test_one_passphrase_entry_loads_many_previews_but_each_decision_needs_another(home: Home) -> None:
    """The prompt says what its passphrase opens; previews can be loaded for the announced time."""
    home.who = TMUX
    reads = read(home, "act-1")
    read(home, "act-2")
    assert home.asked == ["Approver passphrase, to load previews for 15 minutes"]
    assert (home.key_session.may_read, home.key_session.is_open) == (True, False)

    home.clock.now_s += timed_key.OPEN_S - 1
    with home.key_session.signer("to approve pay", "act-1", ()) as used:
        assert isinstance(used, ApproverKey)
    read(home, "act-3")
    assert home.asked[1:] == ["Approver passphrase, to approve pay"]
    assert is_wiped(used)

    home.clock.now_s += 1
    wait_until(lambda: not home.key_session.may_read, "nothing may be read")
    assert home.key_session.why_locked() == "its time was over"
    with pytest.raises(RuntimeError, match="wiped"):
        PreviewAsked(reads, "act-1", f"sha256:{'0' * 64}")
    read(home, "act-4")
    assert len(home.asked) == 3


def test_a_key_opened_for_previews_signs_no_decision(home: Home) -> None:
    """The control is that it reads a preview."""
    home.who = TMUX
    reads = read(home, "act-1")
    assert isinstance(reads, ReadingKey)
    with pytest.raises(TypeError, match="decides nothing"):
        reads.sign(decision(reads.key_id))


def test_a_passphrase_typed_for_a_decision_opens_no_previews(home: Home) -> None:
    """The prompt named only the decision, so the person agreed to nothing else."""
    home.who = TMUX
    with home.key_session.signer("to approve pay", "act-1", ()):
        pass
    assert not home.key_session.may_read


def test_previews_need_a_passphrase_after_a_program_that_can_type_closed_the_approver_s_key(home: Home) -> None:
    """A program that can type closes the key; loading previews then needs a passphrase for that purpose."""
    home.opened()
    home.who = TMUX
    home.key_session.look()
    assert not home.key_session.may_read
    read(home, "act-1")
    assert home.asked == ["Approver passphrase, to decide", "Approver passphrase, to load previews for 15 minutes"]


def test_no_key_stays_open_if_another_program_can_type_during_a_prompt_for_a_preview(home: Home) -> None:
    """The prompt was for that one preview only."""
    home.comes = TMUX
    assert isinstance(by := read(home, "act-1"), ApproverKey)
    assert is_wiped(by)
    assert not home.key_session.may_read
    assert home.asked == ["Approver passphrase, to load the current state"]


@pytest.mark.parametrize("who", [None, TMUX])
def test_a_closed_approvers_key_loads_no_previews(home: Home, who: str | None) -> None:
    """This holds for a key that could sign, and for one that was opened for previews only."""
    home.who = who
    by = read(home, "act-1")
    could_read = home.key_session.may_read
    home.key_session.close()
    assert (could_read, home.key_session.may_read) == (True, False)
    with pytest.raises(RuntimeError, match="wiped"):
        PreviewAsked(by, "act-1", f"sha256:{'0' * 64}")


def test_a_key_opened_for_a_single_signature_is_wiped_after_it(home: Home) -> None:
    """A check for other programs during the signature finds nothing to close, so it reports no reason."""
    home.who = TMUX
    looks = threading.Thread(target=home.key_session.look)
    with home.key_session.signer("to approve pay", "act-1", ()) as used:
        looks.start()
        looks.join(0.1)  # it waits for the signature
        assert looks.is_alive()
        assert isinstance(used, ApproverKey)
        assert not is_wiped(used)
    looks.join(DEADLINE_S)

    assert is_wiped(used)
    assert home.key_session.why_locked() is None


def test_a_signal_during_a_signature_closes_the_key_after_that_signature(home: Home) -> None:
    """The handler runs in the signing thread: this signature is finished, and the next one needs the passphrase."""
    home.key_session.open("to decide")
    with home.key_session.key("to decide") as key:
        signal.signal(signal.SIGUSR1, lambda *_: home.key_session.close("a signal came"))
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)

        assert not home.key_session.is_open
        assert not is_wiped(key)
    assert is_wiped(key)
    assert home.key_session.why_locked() == "a signal came"

    with home.key_session.key("to decide") as another:
        assert not is_wiped(another)
    assert home.key_session.is_open


def test_an_approvers_key_closed_during_its_use_cannot_be_handed_to_a_new_owner(home: Home) -> None:
    """The new owner would keep it open. Without the close the key can be handed over, and its owner must wipe it."""
    place = timed_key.TimedKey[ApproverKey](home.clock)
    place.put(keyfile.open_key(home.file, Secret(PASSPHRASE.encode())))
    with place.in_use() as key:
        place.close("a signal came")
        with pytest.raises(AileronError, match="locked just now"):
            place.taken()
    assert is_wiped(key)

    place.put(keyfile.open_key(home.file, Secret(PASSPHRASE.encode())))
    with place.in_use():
        key = place.taken()
    assert not is_wiped(key)
    key.wipe()


def test_closing_the_approvers_key_ends_its_timer_thread(home: Home) -> None:
    """Opening and closing the key repeatedly leaves no thread behind."""
    for _ in range(5):
        home.opened()
        home.key_session.close()
    wait_until(lambda: "approver's key" not in [thread.name for thread in threading.enumerate()], "its thread ends")


def test_after_an_interrupted_prompt_only_a_prompt_for_the_same_purpose_is_allowed_at_once(home: Home) -> None:
    """The person may still be typing. A prompt for the same question is allowed at once."""
    home.breaks = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        home.key_session.open("to approve pay", "act-1")
    for purpose, about in (("to approve pay", "act-2"), ("to deny pay", "act-1"), ("to decide", "")):
        with pytest.raises(AileronError, match="another passphrase prompt was open just now: wait 3 s"):
            home.key_session.open(purpose, about)
    with pytest.raises(AileronError, match="wait 3 s"), home.key_session.asking("vault"):
        pass
    assert len(home.asked) == 1

    home.clock.now_s += key_session.REST_S - 0.1
    with pytest.raises(AileronError, match="wait 3 s"):
        home.key_session.open("to approve pay", "act-2")
    home.key_session.open("to approve pay", "act-1")
    home.clock.now_s += 0.1
    home.key_session.open("to approve pay", "act-2")
    assert home.key_session.is_open


def test_a_passphrase_prompt_that_the_terminal_ended_does_not_count_as_interrupted(home: Home) -> None:
    """The person did not interrupt the prompt, so the next one opens at once."""
    home.breaks = OSError(5, "I/O error")
    with pytest.raises(AileronError, match="cannot be asked for at this terminal"):
        home.key_session.open("to approve pay", "act-1")
    home.key_session.open("to approve pay", "act-2")
    assert home.key_session.is_open
