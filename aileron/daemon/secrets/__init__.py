"""The vault while the daemon runs, and what is made of it.

secret_store.py secrets by name · vault.py opened, locked, backed up, held against the record · credentials.py bindings ·
signins.py a person at a provider · lending.py one secret for one request · build.py all of it, once
"""
