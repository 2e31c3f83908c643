"""Action files, which say what an agent can request, their directory, and the step from an invocation to an exact plan.

manifest.py parses one file · store.py the directory of action files · resolve.py Invocation + file → Plan
(pure)

Runs in the daemon, and manifest.py also in commands that check a file. Trusts neither the files (written by
unknown authors, edited by anyone with a shell) nor the invocation.
"""
