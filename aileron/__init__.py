"""Aileron: the local runtime that lets agents act without holding a key.

The layout, in the order one invocation passes through it (docs/explanation/architecture.md):

model/      frozen values that all packages use     approvals/  whether a person must decide; makes each ApprovedPlan
client.py   how user-facing programs reach us       executor/   one approved plan, one jail, one outcome
daemon/     builds everything once; the HTTP API    egress/     the only way out: rules, injection, scrubbing
runs/       a run from request to outcome           vault/      encrypted secrets, and the bindings that use them
actions/    the Markdown files, and Plan            registry/   connectors: names, manifests, bytes by their hash
audit/ ledger/   what happened, on disk first       cli/        commands; they translate and show, never decide

This module imports only `sys`, which is built in, because every import here would delay every command.
"""

import sys

__all__ = ["UNSUPPORTED", "__version__"]

__version__ = "0.2.0"

UNSUPPORTED = None
"""Message for the entry points that says why this Python cannot run Aileron, and what to do; None if this Python can.
pip checks the versions, but does not see a free-threaded build (`t` among its flags, PEP 703):
docs/adr/0038-python-versions.md.
"""
if "t" in sys.abiflags:
    _VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
    UNSUPPORTED = (
        f"{sys.executable} is a free-threaded build of Python, which Aileron does not support: "
        f"install it with {_VERSION} instead of {_VERSION}t"
    )
