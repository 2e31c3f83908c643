"""Connectors and actions, from publication to installation.

actions.py and connectors.py show and change what is installed · fetch.py fetch jobs · updates.py finds newer, unused
or damaged versions · keyring.py publishers' keys · hub.py · forge_web.py requests to forges, through egress · build.py builds all
"""
