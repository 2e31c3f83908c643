"""Aileron: the local runtime that lets agents act without holding a key.

The layout, in the order one invocation passes through it (docs/explanation/architecture.md):

model/      frozen values everyone shares           approvals/  who must be asked; the only maker of an ApprovedPlan
client.py   the only way a front door reaches us    executor/   one approved plan, one jail, one outcome
daemon/     builds everything once; the HTTP API    egress/     the only way out: rules, injection, scrubbing
runs/       spine.py, the spine                     vault/      secrets at rest, and who may borrow one
actions/    the Markdown files, and Plan            registry/   connectors: names, manifests, bytes by their hash
audit/ ledger/   what happened, durable first       cli/        commands; they translate and show, never decide

This module imports nothing but `sys`, which is built in: the hot commands pay for every import.
"""

import sys

__all__ = ["UNSUPPORTED", "__version__"]

__version__ = "0.2.0"

UNSUPPORTED = None
"""Message for the entry points: why this Python cannot run Aileron and what to do; None if it can. pip checks the versions, but
does not see a free-threaded build (`t` among its flags, PEP 703): docs/adr/0038-python-versions.md."""
if "t" in sys.abiflags:
    _VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
    UNSUPPORTED = (
        f"{sys.executable} is a free-threaded build of Python, which Aileron does not support: "
        f"install it with {_VERSION} instead of {_VERSION}t"
    )
