"""Adapters for unmodified libraries that speak HTTP, WebSocket, mail or SQL: connections become the host's requests and streams.

    import stripe                                    # any library on http.client, urllib3, requests, botocore or httpx
    from aileron_connector import transports

    stripe.api_key = transports.placeholder("api_key")

hooks.py when a library is imported · credentials.py which key a request asks for · exchange.py one HTTP request, step by step ·
http_client.py http.client, urllib3 (requests) · httpx.py · botocore.py boto3's data · mail.py smtplib, imaplib, poplib ·
sockets.py drivers that connect a socket · websockets.py, websockets_asyncio.py the clients of that name · authorities.py missing
files of certificates

Runs inside the jail. Only the one place where a library makes a connection is replaced, so that everything above it stays the
library's: redirects (each a request of its own, checked anew), retries, cookies, pools, streaming. The host speaks TLS: a
library's `https` requests it; its certificates and `verify` are ignored.

Rules
- No connector pays for a library that it does not use: a library is changed when it is imported (hooks.py).
- Outside an invocation a library works as always: the same process may use it for something else, especially in tests.
- No socket is opened and no name looked up.

Source: docs/how-to/write-a-connector.md. Not here: raw streams (tcp.py), libraries that need a descriptor (aiohttp, asyncpg).
"""

from aileron_connector.transports.credentials import placeholder, use
from aileron_connector.transports.hooks import install

__all__ = ["placeholder", "use"]

install()
