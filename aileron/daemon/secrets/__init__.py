"""The vault while the daemon runs, and the services that use it.

secret_store.py secrets by name · vault.py opens, locks and backs up the vault, and compares it with the record · credentials.py
bindings · signins.py sign-ins at a provider · lending.py lends one secret for one request · kept_in_stores.py secrets that are
stored outside the vault · logins.py starts the login processes early · build_secrets.py builds all services
"""
