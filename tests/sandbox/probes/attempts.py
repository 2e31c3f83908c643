"""Attempts of a hostile program: each tries one forbidden thing and reports the errno it got or the loot.

Runs as a zip application, in a jail or (for the positive control) as an ordinary process: `attempts.json` beside it names the
function and its arguments; the answer goes to descriptor 4 as JSON. Standard library only.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
import zipfile

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    """Make a raw system call. Raise OSError with its errno if it fails."""
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(value) for value in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read(64).decode("latin-1")


def listing(path):
    return sorted(os.listdir(path))


def status(path):
    return os.stat(path).st_mode


def write(path, size=1):
    with open(path, "wb") as file:
        written = 0
        while written < size:
            written += file.write(b"x" * min(1 << 16, size - written))
        file.flush()
    return os.stat(path).st_size


def make_files(path, count):
    for number in range(count):
        with open(f"{path}/{number}", "wb"):
            pass
    return count


def change(how, path):
    """Alter a tree in a way other than writing to a file."""
    how_to = {
        "mkdir": lambda: os.mkdir(path + "/new"),
        "symlink": lambda: os.symlink("/tmp", path + "/new"),
        "link": lambda: os.link(path, "/tmp/new"),
        "mknod": lambda: os.mknod(path + "/new"),
        "rename": lambda: os.rename(path, path + ".new"),
        "unlink": lambda: os.unlink(path),
        "truncate": lambda: os.truncate(path, 0),
        "utime": lambda: os.utime(path),
        "chown": lambda: os.chown(path, 1000, 1000),
        "setxattr": lambda: os.setxattr(path, "user.x", b"x"),
    }
    how_to[how]()
    return True


def ask_a_device(path):
    """Make an ioctl that the filter allows (FIONREAD), on a device opened here."""
    import array
    import fcntl
    import termios

    fcntl.ioctl(os.open(path, os.O_RDONLY), termios.FIONREAD, array.array("i", [0]))


def through_link(target):
    os.symlink(target, "/tmp/link")
    return read("/tmp/link")


def walk_for(text):
    """Return every file that can be reached by name and holds `text`."""
    needle, found, looked = text.encode(), [], 0
    for folder, _, names in os.walk("/"):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path):
                    looked += 1
                    with open(path, "rb") as file:
                        if needle in file.read():
                            found.append(path)
            except OSError:
                pass
    return {"looked": looked, "found": found}


def chmod(path):
    os.chmod(path, 0o777)


def make_socket(family, kind):
    socket.socket(family, kind).close()
    return True


def all_sockets():
    """Return the errnos, or ok, that all socket families and types give."""
    got = {}
    for family in range(46):
        for kind in (1, 2, 3, 5):
            try:
                os.close(libc_socket(family, kind))
                got[f"{family}/{kind}"] = "ok"
            except OSError as error:
                got[f"{family}/{kind}"] = errno.errorcode[error.errno]
    return sorted(set(got.values()))


def give_addresses(path):
    """Reach for a network in the way that `path` names, and return what the program gets."""
    inet, inet6, datagram = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM
    stream = socket.SOCK_STREAM
    ways = {
        "connect": lambda: socket.socket(inet, stream).connect(("93.184.216.34", 443)),
        "connect, IPv6": lambda: socket.socket(inet6, stream).connect(("2001:db8::1", 443)),
        "connect, no wait": lambda: socket.create_connection(("93.184.216.34", 443), timeout=1),
        "connect after options": lambda: after_options().connect(("93.184.216.34", 443)),
        "connect, in a thread": lambda: in_a_thread(
            lambda: socket.socket(inet, stream).connect(("93.184.216.34", 443))
        ),
        "connect, own loopback": lambda: socket.socket(inet, stream).connect(("127.0.0.1", 80)),
        "sendto": lambda: socket.socket(inet, datagram).sendto(b"x", ("93.184.216.34", 53)),
        "sendto, a pair": lambda: socket_of_a_pair(stream).sendto(b"x", ("93.184.216.34", 53)),
        "sendmsg": lambda: socket.socket(inet, datagram).sendmsg([b"x"], [], 0, ("93.184.216.34", 53)),
        "sendmsg to nobody": lambda: socket.socketpair()[0].sendmsg([b"x"]),
        "connect to a path": lambda: socket.socketpair()[0].connect("/run/nscd/socket"),
        "getaddrinfo": lambda: socket.getaddrinfo("evil.example.com", 443),
        "urlopen": lambda: __import__("urllib.request").request.urlopen("https://evil.example.com/?q=1"),
        "gethostbyname": lambda: socket.gethostbyname("evil.example.com"),
        "asyncio": lambda: __import__("asyncio").run(connection_of_asyncio()),
        "a name that is none": lambda: socket.getaddrinfo("a b", 1),
        "numeric": lambda: socket.getaddrinfo("93.184.216.34", 443)[0][4][0],
        "own name": lambda: socket.getfqdn(),
        "own name, by platform": lambda: __import__("platform").node(),
        "own address": lambda: socket.gethostbyname(socket.gethostname()),
        "no connection yet": lambda: __import__("smtplib").SMTP().local_hostname,
        "probe for IPv6": probe_for_ipv6,
        "unreadable": lambda: call(SYSCALL["connect"], 3, 8, 16),
        "too short": lambda: call(SYSCALL["connect"], 3, 0, 0),
        "kernel's half": lambda: call(SYSCALL["connect"], 3, 1 << 63, 16),
    }
    got = ways[path]()
    return got if isinstance(got, (bool, int, str)) else True


def leave_while(what):
    """Report, and at one word have another thread or process connect, without a socket; at the next, end the process."""
    ways = {"nothing": lambda: None, "a thread connects": in_a_thread_of_its_own, "a child connects": in_a_child}
    os.write(4, json.dumps({"loot": "said"}).encode() + b"\n")
    os.read(3, 1)
    ways[what]()
    os.read(3, 1)
    os._exit(0)


def ask_when_told(how):
    """Report, wait for a word, and check whether there is a network, or reach for it."""
    os.write(4, json.dumps({"loot": "said"}).encode() + b"\n")
    os.read(3, 1)
    probe = socket.socket()
    if how == "connects":
        probe.connect(("93.184.216.34", 443))


def leave_a_thread():
    """Report, and end only the first thread of the process, bypassing the interpreter; another thread exits when told."""

    def end():
        os.read(3, 1)
        os._exit(7)

    threading.Thread(target=end).start()
    os.write(4, json.dumps({"loot": "said"}).encode() + b"\n")
    libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)


def hold_and_leave(megabytes):
    """Keep memory until the end that the kernel takes a while to free."""
    sys.modules["held"] = b"x" * (megabytes << 20)
    return "said"


def connect_standard_input():
    there = ctypes.create_string_buffer(
        struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", 443, 93, 184, 216, 34)
    )
    libc.connect(0, there, 16)


def in_a_thread_of_its_own():
    threading.Thread(target=connect_standard_input, daemon=True).start()


def in_a_child():
    if os.fork() == 0:
        connect_standard_input()


def miss(directory, count):
    """Look up names that do not exist and were never looked up before."""
    now = time.time_ns()
    for number in range(count):
        with contextlib.suppress(FileNotFoundError):
            os.stat(f"{directory}/none-{now}-{number}")
    return count


def file_systems():
    """Count the file systems of all visible directories; `own` are those of the root, the scratch space and the program."""
    own = {os.stat(path).st_dev for path in ("/", "/tmp", "/app")}
    seen = {}
    for at, _, _ in os.walk("/"):
        seen.setdefault(os.stat(at).st_dev, at)
    return {
        "own": len(own),
        "others": sorted(at for device, at in seen.items() if device not in own),
        "seen": len(seen),
    }


def look_up(name):
    return socket.getaddrinfo(name, 443)


def connect_to(host, port):
    socket.create_connection((host, port), timeout=5).close()
    return True


def import_names(*names):
    """Return for each name whether it can be imported."""
    import importlib.util

    return [importlib.util.find_spec(name) is not None for name in names]


SYSCALL = {"connect": 42 if os.uname().machine == "x86_64" else 203}


def import_and_compile(*names):
    """Import these modules of the standard library, and return which ones had to be compiled."""
    import importlib.machinery

    compiled, compile_one = [], importlib.machinery.SourceFileLoader.source_to_code

    def noted(self, data, path, **options):
        compiled.append(self.name)
        return compile_one(self, data, path, **options)

    importlib.machinery.SourceFileLoader.source_to_code = noted
    return {"imported": [__import__(name).__name__ for name in names], "compiled": compiled}


def after_options():
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.settimeout(1)
    return made


def socket_of_a_pair(kind):
    """Return an open socket declared as IPv4, so that the library writes such an address."""
    end, _ = socket.socketpair(socket.AF_UNIX, kind)
    return socket.socket(socket.AF_INET, kind, fileno=end.detach())


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def probe_for_ipv6():
    """Bind an IPv6 socket, like urllib3 does when it is imported."""
    probe = socket.socket(socket.AF_INET6)
    try:
        probe.bind(("::1", 0))
    finally:
        probe.close()


async def connection_of_asyncio():
    import asyncio

    await asyncio.open_connection("evil.example.com", 443)


def many_sockets(count):
    return len([socket.socket(socket.AF_INET).detach() for _ in range(count)])


def many_probes(count):
    for _ in range(count):
        socket.socket(socket.AF_INET).close()
    return count


def use_a_placeholder(how):
    """Use an inert descriptor in one way."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if how == "read":
        return len(os.read(made.fileno(), 10))
    if how == "write":
        return os.write(made.fileno(), b"x")
    if how == "recv":
        return made.recv(1)
    if how == "getsockname":
        return made.getsockname()
    return made.listen()


def libc_socket(family, kind):
    fd = libc.socket(family, kind, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "socket")
    return fd


def pair(family):
    sender, receiver = socket.socketpair(family, socket.SOCK_STREAM)
    sender.send(b"x")
    receiver.recv(1)
    return True


def send_to_address():
    sender, _ = socket.socketpair(socket.AF_UNIX)
    sender.sendto(b"x", "\0somebody")


def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def execute():
    os.execv("/bin/true", ["true"])


def threads(count):
    release = threading.Event()
    made = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=release.wait)
            thread.start()
            made.append(thread)
    except RuntimeError:
        pass
    release.set()
    for thread in made:
        thread.join()
    return len(made)


def signal_process(pid):
    os.kill(pid, 0)
    return True


def processes_that_answer(pids):
    """Return the numbers to which a signal could be sent."""
    tgkill = 234 if os.uname().machine == "x86_64" else 131
    answering = []
    for pid in pids:
        try:
            call(tgkill, pid, pid, 0)
            answering.append(pid)
        except OSError:
            pass
    return answering


def raw(number, *arguments):
    return call(number, *arguments)


def raw_all(numbers):
    """Return the errno of each call by number. Only for refused calls: others would end this process, or the machine."""
    got = {}
    for number in numbers:
        try:
            got[number] = call(number, 0, 0, 0, 0, 0, 0)
        except OSError as error:
            got[number] = errno.errorcode[error.errno]
    return got


def stop_itself():
    """Send SIGSTOP, SIGTERM and SIGKILL to itself: pid 1 of a namespace feels none of them, pid_namespaces(7)."""
    tgkill = 234 if os.uname().machine == "x86_64" else 131
    for name in ("SIGSTOP", "SIGTERM", "SIGKILL"):
        call(tgkill, 1, 1, getattr(signal, name))
    return True


def resource_of_other(pid):
    import resource

    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


def raise_limit():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1000))
    except ValueError:  # Python turns EPERM into this here
        raise PermissionError(errno.EPERM, "setrlimit") from None
    return [soft, hard]


def inject_terminal_input(high_bits=0):
    """Call TIOCSTI, also as a number whose low half is TIOCSTI: the kernel reads no more."""
    call(16 if os.uname().machine == "x86_64" else 29, 0, 0x5412 | high_bits << 32, 0)


def copy_file(function):
    """Copy a file with a function of shutil."""
    import shutil

    write("/tmp/original", 100)
    getattr(shutil, function)("/tmp/original", "/tmp/copy")
    return os.stat("/tmp/copy").st_size


def machine_code(code):
    """Run bytes as a function: this makes 32-bit and x32 system calls without a compiler."""
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    area = mmap.mmap(-1, 4096, flags=kind, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(bytes.fromhex(code))
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def descriptors():
    """Return every open descriptor below 1024, except those that this program opened itself."""
    import fcntl

    found = []
    for fd in range(1024):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
            found.append(fd)
        except OSError:
            pass
    return found


def null_flags():
    """Return the flags of standard input's open file description, and then change them."""
    import fcntl

    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND)
    return flags


def open_many(count):
    opened = []
    try:
        for _ in range(count):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        return [len(opened), errno.errorcode[error.errno]]
    return [len(opened), "ok"]


def facts():
    """Return what a program can tell about where it is."""
    return {
        "environment": dict(os.environ),
        "host": socket.gethostname(),
        "ids": [os.getpid(), os.getppid(), os.getuid(), os.getgid(), os.getgroups()],
        "session": [os.getsid(0), os.getpgid(0)],
        "working_directory": os.getcwd(),
        "devices": sorted(os.listdir("/dev")) if os.path.isdir("/dev") else None,
        "root": sorted(os.listdir("/")),
        "path": sys.path,
        "random": os.urandom(4).hex(),
    }


def random_numbers():
    import random

    return [random.random() for _ in range(4)]


def modules_of_the_jail():
    """Return the modules of the template's own code that a program finds imported, or can import."""
    left = [name for name in sys.modules if name.startswith("aileron")]
    try:
        import aileron_sandbox
    except ImportError:
        return left
    return [*left, aileron_sandbox.__name__]


def traces_of(word):
    """Return the files beside the program, and the places where the import system still has this word."""
    import zipimport

    places = (sys.modules, sys.path, sys.path_importer_cache, zipimport._zip_directory_cache, sys.argv)
    names = [str(name) for place in places for name in place if word in str(name)]
    return {"files": sorted(os.listdir("/app")), "names": names}


def allocate(megabytes):
    return len(bytearray(megabytes << 20))


def hold(kind, megabytes):
    """Take memory in a way other than an allocation, and write to it so that it is resident."""
    size, own = megabytes << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if kind == "shared":
        area = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    elif kind == "shared zeros":
        zeros = os.open("/dev/zero", os.O_RDWR)
        area = mmap.mmap(zeros, size, flags=mmap.MAP_SHARED)
    elif kind == "grows down":
        area = mmap.mmap(-1, size, flags=own | 0x100)
    else:
        area = mmap.mmap(-1, size, flags=own)
    for offset in range(0, size, 4096):
        area[offset] = 1
    return size


def hold_read_only(megabytes):
    """Write a piece, make it read-only, take the next: a count of only writable pages does not see it."""
    held, areas = 0, []
    while held < megabytes:
        area = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for offset in range(0, 4 << 20, 4096):
            area[offset] = 1
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4 << 20), mmap.PROT_READ):
            raise OSError(ctypes.get_errno(), "mprotect")
        areas.append(area)
        held += 4
    return held


def spin():
    while True:
        pass


def sleep(seconds):
    time.sleep(seconds)


def sleep_with_scratch(seconds):
    write("/tmp/mine")
    os.write(4, b'"ready"\n')
    time.sleep(seconds)


def hang_up_and_sleep(seconds):
    """Close the frames and stay alive."""
    os.close(4)
    time.sleep(seconds)


def noise(size):
    """Print much text, and bytes that look like frames."""
    os.write(1, b"\0\0\0\x02\0\0\0\0" * (size // 8))
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return True


def leave(code):
    sys.exit(code)


def crash():
    raise ValueError("a bug of the program")


def typical_imports():
    """Use what connectors need: threads, temporary files, databases, TLS contexts, event loops, time zones."""
    import asyncio
    import hashlib
    import logging
    import sqlite3
    import ssl
    import tempfile
    import zoneinfo

    logging.getLogger("x").warning("y")
    ssl.create_default_context()
    database = sqlite3.connect(":memory:")
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory():
        file.write(b"x")

    async def go():
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 7)

    return [asyncio.run(go()), database.execute("select 1").fetchone()[0], hashlib.sha256(b"").hexdigest()[:4],
            str(zoneinfo.ZoneInfo("Europe/Berlin"))]  # fmt: skip


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with zipfile.ZipFile(here) as archive:
        name, arguments = json.loads(archive.read("attempts.json"))
    try:
        answer = {"loot": globals()[name](*arguments)}
    except OSError as error:
        answer = {"errno": errno.errorcode.get(error.errno, str(error.errno))}
    except MemoryError:
        answer = {"errno": "MemoryError"}
    os.write(4, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
