"""Egress: the only way out of the jail. One engine in the daemon; connectors reach it in frames, through the executor.

Requests: url.py parses a URL · rules.py decides whether a request can leave · reserved.py knows the URLs that only the
supervisor requests · headers.py checks header fields and framing · lookup.py resolves names · addresses.py says which
addresses are allowed · dial.py opens the outbound socket · pool.py keeps connections · inject.py adds a lent
credential to a request · credentials/ has the kinds of credential · key_places.py puts a key into a path or a body ·
client_certificate.py makes connections with a client certificate · held.py bounds bodies that must be complete before
anything is sent.

Responses and results: scrub.py, decode.py and unlabelled.py keep secrets out of responses · response.py has the
response that a connector sees · meter.py counts against the budget of a step · journal.py defines what goes into the
ledger · refusal.py is the closed list of reasons to refuse · failures.py builds the errors · engine.py does all of this
in order · around.py is the base for handling a refused request: renewing.py repeats the request with a renewed token,
challenged.py repeats it with the answer to a challenge · signing/ makes signatures and proofs with a secret that is not
sent · tcp.py carries streams of bytes, login.py those that the supervisor logs in · tunnel/ is the way out of a cell ·
websocket.py and websocket_messages.py carry WebSockets · exchange.py has what requests and handshakes share · steps.py has the
steps that requests, streams and WebSockets share · outgoing.py is a request as it goes on the wire · http2.py speaks HTTP/2 ·
foreseen.py knows before a run whether a step has anywhere to go · attempts.py counts refused logins · own.py sends the
supervisor's own requests.

Importing this package loads the HTTP client, which takes 170 ms. The daemon imports it; of the commands, only
`connector test` and those that import an MCP server do.
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
