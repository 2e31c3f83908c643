"""Start a program in one of the two sandboxes that are Python libraries: `python cell_library.py LIBRARY PROJECT PORT PROGRAM`.

LIBRARY is nono or sandlock; PORT is the port of localhost that the program may reach, 0 for none. This is a process of its own,
because nono confines the calling process; sandlock starts a child and waits for it. Either way the program has standard input,
output and error of this process, as an agent at a terminal needs them. Only with a proxy, which lives in this process, nono runs
a child as well, and returns what it printed. `sandlock` and `capabilities` are the permissions of each, for importers.

Not here: the attempts (tests/attacks/cell), the sandboxes that are commands (cell_sandboxes.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

__all__ = ["ENVIRONMENT", "capabilities", "sandlock"]

ENVIRONMENT: Final = {name: os.environ[name] for name in ("HOME", "PATH", "TERM", "LANG") if name in os.environ}
"""Environment variables that an agent needs to run; both libraries can leave out the rest."""
_POLICY: Final = ["system_read_linux", "system_write_linux", "python_runtime"]
"""Groups of the policy that is part of nono-py."""
_SYSTEM: Final = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
"""Readable paths of sandlock's own first example, without its writable /tmp."""


def sandlock(project: str, *reachable: str) -> Any:
    """Return a sandbox of sandlock that can write the project and reach the given hosts, each as HOST:PORT."""
    from sandlock import Sandbox

    readable = [path for path in (*_SYSTEM, sys.base_prefix) if os.path.isdir(path)]
    return Sandbox(
        fs_readable=readable,
        fs_writable=[project],
        net_allow=list(reachable),
        cwd=project,
        clean_env=True,
        env=ENVIRONMENT,
    )


def capabilities(project: str, proxy: Any = None) -> Any:
    """Return the capabilities that nono grants: its own policy for Linux, the interpreter, the project, and a given proxy."""
    import nono_py

    granted = nono_py.CapabilitySet()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = project  # the policy makes TMPDIR writable, so it must not name another directory
    try:
        nono_py.load_embedded_policy().resolve_groups(_POLICY, granted)
    finally:
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
    granted.allow_path(sys.base_prefix, nono_py.AccessMode.READ)
    granted.allow_path(project, nono_py.AccessMode.READ_WRITE)
    granted.block_network() if proxy is None else granted.proxy_only(proxy)
    return granted


def main(words: Sequence[str]) -> NoReturn:
    """Run the program and exit with its code, or become the program."""
    library, project, port, *program = words
    if library == "sandlock":
        reachable = [] if port == "0" else [f"localhost:{port}"]
        sys.exit(int(sandlock(project, *reachable).run_interactive(program)))
    import nono_py

    if port != "0":
        _by_proxy(project, program)
    nono_py.apply_seccomp(capabilities(project))
    os.execve(program[0], program, ENVIRONMENT)


def _by_proxy(project: str, program: list[str]) -> NoReturn:
    import nono_py

    proxy = nono_py.start_proxy(nono_py.ProxyConfig(allowed_hosts=["localhost"]))
    try:
        done = nono_py.sandboxed_exec(
            capabilities(project, proxy),
            program,
            cwd=project,
            env=proxy.sandbox_env(extra_env=list(ENVIRONMENT.items())),
            enforcement_mode="seccomp",
        )
    finally:
        proxy.shutdown()
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.flush()
    sys.exit(int(done.exit_code))


if __name__ == "__main__":
    main(sys.argv[1:])
