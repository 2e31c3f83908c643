"""Egress: the only way out of the jail. One engine in the daemon; connectors reach it in frames, through the executor.

Requests: url.py parses a URL · rules.py decides whether a request can leave · reserved.py knows the URLs that only the
supervisor requests · headers.py header fields and framing · lookup.py resolves names · addresses.py says which
addresses are allowed · dial.py opens the only outbound socket · pool.py keeps connections · inject.py adds a lent
credential to a request · credentials/ the kinds of credential · places.py a key in a path or a body ·
client_certificate.py connections with a client certificate · held.py bodies that must be whole before anything is sent.

Responses and results: scrub.py, decode.py and unlabelled.py keep secrets out of responses · response.py the response ·
meter.py the budget of a step · journal.py what goes into the ledger · refusal.py the closed list of refusals ·
failures.py builds the errors · engine.py does all of this in order · around.py handles refused requests: renewing.py
repeats one after its token was refused, challenged.py repeats one with the answer to a challenge · signing/ signatures
and proofs made with a secret that is not sent · tcp.py streams of bytes · websocket.py, messages.py WebSockets ·
exchange.py what requests and handshakes share · steps.py the steps that requests, streams and WebSockets share ·
own.py the supervisor's own requests.

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
