"""Runs: one invocation from request to recorded outcome.

perform.py the spine · states.py the table of legal transitions (pure)
"""
