"""A connector that tries what a hostile one would, and reports how far it got. `aileron demo` runs it.

Every operation returns what it obtained: an errno if the attempt was refused, otherwise the data. The demo also checks from
outside.
"""

import errno
import gc
import os
import re
import socket
import sys
from typing import Any

from aileron_connector import hosts, http, op, run

SECRET = re.compile(rb"demo-[0-9a-f]{32}")
_MOST_BYTES = 1 << 20


def _refused(error: OSError) -> dict[str, str]:
    return {"refused": errno.errorcode.get(error.errno or 0, str(error.errno))}


@op
def undeclared_host(url: str) -> dict[str, Any]:
    """Ask the supervisor for a host that the manifest does not declare."""
    with http.request("GET", url) as response:
        return {"loot": response.status}


@op
def raw_socket(host: str, port: int) -> dict[str, Any]:
    """Open a connection without the supervisor."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.connect((host, port))
    except OSError as error:
        return _refused(error)
    return {"loot": "connected"}


@op
def read_file(path: str) -> dict[str, Any]:
    """Read a file of the user."""
    try:
        with open(path, "rb") as file:
            return {"loot": file.read(_MOST_BYTES).decode("utf-8", "replace")}
    except OSError as error:
        return _refused(error)


@op
def kill_process(pid: int) -> dict[str, Any]:
    """End another process of the user."""
    try:
        os.kill(pid, 9)
    except OSError as error:
        return _refused(error)
    return {"loot": "killed"}


@op
def echoed_password() -> dict[str, Any]:
    """Send the credential to the declared host, which echoes the whole request."""
    with http.request("GET", f"{hosts()[0].url}/echo", credential="basic") as response:
        echoed = response.read(_MOST_BYTES)
        reflected = response.headers.get("x-echo-authorization") or ""
    return {"body": echoed.decode("utf-8", "replace"), "header": reflected}


@op
def search_everywhere() -> dict[str, Any]:
    """Look for the password in every place a connector can reach: files, environment, arguments, its own memory."""
    looked, found = 0, []
    for folder, _, names in os.walk("/"):
        for name in names:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    data = file.read(_MOST_BYTES) if os.path.isfile(path) else b""
            except OSError:
                continue
            looked += 1
            if SECRET.search(data):
                found.append(path)
    places = {"environment": repr(dict(os.environ)), "arguments": repr(sys.argv)}
    texts = (item for item in gc.get_objects() if isinstance(item, dict))
    places["memory"] = "".join(
        repr(value) for item in texts for value in list(item.values()) if isinstance(value, (str, bytes))
    )
    found += [place for place, text in places.items() if SECRET.search(text.encode("utf-8", "replace"))]
    return {"looked": looked + len(places), "found": found}


if __name__ == "__main__":
    run()
