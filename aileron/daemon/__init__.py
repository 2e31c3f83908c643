"""The supervisor of one user. It builds all services once, and serves the HTTP API on three sockets, the loopback port and
`daemon.listen`, MCP on a fourth socket, and cells' CONNECT on a fifth.

http/       the callers and their responses: listeners, sessions, the routes, the page, agents over MCP
consent_service/  questions that wait for a person, and what the person approved: consents, previews, passkeys
installed/  connectors and actions put in place and checked; which hosts they can reach
packages/   connectors and actions: fetched, shown, changed, updated; publishers' keys; the Hub
secrets/    the vault while the daemon runs: credentials, sign-ins, lending
notify/     notices that a question waits: on the desktop, by a webhook

__main__.py    the program of `client.start`          begin.py         lock, log, the template's process: the first steps
supervise.py   starts the process until it is ready  runtime.py       what Python connectors find in a jail
rooms.py       builds every room once, when needed   installation.py  refuses imports of another installed version
rendezvous.py  lock, sockets, daemon.json            runner.py        runs that continue without their callers
foundation.py  what every room needs                 views.py         how every room displays values

The six packages above are the daemon's rooms. A room of several services has a module build_*.py. A room imports only rooms
that precede it in this order: `installed`, `consent_service`, `secrets`, `packages`, `http`. `notify` imports none.
"""
