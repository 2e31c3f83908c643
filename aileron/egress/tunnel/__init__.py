"""The way out of a cell: an HTTP proxy that supports only CONNECT, and checks the server name at the beginning of TLS.

connect_head.py reads the request · policy.py decides whether it is allowed · client_hello.py and hello_watch.py check
the name in TLS · answers.py makes refusals for the client · journal.py defines the rows of the ledger · relay.py relays
bytes both ways · way_out.py calls all of them in order

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
