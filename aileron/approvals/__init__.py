"""Decisions about plans: who must be asked, and the only maker of an ApprovedPlan.

rules.py  who must be asked (pure)          gate.py  Plan → ApprovedPlan, or a question, or a refusal
"""
