"""Frames and a pause, for connectors of tests that search for a secret: every frame, and a wait until the test has looked.

The module lies beside the connector's own file (tests/support/jailed_office.py). Imported before an operation runs, it has the
first frame too.
"""

import base64
import os
import time

FRAMES_IN, FRAMES_OUT = 3, 4
heard, told = bytearray(), bytearray()
_read, _writev = os.read, os.writev  # the two calls by which the SDK reads and writes frames


def _kept_read(fd, size):
    data = _read(fd, size)
    if fd == FRAMES_IN:
        heard.extend(data)
    return data


def _kept_writev(fd, parts):
    written = _writev(fd, parts)
    if fd == FRAMES_OUT:
        told.extend(b"".join(parts)[:written])
    return written


os.read, os.writev = _kept_read, _kept_writev


def wait(word):
    """Wait, with everything that is in memory now, until the test removes the file. Raises TimeoutError after 20 seconds."""
    with open("/tmp/open", "w") as file:
        file.write(word)
    until = time.monotonic() + 20
    while os.path.exists("/tmp/open"):
        if time.monotonic() > until:
            raise TimeoutError("nobody looked")
        time.sleep(0.01)


def passed():
    """Return the frames up to here, as a part of a result."""
    return {"heard": base64.b64encode(heard).decode(), "told": base64.b64encode(told).decode()}
