"""`aileron keyring`: whose signatures count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aileron.api.approver import ApproverFacts
from aileron.api.publishers import KeyList, LookForKey, PublishedKey, RevokedKeys, RevokeKey, TrustedKeys, TrustKey
from aileron.cli import output
from aileron.cli.commands.done import tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.problem import Problem
from aileron.cli.prompts import ask_now, can_ask, passphrase_from, text_in
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

__all__ = ["list_", "revoke", "trust"]

_LOOK_S = 60.0
"""For a forge that is slow."""

Authority = Annotated[str, typer.Argument(metavar="AUTHORITY", help="scheme://OWNER, or scheme://OWNER/REPOSITORY.")]


def trust(
    authority: Authority,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="The public key, instead of the one its repository publishes."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask: the answer is yes; a signature is still asked for.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a publisher's key count, once you have compared its fingerprint.

    Of a repository the key is keys/publisher.pub on its default branch. For an owner, with all their repositories, give the key.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    if key is None:
        look = LookForKey(authority=authority)
        found = supervisor.fetch(PublishedKey, "POST", "/v1/keyring/look", look, wait_s=_LOOK_S)
        asked = TrustKey(authority=found.authority, key=found.public_key, source=found.source)
        _show(found)
    else:
        asked = TrustKey(authority=authority, key=text_in("--key", str(key)), source=str(key.absolute()))
    is_decided = supervisor.fetch(ApproverFacts, "GET", "/v1/approver").status != "none"
    if not yes and not is_decided:
        _check_wanted(authority, key)
    answer = supervisor.change(TrustedKeys, "POST", "/v1/keyring", asked)
    raise typer.Exit(carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List the keys that count."""
    found = Supervisor().fetch(KeyList, "GET", "/v1/keyring")
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        ("AUTHORITY", "KEY"),
        [(entry.authority, key) for entry in found.keyring for key in entry.keys],
        empty="no publisher's key is trusted\n  fix: aileron keyring trust AUTHORITY",
    )


def revoke(
    authority: Authority,
    key: Annotated[
        str | None, typer.Option("--key", metavar="FINGERPRINT", help="Just this one, as `keyring list` has it.")
    ] = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Let a publisher's keys count no more.

    What is installed stays: its bytes are pinned.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    found = supervisor.fetch(RevokedKeys, "POST", "/v1/keyring/revoke", RevokeKey(authority=authority, key=key))
    for gone in found.revoked:
        output.note(f"{visible(gone)} counts no more for {visible(found.authority)}")


def _show(found: PublishedKey) -> None:
    """What the repository says; whether it is so, only the person can find out."""
    output.print_facts(
        [
            ("publisher", found.authority),
            ("key", found.key),
            ("from", found.source),
            ("trusted", [*found.others, "ANOTHER KEY than the one it publishes now"] if found.others else None),
        ],
        "stderr",
    )


def _check_wanted(authority: str, key: Path | None) -> None:
    """Return if the person says yes. Problem where they do not, or cannot be asked."""
    again = f"aileron keyring trust {authority}{'' if key is None else f' --key {key}'} --yes"
    if not can_ask():
        raise Problem.usage("whether to trust it, only a person can say, and there is no terminal", fix=again)
    output.note(
        "\ncompare the fingerprint with what its publisher says elsewhere: whoever has that key can sign for them"
    )
    if (ask_now("Trust it? [y/N] ") or "").lower() not in ("y", "yes"):
        raise Problem("it is not trusted", exit_code=6, name="cancelled")
