"""Action files, which say what an agent can request; the directory that has them; and how an invocation is made exact.

manifest.py one file's text into values · store.py the directory of them · resolve.py Invocation + file → Plan
(pure)

Runs in the daemon, and manifest.py also in commands that check a file. Trusts neither the files (written by
strangers, edited by anyone with a shell) nor the invocation.
"""
