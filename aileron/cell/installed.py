"""Recognition of folders that a package manager or a build fills: virtual environments, node_modules, target. In a list
of changes, each such folder takes one line.

    tree_of(".venv", has, had)  →  ".venv"      recognised by its marker files; `.venv/lib/…/x.pth` then belongs to it

Thousands of files in such a folder can run code, all for the same reason: a person who uses the folder runs its files.
Listed one by one, they would hide a git hook. Runs in the command. The names and the marker files are hostile.

Rules
- A folder counts if it had a marker file before the agent started, or did not exist then: an agent cannot hide changed
  source files by putting a marker file next to them.
- In a virtual environment, only entries in the usual folders belong to it; a file elsewhere is listed by itself.
- A file that takes effect without being used as a package is listed by itself (executes.py): repositories, instructions for
  agents, special files, ways out of the project.

Pure. Source: PEP 405, and the files that npm, pnpm, yarn, cargo, Gradle, Next.js, Terraform, Dart, CocoaPods and Composer leave.
Not here: which files of a git repository count, what is ignored (the agent can write a .gitignore, so it decides nothing).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["is_of_tree", "tree_of"]

_MARKS: Final = {
    "node_modules": (".package-lock.json", ".modules.yaml", ".yarn-integrity", ".yarn-state.yml"),
    "target": (".rustc_info.json",),
    ".gradle": ("buildOutputCleanup", "vcs-1"),
    ".next": ("BUILD_ID", "build-manifest.json"),
    ".terraform": ("providers", "modules"),
    ".dart_tool": ("package_config.json",),
    "Pods": ("Manifest.lock",),
    "vendor": ("autoload.php",),
}
"""Names of folders that package managers fill, each with the names of its marker files. Such a folder must contain at
least one of them.
"""
_OF_ENVIRONMENT: Final = re.compile(
    r"(?:bin|Scripts|include|share|man|lib(?:64|32)?)(?:/.*)?|pyvenv\.cfg|\.lock|CACHEDIR\.TAG",
    re.DOTALL,
)
_PYTHON_LINK: Final = re.compile(r"(?:.*/)?bin/python[0-9.]*", re.DOTALL)
_COMPILED: Final = "**/__pycache__"
_COMPILED_FILE: Final = re.compile(r".*/[^/]+\.py[co](?:\.\d+)?", re.DOTALL)
_Has = Callable[[str], bool]


def tree_of(path: str, has: _Has, had: _Has | None) -> str:
    """Return the package manager's folder (such as node_modules) under which the contents of the folder `path` are
    counted together; an empty string if they are listed one by one.

    The result is `path` itself, or, for a Python cache, one pattern that stands for all Python caches. `has` and `had` return
    whether a name is in the folder now, and was in it at the start. `had` is None if the folder did not exist.
    """
    name = path.rpartition("/")[2]
    if not path or (had is not None and not _is_marked(name, had)):
        return ""
    if not _is_marked(name, has):
        return ""
    return _COMPILED if name == "__pycache__" else path


def is_of_tree(path: str, tree: str, *, is_link_out: bool) -> bool:
    """Return whether package managers, builds or Python usually put an entry with this path into the folder `tree`
    (from `tree_of`). A link out of the project is such an entry only if it is a virtual environment's link to Python.
    """
    if is_link_out:
        return _PYTHON_LINK.fullmatch(path) is not None
    if tree == _COMPILED:
        return _COMPILED_FILE.fullmatch(path) is not None
    if tree.rpartition("/")[2] in _MARKS:
        return True
    return _OF_ENVIRONMENT.fullmatch(path[len(tree) + 1 :]) is not None


def _is_marked(name: str, has: _Has) -> bool:
    if name == "__pycache__":
        return True
    if name in _MARKS:
        return any(map(has, _MARKS[name]))
    return has("pyvenv.cfg") and (has("bin") or has("Scripts")) and (has("lib") or has("Lib"))
