"""Security keys that are plugged in at this machine's USB ports.

Runs where a decision is signed, and in the console before it asks anything, so it must be fast: it takes one read for each HID
device, and no library import. The kernel says which device is a security key (sysfs); no device is opened for that, so no key
blinks, and a key that this user cannot open is detected as well.

Source: CTAP 2.2, section 11.2.8.2; the kernel's hid/hidraw.rst; systemd's udev-builtin fido_id, which identifies security
keys by the same bytes. Not here: packets (ctap_channel.py), the requests to a key (security_key.py).
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from aileron.model.visible import visible

__all__ = ["SYSFS", "Port", "is_plugged_in", "ports"]

SYSFS: Final = Path("/sys/class/hidraw")
_DEVICES: Final = Path("/dev")
_FIDO: Final = b"\x06\xd0\xf1"
"""Usage Page (FIDO Alliance) in the report descriptor of every security key."""
_MAX_DESCRIPTOR_BYTES: Final = 4096
"""Maximum size of a report descriptor in bytes: HID_MAX_DESCRIPTOR_SIZE of the kernel."""
_PACKET_BYTES: Final = range(16, 1025)
"""Valid sizes of a packet in bytes. A header takes 7, a packet at full speed has 64, and no HID report of USB exceeds 1024."""
_MAX_NAME: Final = 40


class Port(NamedTuple):
    """A plugged-in security key. `name` is the name that the key reports, sanitized and without a colon; report sizes
    are in bytes.
    """

    path: Path
    name: str
    report_in: int
    report_out: int

    @property
    def may_open(self) -> bool:
        """True if this user can open the device, which udev's rules decide."""
        return os.access(self.path, os.R_OK | os.W_OK)


def is_plugged_in() -> bool:
    """Return whether a security key seems to be plugged in."""
    return any(_FIDO in _descriptor_of(entry) for entry in _entries())


def ports() -> list[Port]:
    """Return the plugged-in security keys, sorted by the names of their devices. Imports the library that parses report
    descriptors.
    """
    return [port for entry in _entries() if (port := _port(entry)) is not None]


def _entries() -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(SYSFS.iterdir())
    return []


def _descriptor_of(entry: Path) -> bytes:
    with contextlib.suppress(OSError), open(entry / "device" / "report_descriptor", "rb") as file:
        return file.read(_MAX_DESCRIPTOR_BYTES)
    return b""


def _port(entry: Path) -> Port | None:
    from fido2.hid.base import parse_report_descriptor  # 40 ms

    raw = _descriptor_of(entry)
    if _FIDO not in raw:
        return None
    try:
        report_in, report_out = parse_report_descriptor(raw)
    except (ValueError, struct.error):  # another device that contains these bytes
        return None
    if report_in not in _PACKET_BYTES or report_out not in _PACKET_BYTES:
        return None
    return Port(_DEVICES / entry.name, _name_of(entry), report_in, report_out)


def _name_of(entry: Path) -> str:
    """Return the name that a security key reports, from the kernel's `HID_NAME`."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = (entry / "device" / "uevent").read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line.partition("=")[2] for line in lines if line.startswith("HID_NAME=")), "")
    return visible(said[:_MAX_NAME]).replace(":", " ").strip() or "security key"
