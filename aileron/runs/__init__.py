"""Runs: one invocation from the request to the recorded outcome.

spine.py the only path, whose parts request.py, resume.py and preview.py all end in carry_out.py · runnable.py what can
run now · journal.py, progress.py what a run reports meanwhile · states.py the table of legal transitions (pure)
"""
