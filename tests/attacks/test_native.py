"""Attacks from machine code: system calls by number, other ABIs, and no library that could be stricter than the kernel."""

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


@pytest.mark.abuse_case("J1")
def test_no_family_or_kind_of_socket_can_be_made(attack: Attack, native: Native) -> None:
    """All 46 families and 7 types give EACCES; for IPv4 and IPv6 the call returns a descriptor that is no socket."""
    tries = native.attempt("sockets").tries
    assert tries.pop("over") == "ok"

    attack.all_denied("made", {"EACCES", "ENOTSOCK"}, tries)
    assert {name.split("/")[1] for name, met in tries.items() if met == "ENOTSOCK"} == {str(IPV4), str(IPV6)}
    attack.control("without a jail", "ok", native.freely("sockets").tries[f"socket/{IPV4}/1"])


@pytest.mark.abuse_case("J1")
def test_only_the_socket_pair_of_event_loops_can_be_made(attack: Attack, native: Native) -> None:
    """The jail refuses a socketpair of every family and kind except a stream of AF_UNIX."""
    tries = native.attempt("pairs").tries
    assert tries.pop("over") == "ok"

    stream = tries.pop(f"pair/{UNIX}/1")
    attack.all_denied("made", "EPERM", tries)
    attack.control("a stream of AF_UNIX", "ok", stream)


@pytest.mark.abuse_case("J14")
def test_flags_of_allowed_system_calls_that_no_library_uses_are_refused(attack: Attack, native: Native) -> None:
    """The calls are allowed, but not with flags such as MSG_OOB, growing memory or system-wide barriers. The flags that
    libraries use work, and all flags work outside a jail.
    """
    tries, there = native.attempt("flags").tries, native.freely("flags").tries
    honest = {name: met for name, met in tries.items() if name.startswith("honest/")}

    attack.all_denied("flag", "EPERM", {name: met for name, met in tries.items() if name not in {*honest, "over"}})
    assert tries.keys() == there.keys() > honest.keys()
    attack.control("what libraries ask for", {"ok"}, set(honest.values()))
    attack.control("the same program without a jail", {"ok"}, set(there.values()))


@pytest.mark.abuse_case("J2", "J3", "J4", "J6")
@pytest.mark.parametrize("what", [*ENDS, *OTHER_ABIS])
def test_a_system_call_that_no_honest_program_makes_ends_the_program(attack: Attack, native: Native, what: str) -> None:
    """SIGSYS ends it, whether the call is made by number, by int 0x80 or through x32. A program without such a call
    exits normally.
    """
    attack.denied(what, "SIGSYS", native.attempt(what).told)
    attack.control("the program itself works", "ok", native.attempt("nothing").tries["over"])


@pytest.mark.abuse_case("J2")
def test_no_socket_can_be_made_through_io_uring(attack: Attack, native: Native) -> None:
    """The attack needs a ring first, and creating one ends the program."""
    attack.denied("a ring", "SIGSYS", native.attempt("socket-by-io_uring").told)
    attack.control("pipes work", "ok", native.attempt("nothing").tries["over"])


@pytest.mark.abuse_case("J4", "J9", "J10", "J11")
def test_a_system_call_that_is_not_on_the_list_of_allowed_calls_is_refused(attack: Attack, native: Native) -> None:
    """The calls are namespaces by clone, processes, own filters, terminals (also with high bits set), others' processes,
    and queues.
    """
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


@pytest.mark.abuse_case("J7")
def test_no_new_program_can_be_executed(attack: Attack, native: Native) -> None:
    """A file in the scratch space, run by path, by descriptor, set-user-id or mapped as code, a memory file, and a device
    are denied.
    """
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
"""Endings of each way to send something: its destination, or EACCES for a name of Unix sockets, which tells nothing."""


@pytest.mark.abuse_case("N1")
@pytest.mark.parametrize("how", WAYS)
def test_no_way_of_sending_data_from_a_jail_reaches_a_listener(attack: Attack, native: Native, how: str) -> None:
    """Listeners for TCP on 127.0.0.1 and ::1, for UDP, and for an abstract name get nothing; the attempt is ended by its
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
    """Listen on one port for TCP over IPv4 and IPv6 and for UDP, and on an abstract name with that number. Yield the port
    and a function that counts arrivals.
    """
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
