"""Signatures of requests: made in the daemon, after every check, over the request as it goes on the wire."""
