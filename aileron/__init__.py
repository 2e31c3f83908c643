"""Aileron: the local runtime that lets agents act without holding a key.

The layout, in the order one invocation passes through it (docs/explanation/architecture.md):

model/      frozen values everyone shares           approvals/  who must be asked; the only maker of an ApprovedPlan
client.py   the only way a front door reaches us    executor/   one approved plan, one jail, one outcome
daemon/     builds everything once; the HTTP API    egress/     the only way out: rules, injection, scrubbing
runs/       perform.py, the spine                   vault/      secrets at rest, and who may borrow one
actions/    the Markdown files, and Plan            registry/   connectors: names, manifests, bytes by their hash
audit/ ledger/   what happened, durable first       cli/        commands; they translate and show, never decide

This module stays empty of imports: the hot commands pay for every one of them.
"""

__version__ = "0.1.0"
