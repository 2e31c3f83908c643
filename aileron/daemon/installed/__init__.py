"""Installs connectors and actions, verifies them, and tells which hosts they can reach.

install.py all or nothing · verify.py checks the bytes · access_summary.py the hosts of a binding or an action
"""
