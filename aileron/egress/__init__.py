"""Egress: the only way out of the jail. One engine in the daemon, spoken to in frames by way of the executor.

url.py text → Url · rules.py may it leave · reserved.py what the supervisor alone asks · headers.py fields and framing ·
lookup.py name to addresses · addresses.py where to · dial.py the only outbound socket · pool.py connections kept ·
inject.py a lent credential in, as its kind has it · credentials/ the kinds · places.py a key in a path or body ·
client_certificate.py one that a connection is made with · held.py which bodies have to be whole first · scrub.py, decode.py,
unlabelled.py: it does not come back · response.py the answer · meter.py the budget ·
journal.py what the ledger gets · refusal.py why not, a closed list · failures.py how that is told · engine.py all of it, in
order · around.py what follows a no, by renewing.py once more after a token was refused, by challenged.py once more with the
answer to a challenge ·
signing/ what is made of a secret that is not sent · tcp.py streams of bytes · websocket.py, messages.py WebSockets ·
exchange.py what requests and handshakes share · steps.py the steps that requests, streams and WebSockets share ·
own.py what the supervisor asks for itself

Importing this loads the HTTP client (170 ms): the daemon does, and of the commands only one that imports an MCP server.
"""

from aileron.egress.engine import Egress
from aileron.egress.inject import Lender, LentCredential
from aileron.egress.journal import Journal, RequestDenial, RequestIntent, RequestReport, Unrecorded
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason
from aileron.egress.response import EgressResponse
from aileron.egress.rules import EgressRequest

__all__ = [
    "Egress",
    "EgressRequest",
    "EgressResponse",
    "Journal",
    "Lender",
    "LentCredential",
    "Meter",
    "Reason",
    "RequestDenial",
    "RequestIntent",
    "RequestReport",
    "Unrecorded",
]
