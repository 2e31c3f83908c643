"""Frozen values that all rooms (packages) share. The modules do no I/O and import nothing else from Aileron.

invocation.py a caller's request · plan.py the request, resolved, and ApprovedPlan · outcome.py the result and the status words
· failure.py the closed list of failure classes · manifest.py actions and connectors as values · names.py names and their
grammars · secret.py bytes that are never printed · canonical.py digests
"""
