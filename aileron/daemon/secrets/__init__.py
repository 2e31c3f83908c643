"""The vault while the daemon runs, and the services that use it.

secret_store.py secrets by name · vault.py opens, locks and backs up the vault, and compares it with the record · credentials.py
bindings · signins.py sign-ins at a provider · lending.py lends one secret for one request · build_secrets.py builds all services
"""
