"""A report of the layers that this machine offers, tested together in one jail. If no jail can be made, the report
has the failed step and the fix.

Runs on the host. A layer counts as in force only because a child ran while confined by all layers: a version or a
sysctl is no proof (AppArmor may void a user namespace that unshare(2) made without an error). `examine` does not
raise for a machine without a jail, since reporting that is its purpose.

>>> examine().available        # doctest: +SKIP
True

Not here: choosing the weaker mode, which a person does (policy.Mode).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import platform
import sys
from typing import Final

from aileron_sandbox import cgroups, kernel
from aileron_sandbox.ending import Exited
from aileron_sandbox.fixes import Machine
from aileron_sandbox.jail import Child, Template, TemplateGone, program_of
from aileron_sandbox.libseccomp import import_pyseccomp
from aileron_sandbox.policy import Mode, Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["Report", "examine"]

_DEADLINE_S: Final = 20.0


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of trying a jail. `layers` are in force for every jail on this machine. If no jail is available, `what`
    describes the failure, and `fix` says what to do.
    """

    available: bool
    layers: tuple[str, ...]
    what: str | None
    fix: str | None
    kernel_release: str
    landlock_abi: int | None
    libseccomp: bool
    uid: int
    python: str
    memory: str | None
    """The mechanism that limits the memory of a jail's processes together: `cgroup-v2`, `cgroup-v1` or `rlimit`; None
    if there is no jail.
    """
    sysctls: dict[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def examine(mode: Mode = "namespaces") -> Report:
    """Start a template, run one child in it, and report the layers in force. Takes about 0.2 s."""
    layers: tuple[str, ...] = ()
    what = fix = None
    try:
        layers = _try_once(mode)
    except JailUnavailable as error:
        what, fix = error.what, error.fix
    except (OSError, TemplateGone, TimeoutError) as error:
        what, fix = f"a trial run in the jail failed: {error}", "report this as a bug, with this report"
    return Report(
        available=what is None,
        layers=layers,
        what=what,
        fix=fix,
        kernel_release=platform.release(),
        landlock_abi=_landlock_abi(),
        libseccomp=_has_libseccomp(),
        uid=os.getuid(),
        python=platform.python_version(),
        memory=_memory() if what is None else None,
        sysctls=dict(Machine.of_this(sys.executable).sysctls),
    )


def _try_once(mode: Mode) -> tuple[str, ...]:
    with Template.start(PythonRuntime.of_this_interpreter(), mode=mode) as template, _program() as program:
        with Child.open(template, program.fileno(), Policy()) as child:
            ending = child.wait(_DEADLINE_S)
        if not isinstance(ending, Exited) or ending.code != 0:
            raise JailUnavailable(f"a trial run in the jail failed: {ending}", "report this as a bug")
        return template.layers("python")


def _program() -> io.FileIO:
    file = io.FileIO(os.memfd_create("trial", os.MFD_CLOEXEC), "w+b")
    file.write(program_of(""))
    return file


def _memory() -> str:
    place = cgroups.find()
    return "rlimit" if place is None else place.kind


def _landlock_abi() -> int | None:
    with contextlib.suppress(OSError):
        return kernel.landlock_abi()
    return None


def _has_libseccomp() -> bool:
    try:
        import_pyseccomp()
    except (ImportError, OSError, RuntimeError):
        return False
    return True
