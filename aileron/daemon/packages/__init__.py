"""Connectors and actions, from where they are published to where they run.

actions.py and connectors.py what is installed, shown and changed · fetch.py jobs that fetch · updates.py what is newer, unused
or damaged · keyring.py publishers' keys · hub.py · forge_web.py requests to forges, through egress · build.py all of it, once
"""
