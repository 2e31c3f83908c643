"""The process that serves the daemon's TCP clients. It parses what unknown callers (strangers) send, and does not have
the vault's key.

    stranger ── TCP, TLS, HTTP/1.1 ──► ingress ── messages, one socket pair for each request ──► daemon

Every program on this machine, and on `daemon.listen` every client that reaches it, can send bytes to the daemon's
ports. This process parses those bytes at a lower priority, and without access to files and the network. The daemon,
which has the vault's key, gets complete and typed requests, and from unknown callers only as many as it has time for.
The only key here is that of the TLS certificate of `daemon.listen`.

    server.py      Hypercorn, bounded: connections, read-ahead, certificates; also under the sockets of the home
    connection_places.py      the number of connections, and the choice of the one that is closed for a new one
    one_at_a_time.py   one request at a time, and detection of a client that disconnects
    request_line.py, refusals.py   which requests are invalid, and the responses to them
    admission.py   which callers are known, and how much work strangers may cause
    forward.py     passes one request to the daemon, and returns the response
    daemon_messages.py    the messages between the two processes
    exchange.py    one request between two processes; the MCP process gets its requests in this way, too
    known.py       the daemon's list of known callers
    peers.py       the process at the other end of a socket of the home, in the daemon
    certificate.py the certificate of `daemon.listen`
    __main__.py    hides the process, which serves in a fork (process.py) after it has given up unneeded rights (confine.py)

The process starts at the first connection (daemon/http/ingress.py). Source: docs/adr/0031-ingress.md. Not here:
making the response, and deciding which caller gets it, which only the daemon does.
"""
