"""Logs in at services that do not speak HTTP. Each login has a process of its own; the jail gets the stream after the
login.

    daemon ── connected socket, one secret ──► logins ── fork ──► one login: TLS, the login, then bytes both ways
    (keeper.py)                                (process.py)       (child.py, side.py, protocols/, relay.py)

Two processes fork logins, one for `ssh` and one for all other protocols; neither ever has a secret. The process that parses a
server's output holds one secret and three sockets: of the service, of the connector's stream, and to the daemon. It has no vault
key, no file and no other access to the network.

Source: docs/adr/0057-logins.md. Not here: whether a step may log in, and at which addresses (egress).
"""
