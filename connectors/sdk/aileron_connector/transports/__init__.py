"""Libraries that speak HTTP, WebSocket, mail or SQL, unmodified: their connections become requests and streams of the host.

    import stripe                                    # any library on http.client, urllib3, requests, botocore or httpx
    from aileron_connector import transports

    stripe.api_key = transports.placeholder("api_key")

hooks.py when a library is imported · credentials.py which key a request asks for · exchange.py one HTTP request, step by step ·
http_client.py http.client, urllib3 (requests) · httpx.py · botocore.py boto3's data · mail.py smtplib, imaplib, poplib ·
sockets.py drivers that connect a socket · websockets.py, websockets_asyncio.py the clients of that name · authorities.py files
not needed

Runs inside the jail. What is replaced is the one place where a library makes a connection, so that everything above it stays
its own: redirects (each a request of its own, checked anew), retries, cookies, pools, streaming. TLS is the host's: a
library's `https` says that it is wanted, its certificates and `verify` say nothing.

Rules
- Nothing is imported for who does not use it: a library is changed when it is imported (hooks.py).
- Outside an invocation nothing is changed: the same process may use the library for something else, a test above all.
- No socket is opened and no name looked up.

Source: docs/how-to/write-a-connector.md. Not here: raw streams (tcp.py), libraries that need a descriptor (aiohttp, asyncpg).
"""

from aileron_connector.transports.credentials import placeholder, use
from aileron_connector.transports.hooks import install

__all__ = ["placeholder", "use"]

install()
