"""How long from asking for a jail to its exit reaped, with one frame there and back? Against bubblewrap, interleaved."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from benchmarks.measure import interleave, report

ROUNDS = 200
ECHO = """
import os, msgspec
message = msgspec.msgpack.decode(os.read({source}, 65536))
os.write({target}, msgspec.msgpack.encode(message))
"""
FRAME = msgspec.msgpack.encode({"op": "echo", "args": {"text": "x" * 32}})
MSGSPEC = Path(msgspec.__file__).parent


def _program() -> int:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("__main__.py", ECHO.format(source=3, target=4))
    fd = os.memfd_create("echo", os.MFD_CLOEXEC)
    os.write(fd, data.getvalue())
    return fd


def _jail(template: Template, program: int) -> Callable[[], None]:
    def once() -> None:
        with Child.open(template, program, Policy()) as child:
            os.write(child.frames_in, FRAME)
            child.wait(10)
            assert os.read(child.frames_out, 65536) == FRAME

    return once


def _bwrap(*command: str) -> Callable[[], None]:
    def once() -> None:
        arguments = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", *command]
        done = subprocess.run(arguments, input=FRAME, stdout=subprocess.PIPE, check=True, timeout=30)
        assert done.stdout in (FRAME, b"")

    return once


def main() -> None:
    """Measure and report."""
    runtime = PythonRuntime.of_this_interpreter(packages={"msgspec": MSGSPEC}, preload=("msgspec", "zipimport"))
    with Template.start(runtime) as template:
        variants = {"jail": _jail(template, _program())}
        if shutil.which("bwrap"):
            code = f"import sys; sys.path.append({str(MSGSPEC.parent)!r})" + ECHO.format(source=0, target=1)
            interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
            variants["bwrap python msgspec echo"] = _bwrap(interpreter, "-I", "-S", "-c", code)
            variants["bwrap /bin/true"] = _bwrap("/bin/true")
        else:
            print("bubblewrap is not installed: the peer is left out (apt-get install bubblewrap)")
        taken = interleave(variants, ROUNDS)
    peers = ["bwrap python msgspec echo", "bwrap /bin/true"]
    report("request to reaped, one frame each way", taken, "jail", peers, "jail.json")


if __name__ == "__main__":
    main()
