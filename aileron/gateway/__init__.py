"""The way to a model's API: a transparent reverse proxy on the daemon's TCP ports and for cells. It starts no programs.

proxy.py one request · upstreams.py where it goes, and which fields pass (pure) · sides.py the agent and the API · dial.py
connections to the API, which do not go through egress

If the vault has the key of an API, the key replaces the session's token. A body is read only for a session that began with
injected tools (inject/).
"""
