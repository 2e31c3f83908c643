"""The daemon's HTTP API as types, by resource. The daemon makes the values, and its clients read them.
`/openapi.json` is generated from the types.

failures.py why a request failed · runs.py start a run and follow it · approvals.py questions and decisions · grants.py runs
without approval · actions.py connectors.py bindings.py secrets.py publishers.py fetches.py what is installed, stored and
published · body.py the base of request bodies ·
sessions.py agents at work · approver.py who decides · audit.py the audit trail · daemon.py the daemon itself ·
routes.py every route · openapi.py the OpenAPI document

Rules
- A request body refuses unknown keys: `Body`. A response body does not, so that a client can be older than its
  daemon.
- A field that may be absent is UNSET, and is left out of the JSON. A field that is None is `null`.
- Text that may be hostile stays as it came: each surface makes hidden characters visible itself.

Source: docs/reference/http-api.md. Not here: the code that serves the routes (daemon/http/api/routes.py).
"""
