"""Fetches secrets that live elsewhere: in pass(1), in HashiCorp Vault or OpenBao, in 1Password.

fetch.py a reference → its value · programs.py another program, run with bounds · password_store.py pass(1) ·
one_password.py `op` · key_value.py a server's key-value store · tokens.py what opens a store ·
problems.py what can go wrong, each with its cure

Runs in the daemon. Not here: when a value is fetched, and whether it is the one that was approved (daemon/secrets/elsewhere.py,
vault/references.py).
"""
