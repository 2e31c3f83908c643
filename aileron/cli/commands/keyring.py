"""`aileron keyring`: the publisher keys that are trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from aileron.api.approver import ApproverFacts
from aileron.api.publishers import KeyList, LookForKey, PublishedKey, RevokedKeys, RevokeKey, TrustedKeys, TrustKey
from aileron.cli import output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import Problem
from aileron.cli.prompts import can_ask, is_yes, passphrase_from, text_in
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

__all__ = ["list_", "revoke", "trust"]

_LOOK_S = 60.0
"""Seconds to wait for a slow forge."""

Authority = Annotated[
    str, Argument(metavar="AUTHORITY", help="Publisher: SCHEME://OWNER, or SCHEME://OWNER/REPOSITORY.")
]


def trust(
    authority: Authority,
    key: Annotated[
        Path | None,
        Option("--key", metavar="FILE", help="Public key to trust, instead of the one that the repository publishes."),
    ] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Skip the confirmation. A signature is still required.")] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Trust a publisher's key after you compare its fingerprint.

    For a repository, the key is keys/publisher.pub on its default branch. To trust an owner with all their repositories, use
    --key.
    """
    from aileron.cli.commands.done import tell_done
    from aileron.cli.decision_dialogue import carry_through

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
    raise Exit(carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List trusted publisher keys."""
    found = Supervisor().fetch(KeyList, "GET", "/v1/keyring")
    output.print_list(
        found,
        ("AUTHORITY", "KEY"),
        ((entry.authority, key) for entry in found.keyring for key in entry.keys),
        as_json=as_json,
        empty="no trusted publisher keys\n  fix: aileron keyring trust AUTHORITY",
    )


def revoke(
    authority: Authority,
    key: Annotated[
        str | None,
        Option("--key", metavar="FINGERPRINT", help="Revoke only the key with this fingerprint (see `keyring list`)."),
    ] = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Stop trusting a publisher's keys.

    Installed connectors and actions stay, because they are pinned by hash.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    found = supervisor.fetch(RevokedKeys, "POST", "/v1/keyring/revoke", RevokeKey(authority=authority, key=key))
    for gone in found.revoked:
        output.note(f"{visible(gone)} is no longer trusted for {visible(found.authority)}")


def _show(found: PublishedKey) -> None:
    """Show the key that the repository publishes. Only the person can find out whether it is genuine."""
    output.print_facts(
        [
            ("publisher", found.authority),
            ("key", found.key),
            ("from", found.source),
            ("trusted", [*found.others, "NOT THE KEY that it publishes now"] if found.others else None),
        ],
        "stderr",
    )


def _check_wanted(authority: str, key: Path | None) -> None:
    """Ask the person to confirm that they trust the publisher's key. Raises Problem if they decline or cannot be asked."""
    again = f"aileron keyring trust {authority}{'' if key is None else f' --key {key}'} --yes"
    if not can_ask():
        raise Problem.usage("a person must confirm, and there is no terminal", fix=again)
    output.note(
        "\ncompare the fingerprint with one from the publisher through another channel: whoever holds this "
        "key can sign for them"
    )
    if not is_yes("Trust it? [y/N] "):
        raise Problem("nothing changed", exit_code=6, name="cancelled")
