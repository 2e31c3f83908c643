"""A program that finds security keys in the usual place: `python -m tests.support.usb_ports PTY=NAME … -- PROGRAM …`.

In namespaces of its own (unshare(1)), /sys/class/hidraw shows a FIDO device for each key, and /dev/hidrawN is the pseudoterminal
at whose other end a `Plugged` answers (tests/support/security_key.py). The rest of /dev that a command needs is there too. So the
product looks for keys, opens them and talks to them as it does anywhere; only the kernel's HID is missing.

Used through `with_keys`, which is the `program` of a tests.cli.command.Command.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.security_key import PATIENCE_S, Plugged

__all__ = ["FIDO_DESCRIPTOR", "with_keys"]

FIDO_DESCRIPTOR: Final = bytes.fromhex("06d0f10901a1010920150026ff007508954081020921150026ff00750895409102c0")
"""The report descriptor of CTAP 2.1, section 11.2.8.2: 64 bytes in, 64 bytes out."""
_SYSFS: Final = Path("/sys/class/hidraw")
_KEPT: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
_AILERON: Final = (
    "import sys; from aileron.__main__ import main; from aileron.approver_key import ctap_channel; "
    f"ctap_channel.SILENCE_S = {PATIENCE_S}; sys.exit(main())"
)
"""The command, with more patience for a silent device: here the device is a thread of a test."""
_UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--mount")


def with_keys(*keys: Plugged) -> list[str]:
    """Return the command `aileron`, run where these keys are plugged in."""
    ports = [f"{key.port.path}={key.name}" for key in keys]
    return [*_UNSHARE, sys.executable, "-m", __name__, *ports, "--", sys.executable, "-c", _AILERON]


def _main(words: list[str]) -> None:
    at = words.index("--")
    _put_dev(words[:at])
    _put_sysfs(words[:at])
    os.execvp(words[at + 1], words[at + 1 :])


def _put_dev(ports: list[str]) -> None:
    """Mount a separate /dev, with the machine's devices that a command needs."""
    aside = Path("/mnt")
    _mount("-t", "tmpfs", "none", str(aside))
    old = aside / "dev"
    old.mkdir()
    _mount("--rbind", "/dev", str(old))
    _mount("-t", "tmpfs", "none", "/dev")
    for name in ("pts", "shm"):
        Path("/dev", name).mkdir()
        _mount("--rbind", str(old / name), f"/dev/{name}")
    for name in _KEPT:
        Path("/dev", name).touch()
        _mount("--bind", str(old / name), f"/dev/{name}")
    for number, port in enumerate(ports):
        Path(f"/dev/hidraw{number}").symlink_to(port.partition("=")[0])


def _put_sysfs(ports: list[str]) -> None:
    _mount("-t", "tmpfs", "none", str(_SYSFS.parent))
    for number, port in enumerate(ports):
        device = _SYSFS / f"hidraw{number}" / "device"
        device.mkdir(parents=True)
        (device / "report_descriptor").write_bytes(FIDO_DESCRIPTOR)
        (device / "uevent").write_text(f"HID_NAME={port.partition('=')[2]}\n")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=10)


if __name__ == "__main__":
    _main(sys.argv[1:])
