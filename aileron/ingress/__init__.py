"""The process in front of the daemon that faces TCP: it parses what strangers send, and holds no key.

    stranger ── TCP, TLS, HTTP/1.1 ──► ingress ── messages, one socket pair for each request ──► daemon

Whoever is on this machine, and on `daemon.listen` whoever reaches it, can send bytes to the daemon's ports. What those bytes
are made of is found out here, at a lower priority, without file system and network of its own; the daemon, which has the
vault's key, gets requests that are whole and typed, and of those from callers it does not know only as many as it has time for.

    server.py      Hypercorn, bounded: connections, read-ahead, certificates; also under the sockets of the home
    places.py      how many connections, and which of them goes when another comes
    one_at_a_time.py   one request at a time, and whoever goes away is noticed
    request_line.py, refusals.py   which requests are none, and how that is said
    admission.py   who is known, and how much work strangers may cause
    forward.py     one request, passed on to the daemon, and its answer back
    messages.py    what the two processes say to each other
    known.py       the daemon's list of who is known
    __main__.py    the process hides, and serves in a fork: process.py, once confine.py has taken away what it does not need

It starts with the first connection (daemon/http/ingress.py). Decided in docs/adr/0031-ingress.md. Not here: what is answered,
and to whom: the daemon alone decides that.
"""
