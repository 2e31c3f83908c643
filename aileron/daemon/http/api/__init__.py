"""The HTTP API: translate requests, call the services, return responses. One app per socket, which sets the scope of its callers.

routes.py every route, and the guard before all of them · requests.py a request's caller, body and query ·
actions.py, approvals.py, approver.py, grants.py, connectors.py, publishers.py, bindings.py, vault.py, sessions.py, daemon.py the
handlers, by resource
"""
