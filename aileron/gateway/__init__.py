"""The way to a model's API: a transparent reverse proxy on the daemon's port. It reads no body and runs nothing."""
