"""`aileron audit verify`: reads the ledger's file here, without a daemon.

A record should be checked without trusting the program that wrote it. Not here: what is checked (audit/verify.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from aileron.audit.verify import Head, Report
from aileron.audit.verify import verify as verified
from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Option
from aileron.cli.problem import INTEGRITY, Problem, local_work, parsed
from aileron.model.visible import visible

__all__ = ["verify"]


def verify(
    file: Annotated[
        Path | None, Option("--file", metavar="LEDGER", help="Verify a copy instead of the ledger in the home.")
    ] = None,
    head: Annotated[
        str | None, Option("--head", metavar="SEQ:HASH", help="Head that you keep elsewhere; it must be in the chain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the whole audit chain, without the daemon.

    The output also says what this cannot prove. Exit code 9 means that the chain is broken.
    """
    from aileron.home import Home

    home = Home.from_environment()
    path = file or home.ledger
    if not os.path.isfile(path):  # not Path.is_file, which raises if a directory above cannot be searched
        raise Problem.missing(f"no ledger at {path}")
    known_head = None if head is None else parsed("--head", Head.parse, head)
    with local_work():
        report = verified(path, known_head=known_head, expected_home=home.path if file is None else None)
    if as_json:
        found = report.to_json()
        problem = found.pop("finding")
        output.print_json({"ok": found.pop("whole"), **found, "problem": problem})
    else:
        output.print_facts([("ledger", str(path)), *_found(report)])
    finding = report.finding
    if finding is not None:
        raise Problem(
            f"the audit chain is broken: {finding.message}",
            exit_code=INTEGRITY,
            name="hash_mismatch",
            why=f"the {report.rows} rows before it are valid",
        )
    if not as_json:
        output.note("every row is unchanged. This does not prove:")
        for words in report.cannot_prove:
            first, *rest = output.folded(visible(words), 4)
            output.note("\n".join([f"  - {first}", *(f"    {line}" for line in rest)]))


def _found(report: Report) -> list[tuple[str, Any]]:
    """Return, as labeled facts, what the verification found before it ended: the number of valid rows, the head, the number of
    decisions of each kind, and the signed head if there is one.
    """
    counts = msgspec.structs.asdict(report.decisions)
    decisions = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"
    facts = [("rows", report.rows), ("head", report.head), ("decisions", decisions)]
    return [*facts, ("signed head", report.signed_head)] if report.signed_head else facts
