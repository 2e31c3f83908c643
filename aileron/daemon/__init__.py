"""The supervisor of one user: builds everything once, serves the HTTP API on two sockets and the loopback port.

http/       who asks and what they are told: listeners, sessions, the routes, the page, agents over MCP
decisions/  what waits for a person, and what they agreed to: consents, previews, passkeys, the approver
installed/  connectors and actions put in their places, checked, and where they can go
packages/   connectors and actions: fetched, shown, changed, updated; publishers' keys; the Hub
secrets/    the vault while the daemon runs: credentials, sign-ins, lending
notify/     that a question waits: on the desktop, by a webhook

__main__.py    what `client.start` executes     begin.py     lock, log, the template's process: what comes first
supervise.py   the process, until it is ready   runtime.py   what Python connectors find in a jail
rooms.py       builds every room, once, later   installation.py  never imports another version than began
rendezvous.py  lock, sockets, daemon.json       runner.py    runs that outlive their callers
foundation.py  what every room stands on        views.py     what is there, as every room tells it

A room of several services has a build.py, and imports only rooms that stand below it, in this order: `installed`, `decisions`,
`secrets`, `packages`, `http`. `notify` imports none.
"""
