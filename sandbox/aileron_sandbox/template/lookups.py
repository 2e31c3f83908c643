"""Name look-ups of jailed Python, which end it, saying which name.

A jail has no resolver, and a connector that looks a name up is about to connect. The kernel would see the system's resolver
ask 127.0.0.1:53, which tells a person nothing; so the interpreter's own functions say the name instead, as a datagram that is
never sent (attempts.py). Nothing depends on them: a program that goes round them meets the kernel's refusal.

Numeric addresses are converted as ever, and the names every host knows of itself (hosts(5)) are those of loopback: libraries
look their own host up to say who they are. For the same reason the name of an address is "not found", and no more.

Source: getaddrinfo(3). Not here: the names of the supervisor's requests, which it looks up itself.
"""

from __future__ import annotations

import _socket
import contextlib
import socket
from typing import Any, Final, NoReturn

__all__ = ["replace"]

_NOWHERE: Final = ("0.0.0.0", 0)  # noqa: S104 - nothing is bound to it
_REPLACED: Final = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
_numeric: Final = _socket.getaddrinfo


def replace() -> None:
    """In the template, once, before anything that a child will use copies these functions."""
    for name in _REPLACED:
        setattr(_socket, name, globals()[name])
        if name != "getaddrinfo":  # socket has one of its own, which calls _socket's
            setattr(socket, name, globals()[name])


def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    """As `_socket.getaddrinfo` for numeric addresses."""
    address = _own_address(host, family, flags) or host
    try:
        return _numeric(address, port, family, type, proto, flags | socket.AI_NUMERICHOST)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME:
            raise
    return _tell(host, port)


def gethostbyname(host: str) -> str:
    """As `socket.gethostbyname` for numeric addresses."""
    return str(getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def gethostbyname_ex(host: str) -> tuple[str, list[str], list[str]]:
    """As `socket.gethostbyname_ex` for numeric addresses."""
    return host, [], [gethostbyname(host)]


def gethostbyaddr(host: str) -> NoReturn:
    """No address has a name here."""
    raise socket.herror(1, "Unknown host")  # HOST_NOT_FOUND, netdb.h


def _own_address(host: Any, family: int, flags: int) -> str | None:
    """One address, so that the library has nothing to sort: it does that by connecting to each."""
    name = host.decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else host
    if name in (None, "", b""):
        both = ("0.0.0.0", "::") if flags & socket.AI_PASSIVE and name is None else ("127.0.0.1", "::1")  # noqa: S104
    elif str(name).lower().rstrip(".") in {"localhost", "localhost.localdomain", socket.gethostname().lower()}:
        both = ("127.0.0.1", "::1")
    else:
        return None
    return both[1 if family == socket.AF_INET6 else 0]


def _tell(host: Any, port: Any) -> NoReturn:
    with contextlib.suppress(OSError, UnicodeError):  # where nobody watches, it is just refused
        name = host if isinstance(host, bytes) else str(host).encode("idna")
        never_sent = _socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        never_sent.sendto(b"%b:%b" % (name, str("" if port is None else port).encode()), _NOWHERE)
    raise socket.gaierror(
        socket.EAI_FAIL, "names cannot be looked up in a jail: send the request through the supervisor"
    )
