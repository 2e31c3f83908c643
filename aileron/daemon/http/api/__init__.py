"""The HTTP API: translate requests, call the services, return responses. There is one application per socket, which determines
the scope of its callers.

routes.py every route, and the guard in front of all routes · requests.py a request's caller, body and query ·
actions.py, approvals.py, approver.py, grants.py, connectors.py, publishers.py, bindings.py, vault.py, sessions.py, daemon.py the
handlers, by resource
"""
