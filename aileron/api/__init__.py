"""The daemon's HTTP API as types, by resource: made by the daemon, read by its clients, and the source of `/openapi.json`.

failures.py why not · runs.py one run, asked for and followed · approvals.py what waits for a person, and what they say ·
actions.py connectors.py bindings.py secrets.py publishers.py fetches.py sessions.py what is there · approver.py who decides ·
audit.py what happened · daemon.py what runs

Rules
- A request's body refuses unknown keys: `Body`. An answer does not, so that a client may be older than its daemon.
- What "may be absent" is UNSET, and is left out; what is None is `null`.
- What may be hostile stays as it came: each surface makes hidden characters visible itself.

Source: docs/reference/http-api.md. Not here: the routes (daemon/http/api/routes.py).
"""
