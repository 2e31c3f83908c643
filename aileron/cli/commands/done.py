"""What a change says when it is done: printed by the command that asked for it, or by the one that approved it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aileron.cli import output
from aileron.model.visible import visible

if TYPE_CHECKING:  # whoever runs another command does not wait for it
    from aileron.registry.build import Built

__all__ = ["print_connector", "tell_done", "tell_packed"]

_MAX_NAMED = 8
"""Files that are named of those that were left out for one reason: two lines of a terminal."""


def tell_done(kind: str, result: Any) -> None:
    """Name on standard output, the rest on standard error; `result` is what the route answers."""
    found: Mapping[str, Any] = result if isinstance(result, dict) else {}
    match kind:
        case _ if "connectors" in found:
            _tell_installed(found)
        case "action_file":
            _tell_action(found)
        case "connector" | "connector_update":
            _tell_connector(found)
        case "trusted_key":
            output.write(visible(str(found.get("key"))))
            state = "counts already" if found.get("new") is False else "counts from now on"
            output.note(f"{state} for {visible(str(found.get('authority')))}")
        case "binding":
            output.write(visible(str(found.get("name"))))
            output.note(f"{visible(str(found.get('connector')))} {_what_it_uses(found)}")
        case "secret":
            output.note(f"stored {visible(str(found.get('name')))}")
        case "grant":
            output.write(visible(str(found.get("id"))))
            until = output.local_time(found.get("until"), "stderr")
            name, uses = visible(str(found.get("action"))), output.as_text(found.get("uses"))
            output.note(f"{name} is not asked about, where it fits, at most {uses} times until {until}")
        case "passkey":
            output.write(visible(str(found.get("id"))))
            output.note(
                f"{visible(str(found.get('name')))} decides from now on, on {visible(str(found.get('origin')))}"
            )
        case "settings":
            whole = (
                "in force"
                if found.get("restart") is False
                else "in force when the daemon starts again\n  fix: aileron daemon stop"
            )
            output.note(whole)
        case _:
            output.print_result(result)


def print_connector(entry: Mapping[str, Any]) -> None:
    """One connector: what it may reach, use and spend."""
    limits = entry.get("limits") or {}
    output.print_facts(
        [
            ("name", entry.get("name")),
            ("version", entry.get("version")),
            ("hash", entry.get("hash")),
            ("problem", entry.get("problem")),
            ("reaches", entry.get("hosts") or "nothing"),
            ("credential", _credential(entry) or "none"),
            ("uses", ", ".join(entry.get("imports") or []) or "nothing"),
            ("limits", ", ".join(f"{name} {output.as_text(value)}" for name, value in limits.items()) or None),
        ]
    )


def _what_it_uses(binding: Mapping[str, Any]) -> str:
    """Whose account of a sign-in; else which secret."""
    if binding.get("kind") == "oauth2" and (binding.get("account") or binding.get("expires_at")):
        return f"acts as {visible(str(binding.get('account') or 'whoever signed in'))}"
    return f"uses the secret {visible(str(binding.get('secret')))}"


def _tell_action(found: Mapping[str, Any]) -> None:
    output.write(visible(str(found.get("name"))))
    for connector, pin in (found.get("bound") or {}).items():
        output.note(f"bound {visible(str(connector))} to {visible(str(pin))}")
    if "digest" in found and "replaced" not in found:
        output.note("it may run as its file is now")
    else:
        output.note("replaced the action of that name" if found.get("replaced") else "added")
    for need in found.get("needs") or []:
        output.note(f"before it can run: {visible(str(need))}")


def _tell_installed(found: Mapping[str, Any]) -> None:
    """What came from a forge: connectors on one line each, where an action came with them."""
    connectors, action = found.get("connectors") or [], found.get("action")
    if action is None and len(connectors) == 1:
        _tell_connector(connectors[0])
        return
    for one in connectors:
        output.note(f"installed {visible(str(one.get('name')))}@{visible(str(one.get('version')))}")
    if action is not None:
        _tell_action(action)


def _tell_connector(found: Mapping[str, Any]) -> None:
    print_connector(found)
    for gone in found.get("replaced") or []:
        output.note(f"replaced {visible(str(gone))}: actions pinned to it no longer run")
    signature = visible(str(found.get("signature") or "unsigned"))
    output.note(f"installed, {signature}" if found.get("new") else "it was installed already, with these bytes")


def _credential(entry: Mapping[str, Any]) -> str | None:
    credential = entry.get("credential")
    return f"{credential.get('kind')} ({credential.get('scope')})" if isinstance(credential, dict) else None


def tell_packed(built: Built) -> None:
    """On standard error: the files that are no Python, since they are published too, and those that are missing, by reason."""
    if built.data:
        output.note(f"data files in it: {_named(built.data)}")
    reasons = sorted({one.reason for one in built.left_out})
    for reason in reasons:
        output.note(f"left out, {reason}: {_named([one.path for one in built.left_out if one.reason == reason])}")
    if built.unnamed:
        output.note(f"left out, not named here: {built.unnamed} more")


def _named(paths: Sequence[str]) -> str:
    more = (
        f", and {len(paths) - _MAX_NAMED} more (`connector build --json` names them)" if len(paths) > _MAX_NAMED else ""
    )
    return ", ".join(visible(path) for path in paths[:_MAX_NAMED]) + more
