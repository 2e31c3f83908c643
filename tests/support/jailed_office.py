"""A daemon's user, the servers it reaches and the memories of its jails: for tests that say where a secret is not.

    @pytest.fixture(scope="module", params=USERS)
    def home(request, authority):
        with office(request, authority, f"localhost:{server.port}") as home: ...

    looked = look_while(home, server.held(), lambda: home.run("ask"))     # while a server keeps its answer back
    looked.check(b"a word of the connector's", secret)

    waiting = Waiting(home, "ask", {"word": "one-of-this-test"})          # while the connector waits: connectors/kept_frames
    waiting.look().check(b"one-of-this-test", secret)
    answer = waiting.go()

Each search also looks for a word that the connector has: it shows that the memory in which no secret was found was read. Only
root can read other processes. Not here: servers, connectors, and decisions (approver.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from aileron.client import Answer, DaemonUnreachable
from tests.support.canary import find, shapes
from tests.support.home import DaemonHome, daemon_home
from tests.support.memories import command_of, descendants_of, memory_of, memory_unless_ended
from tests.support.other_user import UID
from tests.support.their_home import their_home
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

__all__ = ["FORMS", "USERS", "Looked", "Waiting", "forms_of", "keep_frames", "look_while", "office"]

USERS: Final = ("own", "an_ordinary_user")
"""Users whose daemons are tested: the one who runs the tests and, for root, an ordinary user as well."""
WAIT_S: Final = 20.0
FORMS: Final = (
    *("as it is", "first half", "second half", "reversed", "hex", "HEX", "json", "percent"),
    *(f"base64, {before} before" for before in range(3)),
    *("utf-16-le", "utf-16-be", "utf-32-le"),
)
"""Shapes of canary.py for memories and frames that many tests search; other memories, and files, are searched for all shapes."""
_KEPT_FRAMES: Final = Path(__file__).parent / "connectors" / "kept_frames" / "kept_frames.py"


@contextlib.contextmanager
def office(request: pytest.FixtureRequest, authority: Authority, *places: str) -> Iterator[DaemonHome]:
    """Yield a home of the user that the fixture's parameter names (`USERS`), whose daemon reaches these places (`HOST:PORT`)."""
    with contextlib.ExitStack() as undo:
        if request.param == "own":
            home = undo.enter_context(daemon_home())
        elif os.geteuid() != 0:
            pytest.skip("another user's daemon needs root")
        else:
            home = undo.enter_context(their_home(UID, request.getfixturevalue("readable_python")))
        home.reach(*places, ca_file=home.give(authority.ca_file))
        yield home


def keep_frames(source: Path) -> None:
    """Put `kept_frames` beside a connector."""
    shutil.copy(_KEPT_FRAMES, source)


def forms_of(*secrets: bytes) -> list[bytes]:
    """Return the `FORMS` of each secret."""
    return [form for secret in secrets for name, form in shapes(secret).items() if name in FORMS]


@dataclasses.dataclass(frozen=True)
class Looked:
    """The memories of the processes below a daemon at one moment, and the run's response if the test waited for it."""

    memories: dict[int, bytes]
    answer: Any = None

    def check(self, word: bytes, *secrets: bytes) -> None:
        """Check that the word is in a memory, and no shape of a secret (canary.py) in any."""
        self.check_forms(word, [form for secret in secrets for form in shapes(secret).values()])

    def check_compressed(self, word: bytes, *secrets: bytes) -> None:
        """Check as `check` does, and in the compressed data of the memories too."""
        self.check_forms(word, [])
        assert [found for memory in self.memories.values() if (found := find(memory, *secrets))] == []

    def check_forms(self, word: bytes, forms: Sequence[bytes]) -> None:
        """Check that the word is in a memory, and none of these forms verbatim: for what is searched many times."""
        assert any(word in memory for memory in self.memories.values()), "the connector's memory was not looked at"
        assert [form for memory in self.memories.values() for form in forms if form in memory] == []


def below(home: DaemonHome) -> list[int]:
    """Return the processes below a daemon."""
    daemon = home.daemon_pid
    assert daemon is not None
    return descendants_of(daemon)


def look_while(
    home: DaemonHome, held: contextlib.AbstractContextManager[threading.Event], run: Callable[[], Any]
) -> Looked:
    """Read all memories below the daemon while `held` keeps a server's response back; its event reports the request's arrival."""
    answers: list[Any] = []
    running = threading.Thread(target=lambda: answers.append(run()))
    with held as arrived:
        running.start()
        assert arrived.wait(WAIT_S), "no request came"
        memories = {pid: memory_unless_ended(pid) for pid in below(home)}
    running.join(WAIT_S)
    assert answers, "it did not end"
    return Looked(memories, answers[0])


class Waiting:
    """An invocation whose jail waits with the file /tmp/open until `go`. `word` is in its arguments."""

    def __init__(self, home: DaemonHome, action: str, args: dict[str, Any]) -> None:
        self._answers: list[Answer] = []
        self._home = home
        self._running = threading.Thread(target=self._run, args=(action, args))
        self._running.start()
        found = wait_until(
            lambda: self._found(args["word"]),
            "a jail waits",
            unless=lambda: self._answers and f"it was answered: {self._answers[0].body}",
        )
        assert found is not None
        self.jail: int = found

    def _run(self, action: str, args: dict[str, Any]) -> None:
        with contextlib.suppress(DaemonUnreachable):  # where the daemon is killed
            self._answers.append(self._home.run(action, args))

    def _found(self, word: str) -> int | None:
        for pid in self.processes():
            with contextlib.suppress(OSError):  # it has ended, or is in no jail
                if Path(f"/proc/{pid}/root/tmp/open").read_text(encoding="ascii") == word:
                    return pid
        return None

    def processes(self) -> list[int]:
        """Return all processes below the daemon."""
        return below(self._home)

    def logins(self) -> list[int]:
        """Return the processes that log in, and the process that forks them."""
        found = [pid for pid in self.processes() if b"aileron.logins" in command_of(pid)]
        return sorted({*found, *(under for pid in found for under in descendants_of(pid))})

    def look(self) -> Looked:
        """Read the jail's readable memory, and the writable memory of all other processes that do not log in."""
        others = [pid for pid in self.processes() if pid not in (*self.logins(), self.jail)]
        memories = {pid: memory_unless_ended(pid) for pid in others}
        return Looked({self.jail: memory_of(self.jail, mode="r"), **memories})

    def go(self) -> Answer:
        """Let the jail continue. Return the response to the run."""
        Path(f"/proc/{self.jail}/root/tmp/open").unlink()
        self._running.join(WAIT_S)
        return self._answers[0]
