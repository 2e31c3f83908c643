"""Action files, which declare what an agent can request; their directory; and the resolver, which turns an invocation into an
exact plan.

manifest.py parses one file · inputs.py the rules for arguments · store.py the directory of action files · resolve.py Invocation
+ file → Plan (pure) · choosing.py the credential of a run · widening.py the changes that need a consent · approved_texts.py the
texts that a person consented to · merging.py a new version with the user's edits · summary.py the sentence that a person reads

Runs in the daemon; manifest.py, fitting.py, summary.py and other pure modules also in commands that check, show or import an
action. Trusts neither the files (written by unknown authors, edited by anyone with a shell) nor the invocation.
"""
