"""The way out of a cell: an HTTP proxy that supports only CONNECT, and checks the name with which TLS begins.

connect_head.py reads the request · policy.py decides whether it is allowed · client_hello.py, hello_watch.py check the name
in TLS · answers.py refusals to the client · journal.py what the ledger gets · relay.py bytes both ways · way_out.py does
all of it, in order

The daemon has the socket, and knows the session of each connection (daemon/http/tunnels.py).
"""

from aileron.egress.tunnel.journal import TunnelIntent, TunnelJournal, TunnelReport
from aileron.egress.tunnel.policy import Admitted, Cell, HostPolicy, Refused, listed
from aileron.egress.tunnel.way_out import WayOut

__all__ = [
    "Admitted",
    "Cell",
    "HostPolicy",
    "Refused",
    "TunnelIntent",
    "TunnelJournal",
    "TunnelReport",
    "WayOut",
    "listed",
]
