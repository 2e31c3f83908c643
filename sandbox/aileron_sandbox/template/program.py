"""Execution of a zip application as `__main__` in a confined child.

It does what `python PROGRAM` does, with less work: `runpy` asks every path hook and compiles the program twice, and each page
that a child touches must first be copied (0.1 ms of 0.7, measured).

Rules
- The program ends as by os._exit(): no atexit functions run, and threads that still run are not waited for.
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
    """Set up gc, thread stacks and the seed of `random`, which each process needs for itself, whatever the program."""
    gc.enable()
    _thread.stack_size(_THREAD_STACK_BYTES)
    random = sys.modules.get("random")
    if random is not None:
        random.seed()


def run(path: str) -> int:
    """Run the zip application at `path`, after `get_ready`. Return the exit status that the interpreter would have."""
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
    """Return whether the program left other threads running, as far as the interpreter knows."""
    return _thread._count() > 0


def rehearse(path: str, times: int) -> None:
    """Run the program at `path` as often as `times` states, and undo the changes that running it made in this process.
    The program itself must leave nothing behind.

    The template rehearses so often that the interpreter has specialised the code that runs every program (CPython
    3.11 does so at the eighth call, PEP 659). Otherwise each child would do that again, in pages that it then has to
    copy, 0.9 ms of 1.5 (measured). A child that waits for its program rehearses once more, so that pages are copied
    beforehand: 0.3 ms.
    """
    import_path, main = list(sys.path), sys.modules["__main__"]
    for _ in range(times):
        _run_as_main(path)
        # zipimport caches what it has read of an archive, and would not read it again.
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
