"""Logins at services that do not speak HTTP: a process of its own logs in, and the jail gets the stream behind it.

    daemon ── connected socket, one secret ──► logins ── fork ──► one login: TLS, the login, then bytes both ways
    (keeper.py)                                (process.py)       (child.py, side.py, protocols/, relay.py)

What parses a server's words holds one secret and two sockets: not the vault's key, no file, no way out.

Source: docs/adr/0057-logins.md. Not here: whether a step may log in, and which addresses (egress).
"""
