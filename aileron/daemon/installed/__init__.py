"""Installs connectors and actions, verifies them, and determines which hosts they can reach.

install.py installs everything or nothing · verify.py checks the bytes · access_summary.py the hosts of a binding or an action
"""
