"""Runs: one invocation from the request to the recorded outcome.

spine.py the only path, whose parts request.py, resume.py and preview.py all end in carry_out.py · parts.py the objects that they
share · runnable.py checks whether a plan can run now · journal.py, progress.py records and progress of a run · states.py the
table of legal transitions (pure)
"""
