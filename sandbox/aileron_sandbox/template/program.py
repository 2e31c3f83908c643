"""The program itself: a zip application, run as `__main__` in a child that is confined by now.

What `python PROGRAM` does, with less: `runpy` asks every path hook and compiles the program twice, and what a child touches
it must first copy (0.1 ms of 0.7, measured).

Rules
- It ends as os._exit(2) does: no atexit functions, and threads that still run are not waited for.
- `zlib` is imported here because most archives are compressed; `random` is seeded again in each child, because a preloaded
  module may have imported it and its state would be the same in all of them.

Source: PEP 441, zipimport. Not here: confinement (confine.py).
"""

from __future__ import annotations

import _thread
import gc
import importlib.machinery
import sys
import traceback
import types
import zipimport
import zlib  # noqa: F401 - see the rules
from typing import Final

__all__ = ["get_ready", "has_threads", "rehearse", "run"]

_THREAD_STACK_BYTES: Final = 1 << 20  # 1 MiB: sixteen of glibc's 8 MiB would use up RLIMIT_DATA


def get_ready() -> None:
    """What is this process's own, and the same whatever it will run."""
    gc.enable()
    _thread.stack_size(_THREAD_STACK_BYTES)
    random = sys.modules.get("random")
    if random is not None:
        random.seed()


def run(path: str) -> int:
    """Run the zip application at `path`, after `get_ready`; its exit status, as the interpreter would have it."""
    try:
        _run_as_main(path)
    except SystemExit as exit_:
        return _exit_status(exit_)
    except BaseException:  # noqa: BLE001 - the end of a process: the log pipe gets the traceback
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def has_threads() -> bool:
    """Whether others than this one are left of the program, as far as it lets the interpreter know."""
    return _thread._count() > 0


def rehearse(path: str, times: int) -> None:
    """Run the program at `path`, which leaves nothing behind, and take back what it changed.

    In the template often enough that the interpreter has specialised what runs every program (CPython 3.11 does so at the
    eighth call, PEP 659): otherwise each child does that again, in pages it then has to copy, 0.9 ms of 1.5 (measured). In a
    child that waits for its program once more, so that what can be copied before has been: 0.3 ms.
    """
    import_path, main = list(sys.path), sys.modules["__main__"]
    for _ in range(times):
        _run_as_main(path)
        # What zipimport has read of an archive it keeps, and would not read again.
        getattr(zipimport, "_zip_directory_cache", {}).pop(path, None)
    sys.path[:], sys.modules["__main__"] = import_path, main
    del sys.path_importer_cache[path]


def _run_as_main(path: str) -> None:
    archive = zipimport.zipimporter(path)
    code = archive.get_code("__main__")
    main = types.ModuleType("__main__")
    main.__file__ = f"{path}/__main__.py"
    main.__loader__ = archive
    main.__package__ = ""
    # typeshed's zipimporter is not a Loader; the interpreter's is.
    main.__spec__ = importlib.machinery.ModuleSpec("__main__", archive, origin=main.__file__)  # type: ignore[arg-type]
    sys.modules["__main__"] = main
    sys.argv[:] = [path]
    sys.path.insert(0, path)
    sys.path_importer_cache[path] = archive
    exec(code, main.__dict__)  # noqa: S102 - to run it is what this process is for


def _exit_status(exit_: SystemExit) -> int:
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code & 0xFF
    print(exit_.code, file=sys.stderr)
    return 1
