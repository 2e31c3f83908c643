"""The audit: what happened, written before it is acted on, chained, and checkable without us.

events.py the closed set of records (pure) · log.py the verbs that write them, with the states they change · frozen.py a
plan at rest (pure) · query.py reading · verify.py a ledger file, checked alone
"""
