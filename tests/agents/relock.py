"""Make pins/package-lock.json anew after a version in pins/package.json was changed: `python -m tests.agents.relock`.

For the conformance suite's pins: `python -m tests.agents.relock tests/conformance/pins`.

npm's own lock, without what is for other systems (npm leaves some of those half written, and then refuses its own lock) and
without the address of each archive: the hashes say what it has to be, and the machine's configuration says where to get it.

Not here: installing (install.py). pi and node are pinned there and in pins/node.txt.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

_PINS: Final = Path(__file__).parent / "pins"
_TO_SPARE: Final = {"node_modules/opencode-linux-x64-baseline"}
"""Packages to leave out: for processors without AVX2, 180 MB that nobody starts."""
_NPM_S: Final = 300.0


def main(pins: Path = _PINS) -> None:
    """Ask npm for the lock, keep what is installed here, and write it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(pins / "package.json", folder)
        npm = ["npm", "install", "--package-lock-only", "--no-audit", "--omit-lockfile-registry-resolved=true"]
        subprocess.run(npm, cwd=folder, check=True, timeout=_NPM_S)
        lock = json.loads((Path(folder) / "package-lock.json").read_text(encoding="utf-8"))
    kept = {path: entry for path, entry in lock["packages"].items() if path not in _TO_SPARE and _is_for_here(entry)}
    for entry in kept.values():
        optional = entry.pop("optionalDependencies", {})
        if here := {name: wanted for name, wanted in optional.items() if f"node_modules/{name}" in kept}:
            entry["optionalDependencies"] = here
    lock["packages"] = kept
    (pins / "package-lock.json").write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")


def _is_for_here(entry: dict[str, Any]) -> bool:
    """Return whether a package is for Linux, x86-64 and the GNU C library, the one system of install.py."""
    return all(here in entry.get(key, [here]) for key, here in (("os", "linux"), ("cpu", "x64"), ("libc", "glibc")))


if __name__ == "__main__":
    main(*(Path(folder) for folder in sys.argv[1:2]))
