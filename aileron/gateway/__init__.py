"""The gateway to models' APIs: a transparent reverse proxy, on the daemon's TCP ports and for cells. It starts no programs.

proxy.py one request · upstreams.py its destination and its header fields (pure) · sides.py the streams of the agent and of the
API, with their time limits · dial.py connections to the API, which do not go through egress

If the vault has the key of an API, the key replaces the session's token. A body is parsed only for a session that was started
with injected tools (inject/).
"""
