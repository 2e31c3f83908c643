"""Where a version's bytes live: one module for each scheme of names, and nothing else knows a forge's addresses.

forge.py what each can be asked, and how an answer is read · github.py · gitlab.py · hub.py

Source: docs/reference/forges.md.
"""
