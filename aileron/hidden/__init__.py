"""Processes of the daemon's that no other process of the same user can look into, from their first secret on.

    daemon ── execute ──► program, hidden ── new control socket ──► daemon     (start.py, in the daemon)
                             └── fork ──► child: imports, does the work        (process.py, in the program)

Used for ingress, which receives what a person types into the page, for logins, which get secrets, and for the protocol, which
sees what agents are told. Source: docs/adr/0031-ingress.md.
"""
