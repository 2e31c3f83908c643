"""Forges, from which the bytes of a version are fetched: one module for each scheme of names, alone to know its addresses.

forge.py the requests to each, and how an answer is read · github.py · gitlab.py · hub.py

Source: docs/reference/forges.md.
"""
