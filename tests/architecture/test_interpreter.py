"""The refusal of an unsupported Python: a sentence, before any module is imported that could be missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MAINS = {
    "aileron": ("aileron.__main__", 1, "error: "),
    "aileron-mcp": ("aileron.mcp.relay", 69, "aileron-mcp: "),
}
CONTROLS = {"aileron": (0, ""), "aileron-mcp": (2, "aileron-mcp: there is no home directory: set AILERON_HOME\n")}
"""Exit code and standard error of an ordinary build with the same arguments, in the same environment."""


def start(module: str, flags: str) -> subprocess.CompletedProcess[str]:
    """Run `aileron --version`, or the relay without a home, in an interpreter of its own with these build flags."""
    script = f"import sys; sys.abiflags = {flags!r}; sys.argv[1:] = ['--version']; from {module} import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "HOME": "nowhere"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", MAINS)
def test_a_free_threaded_python_is_refused_with_one_line_that_names_a_working_python(name: str) -> None:
    """The line says what is wrong and which Python works. The control: an ordinary build of the same version goes on."""
    module, code, begin = MAINS[name]

    refused, control = start(module, "t"), start(module, "")

    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert (refused.returncode, refused.stdout) == (code, "")
    assert refused.stderr == (
        f"{begin}{sys.executable} is a free-threaded build of Python, which Aileron does not support: "
        f"install it with {version} instead of {version}t\n"
    )
    assert (control.returncode, control.stderr) == CONTROLS[name]
