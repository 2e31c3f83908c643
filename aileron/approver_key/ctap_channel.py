"""Packets to and from one security key, with a deadline.

Runs where a decision is signed. The device is untrusted: it may send nothing, send slowly, or send anything. Untrusted, too,
is every other program of this user that can open the device: it sees all responses, and can send anything.

Rules
- No wait for a packet is longer than SILENCE_S, or goes beyond the deadline with which the channel was opened. A busy device
  says so every 100 ms (CTAP 2.2, section 11.2.9.2.1).
- Packets of other channels, on which other programs talk, are ignored.
- If a device reports that it is busy with another program, the attempt ends. The person is not asked to touch the
  device, because the touch would serve the other program. The library by itself would retry until the device is free.

Source: CTAP 2.2, section 11.2 (USB); the kernel's hid/hidraw.rst. Not here: the requests (security_key.py).
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from fido2.hid import CTAPHID, CtapHidDevice
from fido2.hid.base import CtapHidConnection, HidDescriptor

from aileron.approver_key.hidraw import Port

__all__ = ["SILENCE_S", "BusyElsewhereError", "SilentError", "opened"]

SILENCE_S: Final = 3.0
"""Seconds to wait for a packet: thirty times the interval in which a device must report that it is still working."""
_ERROR: Final = 0x80 | CTAPHID.ERROR
_CHANNEL_BUSY: Final = 0x06
_CHANNEL_BYTES: Final = 4
_COMMAND_AT: Final = 4
_DATA_AT: Final = 7


class SilentError(Exception):
    """The device sent no packet in time."""


class BusyElsewhereError(Exception):
    """Another program is using this device now."""


def opened(port: Port, until: float) -> CtapHidDevice:
    """Open a new channel to the security key, for use in a `with`. Every wait ends at `until` (time.monotonic()) at the
    latest.

    Raises OSError, SilentError, BusyElsewhereError, and the library's errors for an invalid response.
    """
    found = HidDescriptor(str(port.path), 0, 0, port.report_in, port.report_out, port.name, None)
    connection = _Connection(port, until)
    try:
        return CtapHidDevice(found, connection)
    except BaseException:
        connection.close()
        raise


class _Connection(CtapHidConnection):
    """A connection to a security key that writes and reads packets of CTAPHID. It reads only the packets of one
    channel: that of the last written packet.
    """

    def __init__(self, port: Port, until: float) -> None:
        self._descriptor: Final = os.open(port.path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._packet_bytes: Final = port.report_in
        self._until: Final = until
        self._channel = b""
        self._poll: Final = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def write_packet(self, data: bytes) -> None:
        """Write a packet after the report number 0, as the kernel's hidraw.rst requires of write()."""
        self._channel = data[:_CHANNEL_BYTES]
        if os.write(self._descriptor, b"\0" + data) != len(data) + 1:
            raise OSError("a packet was cut")

    def read_packet(self) -> bytes:
        """Return the next packet that the security key sends on the channel of the last written packet."""
        silent_at = min(time.monotonic() + SILENCE_S, self._until)
        while True:
            left_s = silent_at - time.monotonic()
            if left_s <= 0 or not self._poll.poll(left_s * 1000):
                raise SilentError
            packet = os.read(self._descriptor, self._packet_bytes)
            if not packet:
                raise OSError("it was pulled out")
            if packet[:_CHANNEL_BYTES] == self._channel:
                _check_not_busy(packet)
                return packet

    def close(self) -> None:
        """Close the device. Call this method only once."""
        os.close(self._descriptor)


def _check_not_busy(packet: bytes) -> None:
    command, data = packet[_COMMAND_AT : _COMMAND_AT + 1], packet[_DATA_AT : _DATA_AT + 1]
    if (command, data) == (bytes([_ERROR]), bytes([_CHANNEL_BUSY])):
        raise BusyElsewhereError
