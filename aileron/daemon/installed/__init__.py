"""What is installed: where it is put, whether it is what it says, and where it can go.

install.py all or nothing · verify.py whose bytes they are · access_summary.py where a binding or an action can go
"""
