"""The confinement of a helper process. Before it reads the first untrusted byte, the process gives up files, new
connections, signals, and most system calls.

Runs in that process, once, before there is a second thread: Landlock and seccomp bind the calling thread and those it starts.

Source: landlock(7), seccomp(2), prctl(2), setrlimit(2). Not here: the lists of system calls (aileron_sandbox/filters.py).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron_sandbox import kernel
from aileron_sandbox.template.landlock import empty_ruleset

__all__ = ["compiled", "confine"]


def compiled(compile_filter: Callable[[], bytes], otherwise: str) -> kernel.Filter:
    """Compile the seccomp filter that `compile_filter` returns as bytes. Must be called while files can be opened,
    because it loads libseccomp. Raises AileronError with the text `otherwise` if the library is missing.
    """
    try:
        return kernel.Filter(compile_filter())
    except (ImportError, OSError, RuntimeError) as error:
        problem = f"cannot use libseccomp, without which {otherwise}: {error}; apt-get install libseccomp2"
        raise AileronError(FailureClass.SANDBOX_UNAVAILABLE, problem, boundary=Boundary.SANDBOX) from None


def confine(calls: kernel.Filter, *, data_bytes: int, file_bytes: int) -> None:
    """Give up all rights except memory up to `data_bytes` (RLIMIT_DATA), writing to open files up to `file_bytes`
    (RLIMIT_FSIZE), and the system calls that the filter allows.

    Raises OSError if the kernel cannot do this; the process must then not start its work.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    ruleset = empty_ruleset(kernel.landlock_abi())
    kernel.landlock_restrict_self(ruleset)
    os.close(ruleset)
    calls.install()
