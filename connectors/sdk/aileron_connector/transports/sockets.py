"""Adapter for unmodified libraries that open sockets, especially database drivers. Their `connect` opens a stream (tcp.py).

    socket.getaddrinfo("db.example.com", 5432)       the name itself, as if it were an address
    socket.socket().connect(("db.example.com", 5432))     a stream of the host, in this very object

Both are changed only within an invocation and for a granted destination. Any other call works as usual, which in a jail
means that it ends the process.

Runs inside the jail. A stream has no descriptor, so code that needs a descriptor (event loops, select, ssl) gets an error. A
stream cannot listen, and cannot be UDP. The host speaks TLS, so TLS has to be switched off in a library that would speak it
by itself.

Source: https://docs.python.org/3/library/socket.html. Not here: streams (tcp.py), mail (mail.py).
"""

from __future__ import annotations

import io
import weakref
from types import ModuleType
from typing import Any, Final, NoReturn

from aileron_connector import loop, tcp

__all__ = ["change_socket"]

_STREAMS: Final[weakref.WeakKeyDictionary[Any, tcp.Stream]] = weakref.WeakKeyDictionary()
_PEERS: Final[weakref.WeakKeyDictionary[Any, tuple[str, int]]] = weakref.WeakKeyDictionary()
_DELEGATED: Final = (
    "getsockopt",
    "makefile",
    "recv",
    "recv_into",
    "send",
    "sendall",
    "setsockopt",
    "settimeout",
    "shutdown",
)
_REFUSED: Final = (
    "accept", "bind", "connect", "connect_ex", "detach", "dup", "listen", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into",
    "sendfile", "sendmsg", "sendto", "share",
)  # fmt: skip


def change_socket(module: ModuleType) -> None:
    """Make getaddrinfo, and the methods connect, connect_ex and setsockopt of socket.socket, serve granted destinations by
    streams of the host. create_connection is built on these.
    """
    look_up = module.getaddrinfo
    kind = module.socket
    connect, connect_ex, set_option = kind.connect, kind.connect_ex, kind.setsockopt
    connected = _connected_kind(module)

    def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        if _granted(host, port) is None:
            return look_up(host, port, family, type, proto, flags)
        is_6 = family == module.AF_INET6
        address = (host, int(port), 0, 0) if is_6 else (host, int(port))
        return [(module.AF_INET6 if is_6 else module.AF_INET, module.SOCK_STREAM, module.IPPROTO_TCP, "", address)]

    def connect_stream(self: Any, address: Any) -> None:
        host = _granted(*address[:2]) if isinstance(address, tuple) and len(address) >= 2 else None
        if host is None or not _is_stream(module, self):
            connect(self, address)
            return
        if type(self) is not kind:
            raise OSError(f"a {type(self).__name__} cannot become a stream of the host; only socket.socket itself can")
        stream = tcp.connect(host.host, host.port, tls=not host.plain, timeout_s=self.gettimeout())
        self.__class__ = connected
        _STREAMS[self], _PEERS[self] = stream, (host.host, host.port)

    def connect_stream_ex(self: Any, address: Any) -> int:
        if not isinstance(address, tuple) or len(address) < 2 or _granted(*address[:2]) is None:
            number: int = connect_ex(self, address)
            return number
        try:
            connect_stream(self, address)
        except OSError as error:
            return error.errno or 111  # ECONNREFUSED
        return 0

    def setsockopt(self: Any, *option: Any) -> None:
        try:
            set_option(self, *option)
        except PermissionError:
            if loop.maybe_current() is None or not _is_stream(module, self):
                raise  # within an invocation, a socket that will become a stream needs no options

    module.getaddrinfo = getaddrinfo  # type: ignore[attr-defined]
    kind.connect, kind.connect_ex, kind.setsockopt = connect_stream, connect_stream_ex, setsockopt


def _granted(host: Any, port: Any) -> Any:
    """Return the granted destination with this host and port. None outside an invocation, or if there is no such destination."""
    conversation = loop.maybe_current()
    if conversation is None:
        return None
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    for destination in conversation.hosts:
        if isinstance(name, str) and destination.host == name.lower() and str(destination.port) == str(port):
            return destination
    return None


def _is_stream(module: ModuleType, sock: Any) -> bool:
    return sock.family in (module.AF_INET, module.AF_INET6) and sock.type == module.SOCK_STREAM


def _connected_kind(module: ModuleType) -> type[Any]:
    """Return the class that a socket object gets when it becomes a stream. It is a subclass of socket.socket."""

    def delegate(name: str) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            return getattr(_STREAMS[self], name)(*args, **options)

        return method

    def refuse(name: str) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> NoReturn:
            raise io.UnsupportedOperation(
                f"{name}: a connection that the host made is a stream, connected once and for all"
            )

        return method

    def fileno(self: Any) -> NoReturn:
        raise io.UnsupportedOperation(
            "fileno: a connection that the host made has no descriptor; event loops, select and ssl cannot have it. "
            "Use a library that waits in recv, and leave TLS to the host"
        )

    def close(self: Any) -> None:
        _STREAMS[self].close()
        original.close(self)

    def getpeername(self: Any) -> tuple[str, int]:
        return _PEERS[self]

    def text(self: Any) -> str:
        return f"<socket of {_STREAMS[self]!r}>"

    original = module.socket
    methods: dict[str, Any] = {name: delegate(name) for name in _DELEGATED} | {name: refuse(name) for name in _REFUSED}
    methods |= {
        "__slots__": (),
        "__repr__": text,
        "close": close,
        "fileno": fileno,
        "getpeername": getpeername,
        "getsockname": lambda self: ("127.0.0.1", 0),
        "getblocking": lambda self: _STREAMS[self].gettimeout() != 0,
        "gettimeout": lambda self: _STREAMS[self].gettimeout(),
        "setblocking": lambda self, flag: _STREAMS[self].settimeout(None if flag else 0.0),
        "timeout": property(lambda self: _STREAMS[self].gettimeout()),
    }
    return type("socket", (original,), methods)
