"""The HTTP API: translate, ask, show. One app per socket; the scope of a caller is the socket's, never its own word.

routes.py every route, who may ask it, and the guard before all of them · requests.py who asks, and what a request says ·
actions.py, approvals.py, approver.py, grants.py, connectors.py, publishers.py, bindings.py, vault.py, sessions.py, daemon.py the
answers, by resource
"""
