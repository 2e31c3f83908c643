"""Adapters for unmodified libraries that speak HTTP, WebSocket, mail or SQL. Their connections become requests and streams
of the host.

    import stripe                                    # any library on http.client, urllib3, requests, botocore or httpx
    from aileron_connector import transports

    stripe.api_key = transports.placeholder("api_key")

hooks.py changes when a library is imported · credentials.py the credential of a request · exchange.py one HTTP request, step
by step · http_client.py http.client, urllib3 (requests) · httpx.py · botocore.py boto3's data · mail.py smtplib, imaplib,
poplib · sockets.py drivers that connect a socket · websockets.py, websockets_asyncio.py the clients of that name ·
authorities.py missing files of certificates

Runs inside the jail. Only the one place where a library makes a connection is replaced. Everything above that place stays the
library's own: redirects (each a request of its own, checked anew), retries, cookies, pools, streaming. The host speaks TLS if
the library requests `https`; the library's certificates and `verify` are ignored.

Rules
- A library is changed only when it is imported (hooks.py), so unused libraries cost a connector nothing.
- Outside an invocation a library works as always: the same process may use it for something else, especially in tests.
- No socket is opened and no name looked up.

Source: docs/how-to/write-a-connector.md. Not here: raw streams (tcp.py), libraries that need a descriptor (aiohttp, asyncpg).
"""

from aileron_connector.transports.credentials import placeholder, use
from aileron_connector.transports.hooks import install

__all__ = ["placeholder", "use"]

install()
