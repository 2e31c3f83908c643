"""A checkout and a Python for another user: root's tests start Aileron's programs as an ordinary user.

No other user can read a checkout and a Python below /root (0700), so both are copied: the tree, the needed packages, and the
interpreter, unless everybody can reach another of its version. The result is a virtual environment like any other. The user is
nobody (uid 65534), which every system has and which owns nothing.

    python = checkout(folder, ("aileron", "sandbox"), ("aileron",))
    subprocess.Popen([python, …], user=UID, group=UID, extra_groups=[], env=environment_of(folder / "home"))

Runs in the process of the tests. Not here: who removes `folder`, a home with a daemon (their_home.py).
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["UID", "checkout", "environment_of"]

ROOT: Final = Path(__file__).resolve().parents[2]
UID: Final = 65534
_OF_THE_TREE: Final = shutil.ignore_patterns("*.pyc.*", ".hypothesis", "results")
_OF_PYTHON: Final = shutil.ignore_patterns("*.pyc.*", "site-packages", "test", "idlelib")
"""Files of Python that are not copied, half-written modules (`*.pyc.*`) among them; compiled modules are copied.

Copies keep their sources' times, so compiled modules stay valid. Without them each process would compile all that it imports:
this user cannot write beside Python, and templates do not.
"""


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of the user's programs: from this process only the settings of how to run tests."""
    kept = {
        name: os.environ[name]
        for name in ("CI", "AILERON_MUST_JAIL", "HYPOTHESIS_PROFILE", "LANG")
        if name in os.environ
    }
    return {**kept, "HOME": str(home), "TMPDIR": str(home / "tmp"), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}


def checkout(folder: Path, names: Sequence[str], packages: Sequence[str]) -> Path:
    """Copy `names` of the tree, and make a home and a virtual environment with these packages. Return its Python.

    Everything is below `folder`; the packages' dependencies are included.
    """
    folder.chmod(0o755)
    tree = folder / "tree"
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=_OF_THE_TREE)
        else:
            tree.mkdir(exist_ok=True)
            shutil.copy(source, tree / name)
    home = folder / "home"
    (home / "tmp").mkdir(parents=True)
    environment = _virtual_environment(folder, tree, packages)
    for path in (tree, environment):
        _open_to_everybody(path)
    for path in (home, home / "tmp", tree):  # tree: Hypothesis and Python write beside the code
        os.chown(path, UID, UID)
    python = environment / "bin" / "python"
    _check_works(python)
    return python


def _check_works(python: Path) -> None:
    """Run Python as that user and without an environment, as a template starts. RuntimeError, with a fix, if it fails."""
    imports = "import ctypes, hashlib, msgspec, sqlite3, ssl"
    done = subprocess.run(
        [str(python), "-c", imports],
        user=UID,
        group=UID,
        extra_groups=[],
        env={},
        cwd="/",
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise RuntimeError(
            f"{sys.executable} cannot be used by another user ({last}): make .venv of one that can, "
            "for example with `make test PYTHON=/usr/bin/python3`"
        )


def _virtual_environment(folder: Path, tree: Path, needed: Sequence[str]) -> Path:
    environment = folder / "venv"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    for source in _package_files(needed):
        target = packages / source.name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc.*"), dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
    places = (tree, tree / "sandbox", tree / "connectors" / "sdk")
    (packages / "checkout.pth").write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
    python = _interpreter(folder, version)
    (environment / "bin").mkdir()
    for name in ("python", "python3", version):
        (environment / "bin" / name).symlink_to(python)
    (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\n", encoding="utf-8")
    return environment


def _package_files(needed: Sequence[str]) -> Iterator[Path]:
    """Yield the top-level entries of site-packages for the needed packages and their dependencies."""
    seen: set[Path] = set()
    for distribution in _closure(needed):
        for file in distribution.files or ():
            top = file.parts[0]
            place = Path(str(distribution.locate_file(top)))
            if top not in {"..", "__pycache__"} and not top.endswith(".pth") and place not in seen and place.exists():
                seen.add(place)
                yield place


def _closure(names: Sequence[str]) -> list[importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    awaited = list(names)
    while awaited:
        name = re.sub(r"[-_.]+", "-", awaited.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another platform or version
            continue
        for requirement in found[name].requires or ():
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match is not None and "extra ==" not in requirement:
                awaited.append(match[0])
    return list(found.values())


def _interpreter(folder: Path, version: str) -> Path:
    """Return a Python of this version that everybody may execute: the running one, the system's, or a copy."""
    own = Path(os.path.realpath(sys.executable))
    for candidate in (own, Path("/usr/bin") / version):
        if (
            candidate.exists()
            and _is_open(candidate)
            and _is_open(Path(os.__file__) if candidate == own else candidate)
        ):
            return candidate.resolve()
    prefix = folder / "python"
    shutil.copytree(Path(sys.base_prefix) / "lib" / version, prefix / "lib" / version, ignore=_OF_PYTHON, symlinks=True)
    for library in (Path(sys.base_prefix) / "lib").glob("libpython*.so*"):
        shutil.copy(library, prefix / "lib" / library.name, follow_symlinks=True)
    (prefix / "bin").mkdir()
    shutil.copy(own, prefix / "bin" / version)
    _open_to_everybody(prefix)
    return prefix / "bin" / version


def _is_open(path: Path) -> bool:
    """Return whether everybody may read the path and pass through every folder above it."""
    return bool(path.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in path.parents)


def _open_to_everybody(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
