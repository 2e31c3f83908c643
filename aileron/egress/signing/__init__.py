"""Credentials that are not sent themselves: what is made of one for a single request."""
