"""Fetches secrets that are stored in other programs or servers: in pass(1), in HashiCorp Vault or OpenBao, in 1Password.

fetch.py turns a reference into its value · programs.py runs a program within bounds · password_store.py pass(1) ·
one_password.py `op` · key_value.py a server's key-value store · tokens.py the token that authenticates to a store · problems.py
the failures, each with its fix

Runs in the daemon. Not here: the time of fetching, and checking that a value is the approved one
(daemon/secrets/kept_in_stores.py, vault/references.py).
"""
