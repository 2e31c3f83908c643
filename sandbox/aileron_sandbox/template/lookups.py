"""Name look-ups by jailed Python programs: a look-up ends the program, and reports the name.

A jail has no resolver, and a connector that looks a name up is about to connect. The kernel would only see the
system's resolver query 127.0.0.1:53, which does not help a person; so the interpreter's own functions report the name
instead, by a datagram that is never sent (attempts.py). Security does not depend on these functions: the calls of a
program that avoids them are refused by the kernel.

Numeric addresses are converted as usual, and the names that every host has for itself (hosts(5)) resolve to loopback:
libraries look up their own host to say who they are. For the same reason, looking up the name of an address does not
end the program, but fails as "not found".

Source: getaddrinfo(3). Not here: the names in requests to the supervisor, which it looks up itself.
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
    """Replace the interpreter's look-up functions. Called once, in the template, before a module that children use
    copies them.
    """
    for name in _REPLACED:
        setattr(_socket, name, globals()[name])
        if name != "getaddrinfo":  # socket.getaddrinfo is a function of its own, which calls _socket's
            setattr(socket, name, globals()[name])


def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    """Resolve numeric addresses and the host's own names like `_socket.getaddrinfo`; report any other name, and fail."""
    address = _own_address(host, family, flags) or host
    try:
        return _numeric(address, port, family, type, proto, flags | socket.AI_NUMERICHOST)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME:
            raise
    return _tell(host, port)


def gethostbyname(host: str) -> str:
    """Resolve a name like `socket.gethostbyname`, but report every name that `getaddrinfo` above reports, and fail."""
    return str(getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def gethostbyname_ex(host: str) -> tuple[str, list[str], list[str]]:
    """Resolve a name like `socket.gethostbyname_ex`, but report every name that `getaddrinfo` above reports, and fail."""
    return host, [], [gethostbyname(host)]


def gethostbyaddr(host: str) -> NoReturn:
    """Raise socket.herror "not found", because no address has a name in a jail."""
    raise socket.herror(1, "Unknown host")  # HOST_NOT_FOUND, netdb.h


def _own_address(host: Any, family: int, flags: int) -> str | None:
    """Return the address of a name of this host; None for other names. Only one address is returned, because the
    library would sort several by connecting to each.
    """
    name = host.decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else host
    if name in (None, "", b""):
        both = ("0.0.0.0", "::") if flags & socket.AI_PASSIVE and name is None else ("127.0.0.1", "::1")  # noqa: S104
    elif str(name).lower().rstrip(".") in {"localhost", "localhost.localdomain", socket.gethostname().lower()}:
        both = ("127.0.0.1", "::1")
    else:
        return None
    return both[1 if family == socket.AF_INET6 else 0]


def _tell(host: Any, port: Any) -> NoReturn:
    with contextlib.suppress(OSError, UnicodeError):  # if the template is not watching, this is just refused
        name = host if isinstance(host, bytes) else str(host).encode("idna")
        never_sent = _socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        never_sent.sendto(b"%b:%b" % (name, str("" if port is None else port).encode()), _NOWHERE)
    raise socket.gaierror(
        socket.EAI_FAIL, "names cannot be looked up in a jail: send the request through the supervisor"
    )
