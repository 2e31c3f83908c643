"""`aileron hub`: search the Hub, or build one.

`build` runs here, on files, without a daemon. The other commands ask the daemon, which alone uses the network.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from aileron.api.publishers import HubCredential, HubDetail, HubEntry, HubFound, HubSignature, HubVersion
from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import Problem, local_work
from aileron.cli.supervisor import Supervisor
from aileron.model.json_value import JSON, dict_of, list_of
from aileron.model.visible import visible

__all__ = ["build", "search", "show"]

_ASK_S = 180.0
"""Seconds to wait for a slow Hub: an index of 8 MiB takes two and a half minutes over a poor connection."""
_SHOWN_VERSIONS = 10


class KindWanted(enum.StrEnum):
    """Kinds of entries that `aileron hub search --kind` can select."""

    CONNECTOR = "connector"
    ACTION = "action"


def search(
    words: Annotated[
        list[str] | None, Argument(metavar="WORDS", help="Intent or words to search for. Default: everything.")
    ] = None,
    kind: Annotated[KindWanted | None, Option("--kind", help="Show only connectors, or only actions.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search the Hub for connectors and actions.

    Matches of the whole intent come first, then matches in the name, then matches anywhere.
    """
    asked = {"text": " ".join(words or [])} | ({"kind": kind.value} if kind is not None else {})
    found = Supervisor().fetch(HubFound, "GET", f"/v1/hub?{urlencode(asked)}", wait_s=_ASK_S)
    if as_json:
        output.print_json(found)
        return
    output.print_table(
        ("NAME", "VERSION", "KIND", "SIGNED", "WHAT IT DOES"),
        [(entry.name, entry.version, entry.kind, _signed(entry.signature), _does(entry)) for entry in found.entries],
        empty="no matches on the Hub",
    )
    if more := found.total - len(found.entries):
        output.note(f"{more} more match; add a word to narrow the search")
    if found.entries and output.is_terminal():
        output.note(f"\nsource: {visible(found.hub)}{_age(found.as_of)}\ndetails: aileron hub show NAME")


def show(
    name: Annotated[
        str,
        Argument(
            metavar="NAME[@VERSION]",
            help="Full name, hub://OWNER/REPOSITORY[/PATH], with @VERSION for one version. Default: the newest.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show a connector or action on the Hub."""
    found = Supervisor().fetch(HubDetail, "GET", f"/v1/hub/entry?{urlencode({'name': name})}", wait_s=_ASK_S)
    if as_json:
        output.print_json(found)
        return
    is_connector = found.kind == "connector"
    output.print_facts(
        [
            ("name", found.name),
            ("kind", found.kind),
            ("version", found.version),
            ("newest", found.newest if found.newest != found.version else None),
            ("versions", _versions(found.versions)),
            ("publisher", found.publisher),
            ("about", found.description),
            ("intents", found.intents or None),
            ("reaches", (found.hosts or "nothing") if is_connector else None),
            ("credential", _credential(found.credential) if is_connector else None),
            ("needs", found.requires or None),
            ("hash", found.hash),
            ("signature", _signature(found)),
            ("key", found.publisher_key or "none published"),
            ("from", f"{found.hub}{_age(found.as_of)}"),
        ]
    )
    output.note("\nthis is what the Hub says; installing verifies the archive and asks you:")
    output.note(f"  {visible(found.install)}")


def build(
    directory: Annotated[Path, Argument(metavar="DIR", help="Directory with archives and publishers' keys.")],
    site: Annotated[Path, Option("-o", "--output", metavar="SITE", help="Directory to write the site to.")] = Path(
        "site"
    ),
    as_json: AsJson = False,
) -> None:
    """Build a Hub site from released archives, or extend a site.

    Each archive is published under the name in it. If anything is wrong, all problems are listed and nothing is written.
    """
    from aileron.actions.manifest import parse_action
    from aileron.registry.hub import build_site

    try:
        with local_work():
            done = build_site(directory, site, parse_action)
    except Problem as problem:
        if not as_json:
            _tell_wrong(list_of(problem.details.get("problems")))
        raise
    facts = (
        ("site", str(site)),
        ("artifacts", done.artifacts),
        ("versions", done.versions),
        ("new", done.new_versions),
    )
    output.print_object({"site": str(site), **done._asdict()}, facts, as_json=as_json)


def _tell_wrong(problems: Sequence[JSON]) -> None:
    for problem in map(dict_of, problems):
        output.note(f"{visible(str(problem['file']))}: {visible(str(problem['reason']))}")


def _signed(signature: HubSignature) -> str:
    """Return the key that signed an entry; on a terminal only whether the entry is signed, because a person scans the list."""
    if signature.status != "signed":
        return "UNSIGNED"
    return "signed" if output.is_terminal() else str(signature.key)


def _does(entry: HubEntry) -> str:
    return ", ".join(entry.intents) or entry.description or entry.publisher or ""


def _versions(versions: Sequence[HubVersion]) -> list[str]:
    """Return lines with the newest versions, newest first, and a count of the older ones."""
    shown = [
        f"{version.version}{'' if version.signed_by else '  UNSIGNED'}"
        for version in reversed(versions[-_SHOWN_VERSIONS:])
    ]
    return shown + ([f"and {len(versions) - _SHOWN_VERSIONS} older"] if len(versions) > _SHOWN_VERSIONS else [])


def _credential(credential: HubCredential | None) -> str:
    return "none" if credential is None else f"{credential.kind}: {credential.scope}"


def _signature(found: HubDetail) -> list[str]:
    """Return lines about the key that signed a version, and whether this home trusts that key."""
    if found.signature.status == "unsigned":
        return ["UNSIGNED: the publisher is not verified"]
    lines = [str(found.signature.key)]
    if found.signature.key != found.publisher_key:
        lines.append("NOT THE KEY that its repository publishes now")
    match found.signature.trusted:
        case "yes":
            return [*lines, "trusted here"]
        case "unknown":
            return [*lines, "unlock the vault to see whether you trust it", "aileron vault unlock"]
        case _:
            repository = "/".join(found.name.split("/")[:4])
            return [
                *lines,
                "not trusted here; compare its fingerprint, then:",
                f"aileron keyring trust {repository}",
            ]


def _age(as_of: str | None) -> str:
    return "" if as_of is None else f", built {output.local_time(as_of)}"
