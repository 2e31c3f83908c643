"""How long does a whole `POST …/run` of a trivial action take, every record durable? Against bubblewrap without any of it."""

from __future__ import annotations

import os
import shutil
import sys

from benchmarks.bench_jail import ECHO, MSGSPEC, _bwrap
from benchmarks.measure import interleave, report
from tests.support.home import daemon_home

ROUNDS = 100


def main() -> None:
    """Measure and report."""
    with daemon_home() as home:
        home.install_probe()
        home.unlock()
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")

        def run() -> None:
            assert home.run("give-back", {"text": "x"}).status == 200

        variants = {"run": run}
        if shutil.which("bwrap"):
            code = f"import sys; sys.path.append({str(MSGSPEC.parent)!r})" + ECHO.format(source=0, target=1)
            interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
            variants["bwrap python msgspec echo"] = _bwrap(interpreter, "-I", "-S", "-c", code)
        taken = interleave(variants, ROUNDS)
    report("POST /v1/actions/give-back/run", taken, "run", ["bwrap python msgspec echo"], "run.json")


if __name__ == "__main__":
    main()
