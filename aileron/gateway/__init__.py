"""The way to a model's API: a transparent reverse proxy on the daemon's port. It runs nothing.

It reads a body only for a session that began with injected tools (inject/).
"""
