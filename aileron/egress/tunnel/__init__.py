"""The way out of a cell: an HTTP proxy that knows CONNECT alone, and looks at the name with which TLS begins.

connect_head.py what is asked for · policy.py whether that is allowed · client_hello.py, hello_watch.py the name in TLS ·
answers.py what the client is told · journal.py what the ledger gets · relay.py bytes both ways · way_out.py all of it, in order

The door itself, and whose it is, are the daemon's (daemon/http/tunnels.py).
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
