"""`python -m aileron_sandbox.cell CONTROL PREPARATION`: two numbers of inherited descriptors. Only door.py starts it.

Not here: everything (prepare.py).
"""

from __future__ import annotations

import sys

from aileron_sandbox.cell.prepare import main

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
