"""Helper processes of the daemon whose memory no other process of the same user can read once they have a secret.

    daemon ── execute ──► program, hidden ── new control socket ──► daemon     (start.py, in the daemon)
                             └── fork ──► child: imports, does the work        (process.py, in the program)

Used for ingress, which receives what a person types into the page; for logins, which get secrets; and for the MCP
server, which sees the messages to agents. Source: docs/adr/0031-ingress.md.
"""
