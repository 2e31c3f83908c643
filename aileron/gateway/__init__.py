"""The way to a model's API: a transparent reverse proxy on the daemon's port. It starts no programs.

It reads a request's body only for a session that began with injected tools (inject/).
"""
