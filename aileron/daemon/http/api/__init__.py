"""The HTTP API: translate requests, call the services, return responses. There is one application per socket, which determines
the scope of its callers.

routes.py the guard in front of all routes, and the handler of each (aileron/api/routes.py lists them) · requests.py a request's
caller, body and query ·
actions.py, approvals.py, approver.py, grants.py, connectors.py, publishers.py, bindings.py, vault.py, sessions.py, daemon.py the
handlers, by resource
"""
