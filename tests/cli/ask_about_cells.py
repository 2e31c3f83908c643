"""Ask about cells as `aileron launch` does, and print the answer. With `no`, the machine counts as unable to make cells."""

from __future__ import annotations

import sys

from aileron.api.daemon import Status
from aileron.cli.cells import ask_about_cells
from aileron.cli.output import write
from aileron.cli.supervisor import Supervisor
from aileron.home import Home

if __name__ == "__main__":
    running = Supervisor().fetch(Status, "GET", "/v1/status")
    found = ask_about_cells(Home.from_environment().config, running, is_possible=lambda: sys.argv[1:] != ["no"])
    write(f"in a cell: {found}")
