"""Forges, from which the bytes of a version are fetched. Each module serves one scheme of names, and only it knows its addresses.

forge.py the requests to each, and how a response is read · github.py · gitlab.py · hub.py

Source: docs/reference/forges.md.
"""
