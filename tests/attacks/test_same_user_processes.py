"""Attacks of a same-user process on the command that has the key open, on the daemon, and on the person's terminal.

The attacker tries all ways that the kernel has, before the command could do anything, and while it waits for the daemon with
the key open. Each control is the same attempt on a process that does nothing to prevent it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.attacks.same_user.house import House, ending, house, only_as_an_ordinary_user, the_persons_key
from tests.attacks.same_user.reading import ways_into, ways_into_a_child
from tests.attacks.same_user.terminal import APPROVER
from tests.attacks.same_user.watching import Scanner, tracer
from tests.attacks.tally import Attack
from tests.support.home import PASSPHRASE

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]

REFUSED = {"EACCES", "EPERM"}


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """Provide one home for all tests, which change no file."""
    with house() as made:
        yield made


@pytest.mark.abuse_case("D14")
def test_the_approve_command_cannot_be_inspected_while_it_holds_the_key(attack: Attack, home: House) -> None:
    """The person reads a preview meanwhile; the command and its child processes, one with the key, stay closed."""
    question = home.asked("previewed", path="/effect/key-open")
    seen: dict[int, tuple[dict[str, str], str]] = {}

    def look(pid: int, _terminal: str, shown: str) -> None:
        if shown.rstrip().endswith("to approve:"):
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                seen[process.pid] = (ways_into(process.pid), _core_limit(process.pid))

    said = home.person("approve", question["approval_id"], at_prompt=look)
    attack.control("they read what only the approver can open", True, "hello" in said.out)
    assert len(seen) >= 2, "nobody looked while the key was open"
    for number, (ways, core) in enumerate(seen.values(), start=1):
        attack.all_answered(f"process {number} of the command, key open", REFUSED, ways)
        attack.answered(f"process {number} of the command, its limit of a core dump", "0", core)
    attack.worked("the person approves it meanwhile", (0, 1), (said.code, home.effects(question)))
    attack.worked(
        "into a process that does nothing against it each way leads", {"ok"}, set(ways_into_a_child().values())
    )


@pytest.mark.abuse_case("D15")
def test_memory_opened_as_the_command_starts_never_shows_the_passphrase_or_key(attack: Attack, home: House) -> None:
    """The attacker opens memory as soon as the process exists and reads it until it ends: it finds neither passphrase nor key.

    The control types the passphrase into an ordinary program, where the same search finds it.
    """
    question = home.asked("previewed", path="/effect/early")
    with the_persons_key(home.home.path) as key:
        needles = (APPROVER.encode(), bytes(key._seed))
    with contextlib.ExitStack() as stack:
        scanners: list[Scanner] = []
        said = home.person(
            "approve",
            question["approval_id"],
            begun=lambda pid, _terminal: scanners.append(stack.enter_context(Scanner(pid, *needles))),
            at_prompt=lambda _pid, _terminal, _shown: scanners[0].look(),
            after=lambda _pid: scanners[0].look(),
        )
    (scanner,) = scanners
    attack.control(
        "memory was opened in time, and looked through", True, scanner.opened_early > 1 and scanner.rounds > 3
    )
    attack.answered(
        f"memory of {scanner.opened_early} programs, opened early and searched {scanner.rounds} times",
        [],
        sorted(scanner.found),
        "neither passphrase nor key",
    )
    attack.worked("the person approves it meanwhile", (0, 1), (said.code, home.effects(question)))
    attack.control("in an ordinary program it is found", {needles[0]}, _found_in_an_ordinary_program(needles[0]))


@pytest.mark.abuse_case("D15")
def test_a_traced_command_does_not_ask_for_the_passphrase(attack: Attack, home: House) -> None:
    """The attacker traces it from its first instruction, children included: the command says so, and ends."""
    question = home.asked()
    asked: list[str] = []
    with contextlib.ExitStack() as stack:
        seized: list[str] = []

        def begin(pid: int, _terminal: str) -> None:
            seized.append(stack.enter_context(tracer(pid)))

        said = home.person(
            "approve",
            question["approval_id"],
            standing=True,
            begun=begin,
            at_prompt=lambda _pid, _terminal, shown: asked.append(shown.rpartition("\n")[2]),
        )
    attack.control("it was traced", ["seized"], seized)
    attack.answered(
        "tracing the command from its first instruction",
        (6, [], "pending_approval"),
        (said.code, [line for line in asked if "passphrase" in line.lower()], home.status(question)),
        ending(said),
    )
    said = home.person("approve", question["approval_id"])
    attack.worked("untraced", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D16")
def test_the_terminal_cannot_be_opened_while_the_passphrase_is_typed(attack: Attack, home: House) -> None:
    """Another reader would get some of the keys. A descriptor opened earlier still does (a documented limitation)."""
    question = home.asked()
    early: list[str] = []
    late: dict[str, str] = {}

    def at_prompt(_pid: int, terminal: str, shown: str) -> None:
        if "passphrase" in shown.rpartition("\n")[2].lower():
            late[f"prompt {len(late) + 1}"] = _opening(terminal)

    said = home.person(
        "approve",
        question["approval_id"],
        begun=lambda _pid, terminal: early.append(_opening(terminal)),
        at_prompt=at_prompt,
    )
    attack.all_answered("opening the person's terminal while a passphrase is typed", "EBUSY", late)
    attack.control("before, it can be opened", ["ok"], early)
    attack.worked("the person approves it", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D17")
def test_the_daemons_process_cannot_be_inspected_by_the_same_user(attack: Attack, home: House) -> None:
    """The daemon has the vault's key, and lent secrets while they are in use."""
    pid = home.home.daemon_pid
    assert pid is not None
    attack.all_answered("the daemon", REFUSED, ways_into(pid))
    attack.answered("the daemon, a core dump", "0", _core_limit(pid))
    attack.worked("into a process that does nothing against it", {"ok"}, set(ways_into_a_child().values()))


@pytest.mark.abuse_case("D14")
def test_a_killed_command_leaves_no_core_dump(attack: Attack, home: House, tmp_path: Path) -> None:
    """The test sends every signal that makes a core dump while the passphrase prompt is open."""
    question = home.asked()
    before = set(os.listdir("."))
    for number in (signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV):

        def strike(pid: int, _terminal: str, shown: str, number: int = number) -> None:
            if "passphrase" in shown.rpartition("\n")[2].lower():
                for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                        process.send_signal(number)

        with contextlib.suppress(OSError):
            said = home.person("approve", question["approval_id"], at_prompt=strike)
            attack.answered(f"{signal.Signals(number).name} at the prompt", True, said.code != 0, f"exit {said.code}")
    dumps = [name for name in set(os.listdir(".")) - before if "core" in name]
    attack.answered("a core dump of them", [], dumps)
    attack.answered("what came of it", "pending_approval", home.status(question))
    said = home.person("approve", question["approval_id"])
    attack.worked("left alone", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D17")
def test_no_file_or_process_keeps_the_passphrases(attack: Attack, home: House) -> None:
    """The test searches, after an approval, the home's files and the arguments and environments of all processes of this user."""
    question = home.asked()
    said = home.person("approve", question["approval_id"])
    attack.worked("the person approves it", 0, said.code)
    with the_persons_key(home.home.path) as key:
        words = (APPROVER.encode(), PASSPHRASE.encode(), bytes(key._seed), bytes(key._seed).hex().encode())
    files = {
        str(path): [word for word in words if word in path.read_bytes()]
        for path in home.home.path.rglob("*")
        if path.is_file()
    }
    attack.answered(
        "passphrases and key in the files of the home", [], [path for path, found in files.items() if found]
    )
    attack.answered("in arguments and environments", [], sorted(_told_by_processes(words, home.home.path)))
    attack.answered("in what was shown", [], [word for word in words if word in said.out.encode()])


def _core_limit(pid: int) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    soft, hard = next(line for line in lines if line.startswith("Max core file size")).split()[4:6]
    return soft if soft == hard else f"{soft}, {hard}"


def _opening(terminal: str) -> str:
    try:
        os.close(os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def _found_in_an_ordinary_program(word: bytes) -> set[bytes]:
    program = "import sys; kept = sys.stdin.buffer.readline(); print('typed', flush=True); sys.stdin.buffer.readline()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with Scanner(process.pid, word) as scanner:
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            process.stdout.readline()
            scanner._open(process.pid)
            scanner.look()
        process.kill()
        return scanner.found


def _owner(process: Path) -> int | None:
    """Return the owner of a process, even if root owns its directory because it is undumpable; None if the process is gone."""
    with contextlib.suppress(OSError):
        for line in (process / "status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


def _told_by_processes(words: tuple[bytes, ...], home: Path) -> set[str]:
    """Return where the words stand in this user's processes, except those whose environment names another home."""
    others = re.compile(rb"(?:^|\0)AILERON_HOME=(?!%s(?:\0|$))" % re.escape(os.fsencode(home)))
    found: set[str] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid() or _owner(process) != os.geteuid():
            continue
        told = {}
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                told[name] = (process / name).read_bytes()
        if others.search(told.get("environ", b"")):
            continue
        found |= {f"{name} of {process.name}" for name, data in told.items() for word in words if word in data}
    return found
