"""Decisions about plans: who must be asked, whose decision counts, and the only maker of an ApprovedPlan.

rules.py  who must be asked (pure)          gate.py  Plan → ApprovedPlan, or a question, or a refusal
signed.py  checks of a signed decision      grants.py  what a standing grant covers (pure)
preview.py  a preview as text (pure)        difference.py  a call beside an earlier approved one (pure)
passkey_rules.py  a new passkey (pure)      tool_change.py  a report that a server changed a tool (pure)
"""
