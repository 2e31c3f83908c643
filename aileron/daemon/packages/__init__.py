"""Connectors and actions, from where they are published to where they run.

actions.py and connectors.py what is installed, shown and changed · fetch.py jobs that fetch · verify.py whose bytes they are ·
install.py all or nothing · updates.py what is newer, unused or damaged · keyring.py publishers' keys · hub.py · forge_web.py
requests to forges, through egress
"""
