"""Texts with the commands that fix a credential that does not work, the same wherever the failure is detected.

Pure. A text names the secret, if its name is known; otherwise it says where to find the name. An error message begins with
what is wrong and ends with this text.

Source: docs/reference/cli.md. Not here: what is wrong with the credential.

>>> fix_for(BindingName.parse("basic/caldav/home"), Stored("dav-password"))
'store another with `aileron secret set dav-password`'
"""

from __future__ import annotations

from typing import NamedTuple

from aileron.model.names import BindingName
from aileron.model.username import has_username

__all__ = ["Stored", "fix_for", "setup_options"]


class Stored(NamedTuple):
    """The name of a binding's secret in the vault, and the secret's place if the vault has only a reference."""

    name: str
    reference: str | None = None


def setup_options(kind: str, name: str, *, has_host_key: bool = False) -> str:
    """Return the options that `binding setup` needs without a terminal.
    For oauth2, the sign-in provides user and secret; an ssh login needs a host key.

    >>> setup_options("api_key", "api_key/SERVICE/IDENTITY")
    '--name api_key/SERVICE/IDENTITY --secret NAME'
    """
    if kind == "oauth2":
        return f"--name {name}"
    user, key = " --username USER" if has_username(kind) else "", " --host-key KEY" if has_host_key else ""
    return f"--name {name}{user} --secret NAME{key}"


def fix_for(binding: BindingName, stored: Stored | None = None, *, or_username: bool = False) -> str:
    """Return the text that says how to replace the secret of a binding.

    `or_username` adds how to change the user name, for errors that a wrong user name can cause too. `stored` is None if the
    caller does not know the secret's name.
    """
    if binding.kind == "oauth2":
        return f"sign in again: `aileron binding reauthorize {binding}`"
    other_name = (
        f"; if the user name is wrong: `aileron binding rebind {binding} --username USER`" if or_username else ""
    )
    if stored is not None and stored.reference is not None:
        return f"change it at {stored.reference}, then approve it with `aileron binding rebind {binding}`{other_name}"
    file = " < client.pem" if binding.kind == "mtls" else ""
    if stored is not None:
        return f"store another with `aileron secret set {stored.name}{file}`{other_name}"
    shown = f"(`aileron binding inspect {binding}` shows the name)"
    return f"store another with `aileron secret set NAME{file}` {shown}{other_name}"
