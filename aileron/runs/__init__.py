"""Runs: one invocation from request to recorded outcome.

spine.py the road, which request.py, resume.py and preview.py take, each to carry_out.py · runnable.py what may run as things are
now · journal.py, progress.py what a run says meanwhile · states.py the table of legal transitions (pure)
"""
