"""The supervisor of one user: builds everything once, serves the HTTP API on two sockets and the loopback port.

http/       who asks and what they are told: listeners, sessions, the routes, the page, agents over MCP
decisions/  what waits for a person, and what they agreed to: consents, previews, passkeys, the approver
packages/   connectors and actions: fetched, verified, installed, updated; publishers' keys; the Hub
secrets/    the vault while the daemon runs: credentials, sign-ins, lending
notify/     that a question waits: on the desktop, by a webhook

supervise.py   builds everything, once          __main__.py  what `client.start` executes
rendezvous.py  lock, sockets, daemon.json       runner.py    runs that outlive their callers
"""
