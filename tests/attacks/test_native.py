"""The same from machine code: system calls by number, other ABIs, and no library that could be kinder than the kernel."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.native import Native
from tests.attacks.tally import Attack
from tests.sandbox.test_jail_denials import X86_64

pytestmark = pytest.mark.jail

IPV4, IPV6, UNIX = 2, 10, 1
ENDS = """
io_uring_setup io_uring_enter io_uring_register unshare setns ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp bpf
perf_event_open userfaultfd keyctl add_key request_key kexec_load init_module finit_module open_by_handle_at mount umount2 fsopen
open_tree move_mount pivot_root chroot mount_setattr
""".split()
OTHER_ABIS = "int80-getpid int80-socketcall int80-clone x32-getpid x32-socket x32-ptrace".split() if X86_64 else []


def test_no_family_and_no_kind_of_socket(attack: Attack, native: Native) -> None:
    """46 families, 7 kinds: EACCES; what is given for IPv4 and IPv6 is asked whether it is a socket, and is none."""
    tries = native.attempt("sockets").tries
    assert tries.pop("over") == "ok"

    attack.all_denied("made", {"EACCES", "ENOTSOCK"}, tries)
    assert {name.split("/")[1] for name, met in tries.items() if met == "ENOTSOCK"} == {str(IPV4), str(IPV6)}
    attack.control("without a jail", "ok", native.freely("sockets").tries[f"socket/{IPV4}/1"])


def test_no_pair_but_that_of_the_event_loops(attack: Attack, native: Native) -> None:
    """socketpair of every family and kind but a stream of AF_UNIX."""
    tries = native.attempt("pairs").tries
    assert tries.pop("over") == "ok"

    stream = tries.pop(f"pair/{UNIX}/1")
    attack.all_denied("made", "EPERM", tries)
    attack.control("a stream of AF_UNIX", "ok", stream)


def test_no_flag_selects_what_no_library_asks_for(attack: Attack, native: Native) -> None:
    """Out-of-band bytes, memory that grows, locks with priorities, advice and barriers beyond the process: of allowed calls.
    What libraries ask of the same calls works, and all of it does without a jail.
    """
    tries, there = native.attempt("flags").tries, native.freely("flags").tries
    honest = {name: met for name, met in tries.items() if name.startswith("honest/")}

    attack.all_denied("flag", "EPERM", {name: met for name, met in tries.items() if name not in {*honest, "over"}})
    assert tries.keys() == there.keys() > honest.keys()
    attack.control("what libraries ask for", {"ok"}, set(honest.values()))
    attack.control("the same program without a jail", {"ok"}, set(there.values()))


@pytest.mark.parametrize("what", [*ENDS, *OTHER_ABIS])
def test_what_no_honest_program_does_is_its_end(attack: Attack, native: Native, what: str) -> None:
    """SIGSYS at the call, by number, by int 0x80, by the x32 entries. The same program comes to its end without a jail."""
    attack.denied(what, "SIGSYS", native.attempt(what).told)
    attack.control("the program itself works", "ok", native.attempt("nothing").tries["over"])


def test_a_socket_is_not_had_through_io_uring(attack: Attack, native: Native) -> None:
    """It begins with a ring, and there is none."""
    attack.denied("a ring", "SIGSYS", native.attempt("socket-by-io_uring").told)
    attack.control("pipes work", "ok", native.attempt("nothing").tries["over"])


def test_what_is_not_on_the_list_is_refused(attack: Attack, native: Native) -> None:
    """Namespaces by clone, processes, filters of its own, terminals (also with high bits set), others' processes, queues."""
    tries = native.attempt("refused").tries
    assert tries.pop("over") == "ok"
    attack.denied("clone3", "ENOSYS", tries.pop("clone3"))
    attack.denied("a descriptor that is none", "EBADF", tries.pop("close-of-nothing"))
    attack.all_denied("refused", "EPERM", tries)

    there = native.freely("refused").tries
    works = {
        "fork",
        "personality-no-randomisation",
        "descriptor-of-a-process",
        "timers",
        "larger-pipe",
        "shared-segment",
        "watch",
    }
    for name in sorted(works):
        attack.control(f"{name}, without a jail", "ok", there[name])


def test_no_new_program_comes_into_being(attack: Attack, native: Native) -> None:
    """From the scratch space, by path, by descriptor, set-user-id, mapped as code; from memory; a device."""
    tries = native.attempt("new-program").tries
    assert tries.pop("over") == "ok"

    attack.all_denied("new", {"EACCES", "EPERM"}, tries)
    attack.control("a memory file without a jail", "ok", native.freely("new-program").tries["memory-file"])


WAYS = {
    "connect": "network:127.0.0.1:{}",
    "connect6": "network:[::1]:{}",
    "connect-datagram": "network:127.0.0.1:{}",
    "connect-a-pair": "network:127.0.0.1:{}",
    "connect-a-pipe": "network:127.0.0.1:{}",
    "sendto": "network:127.0.0.1:{}",
    "sendto-fast-open": "network:127.0.0.1:{}",
    "sendmsg": "network:127.0.0.1:{}",
    "sendmmsg": "network:127.0.0.1:{}",
    "raw": "network:127.0.0.1:{}",
    "high-bits": "network:127.0.0.1:{}",
    "connect-a-name": "EACCES",
    "a-name": "EACCES",
}
"""How each way to send something ends: by its destination; a name of Unix sockets is refused, since nothing is said by it."""


@pytest.mark.parametrize("how", WAYS)
def test_no_way_of_sending_reaches_a_listener(attack: Attack, native: Native, how: str) -> None:
    """Listeners for TCP on 127.0.0.1 and ::1, for UDP, and for an abstract name see nothing; the attempt is ended by its
    destination, or refused. Without a jail the same bytes arrive.
    """
    with _listeners() as (port, arrived):
        expected = WAYS[how].format(port) if native.tells_destinations else "network:unknown"
        attack.denied(how, expected, native.attempt(f"{how} {port}").told)
        attack.denied(f"{how}, as the listeners see it", 0, arrived())
        sent = how if how not in {"raw", "high-bits"} else "connect"  # not for everybody, and no family that there is
        works = {"connect-a-pair": "EINVAL", "connect-a-pipe": "ENOTSOCK"}.get(sent, "ok")
        comes = works == "ok" and sent not in {
            "connect-datagram",
            "connect-a-name",
        }  # they say where to, and send nothing
        attack.control("without a jail", (works, comes), (native.freely(f"{sent} {port}").told, arrived() > 0))


@contextlib.contextmanager
def _listeners() -> Iterator[tuple[int, Callable[[], int]]]:
    """One port for TCP over IPv4 and IPv6, for UDP, and an abstract name with that number; and what counts what has come."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = tcp.getsockname()[1]
        all_of_them = [tcp]
        if socket.has_ipv6:
            with contextlib.suppress(OSError):  # no IPv6 here: then nothing can be sent to it either
                all_of_them.append(stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", port))
        name = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        name.bind(f"\0aileron-attack-{port}")
        all_of_them += [udp, name]
        for listener in all_of_them:
            listener.setblocking(False)
        yield port, lambda: sum(map(_arrived, all_of_them))


def _arrived(listener: socket.socket) -> int:
    with contextlib.suppress(BlockingIOError):
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(10)
        return 1
    return 0
