"""The audit: records of what happened, written before anything acts on them, chained, and checkable without Aileron.

events.py the closed set of records (pure) · log.py and questions.py the methods that write records and the states they change ·
frozen.py stored subjects of questions (pure) · query.py reading · verify.py checks a ledger file on its own
"""
