"""The approver's private key: encrypted in a file, and open in memory only while one process at a terminal runs.

keyfile.py the key in its file, and its signatures · isolation.py the process in which the key is open, and the
passphrase prompt · box.py encryption for one unlocked approver · security_key.py a security key that signs instead ·
hidraw.py the security keys that are plugged in · ctap_channel.py packets to a security key · signing.py statements that
are signed · terminal.py other programs that could type at a terminal

Runs in commands, and in the daemon only for a page that a person unlocked (daemon/http/page.py). Otherwise the daemon has only
the public half, in the vault's sealed contents. keyfile and box load `cryptography` only when they use a key.
"""
