"""Logs in at services that do not speak HTTP, in a separate process; the jail gets the logged-in stream.

    daemon ── connected socket, one secret ──► logins ── fork ──► one login: TLS, the login, then bytes both ways
    (keeper.py)                                (process.py)       (child.py, side.py, protocols/, relay.py)

The process that parses a server's output holds one secret and two sockets. It has no vault key, no file and no access to the
network.

Source: docs/adr/0057-logins.md. Not here: whether a step may log in, and at which addresses (egress).
"""
