"""Check whether the settings refuse every destination of a step, before any person or service is asked.

Pure: nothing is looked up, so only addresses and names of this machine (RFC 6761 section 6.3) can be judged. The check
spares a person a decision about a call that could not reach anything. The actual destinations are checked when a
request leaves (rules.py, steps.py).

Source: docs/reference/egress.md. Not here: names that need a resolver.
"""

from __future__ import annotations

from aileron.egress.addresses import check_addresses
from aileron.egress.failures import denied
from aileron.egress.refusal import RefusedError
from aileron.model.failure import AileronError
from aileron.model.names import HostPort
from aileron.model.plan import Grant

__all__ = ["check_somewhere_to_go"]

_HERE = "127.0.0.1"


def check_somewhere_to_go(grant: Grant, *, has_tls: bool = False) -> None:
    """Raise AileronError(capability_denied), about the first granted host, if every granted host is known to be refused."""
    first: AileronError | None = None
    for host in grant.hosts:
        problem = _problem(host, grant, has_tls=has_tls)
        if problem is None:
            return
        first = first or problem
    if first is not None:
        raise first


def _problem(host: HostPort, grant: Grant, *, has_tls: bool) -> AileronError | None:
    """Return the error if the user's settings forbid sending anything to the host. Return None if they allow it, or if
    the host's address is not known yet.
    """
    address = _HERE if host.host == "localhost" or host.host.endswith(".localhost") else host.host
    if not address.replace(".", "").isdigit():
        return None
    try:
        check_addresses(host, [address], plain=False, private=host in grant.private, has_tls=has_tls)
    except RefusedError as error:
        return denied(error, host, None, grant)
    return None
