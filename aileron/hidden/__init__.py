"""Processes of the daemon's that nobody else of the same user can look into, started so that nobody could have before.

    daemon ── execute ──► program, hidden ── new control socket ──► daemon     (start.py, in the daemon)
                             └── fork ──► child: imports, does the work        (process.py, in the program)

For ingress, which hears what is typed into the page, for logins, which are given secrets, and for the protocol, which hears what
agents are told. Source: docs/adr/0031-ingress.md.
"""
