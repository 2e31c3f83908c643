"""The process in front of the daemon that faces TCP: it parses what strangers send, and holds no key.

    stranger ── TCP, TLS, HTTP/1.1 ──► ingress ── messages, one socket pair for each request ──► daemon

Every program on this machine, and on `daemon.listen` every client that reaches it, can send bytes to the daemon's ports. This
process parses those bytes at a lower priority, without file system and network of its own. The daemon, which has the vault's
key, gets requests that are whole and typed, and from callers it does not know only as many as it has time for.

    server.py      Hypercorn, bounded: connections, read-ahead, certificates; also under the sockets of the home
    places.py      how many connections, and which of them is closed for a new one
    one_at_a_time.py   one request at a time, and a client that goes away is noticed
    request_line.py, refusals.py   which requests are invalid, and the responses to them
    admission.py   which callers are known, and how much work strangers may cause
    forward.py     one request, passed on to the daemon, and its response back
    messages.py    the messages between the two processes
    known.py       the daemon's list of known callers
    __main__.py    the process hides, and serves in a fork: process.py, once confine.py has taken away what it does not need

It starts with the first connection (daemon/http/ingress.py). Decided in docs/adr/0031-ingress.md. Not here: the response, and the
decision who gets it: both are the daemon's alone.
"""
