"""Toolkit for writing a connector: the operations of one service, run in a jail that holds no key.

operation.py declaring an operation · http.py HTTP requests through the host · tcp.py a stream of bytes · websocket.py a
WebSocket, imported by name · transports/ libraries that have HTTP, mail or WebSockets of their own · reports.py logs,
progress and audit facts · failures.py failures with a reason for the caller · testing.py testing operations without a daemon
· openapi/ operations that an OpenAPI document describes, and check.py values against schemas, loaded where they are imported
· loop.py the connector's end of the frames · packed.py descriptions beside the program · carried.py values as a frame can
carry them · mail.py and markup.py, imported by name too: fields of a message, HTML as text, of which html_styles.py says what
a reader sees

    from aileron_connector import ExternalApiError, http, log, op, run

    @op
    def list_calendars(limit: int = 10) -> list[dict]:
        ...

    if __name__ == "__main__":
        run()

Runs inside the jail, one process for one invocation. A connector cannot leak a key, because it has none. Guide:
docs/how-to/write-a-connector.md.
"""

from aileron_connector import http, tcp, transports
from aileron_connector.failures import BadInput, ConnectorError, ExternalApiError, NetworkError, Refused
from aileron_connector.http import hosts, idempotency_key
from aileron_connector.loop import run, serve
from aileron_connector.operation import op
from aileron_connector.reports import audit, log, progress

__all__ = [
    "BadInput",
    "ConnectorError",
    "ExternalApiError",
    "NetworkError",
    "Refused",
    "audit",
    "hosts",
    "http",
    "idempotency_key",
    "log",
    "op",
    "progress",
    "run",
    "serve",
    "tcp",
    "transports",
]
