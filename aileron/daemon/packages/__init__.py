"""Connectors and actions, from publication to installation.

actions.py and connectors.py show and change installed packages · fetch.py fetch jobs · updates.py finds newer, unused or
damaged versions · keyring.py publishers' keys · hub.py search of the Hub · forge_web.py requests to forges, through egress ·
build_packages.py builds all services
"""
