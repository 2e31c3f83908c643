"""Frozen values everyone shares. No I/O; imports nothing of ours.

invocation.py what a caller asks · plan.py the same, resolved, and ApprovedPlan · outcome.py what comes back and the status
words · failure.py the closed list of failures · manifest.py actions and connectors as values · names.py the grammars ·
secret.py bytes that must not be seen · canonical.py digests
"""
