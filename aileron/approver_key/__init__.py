"""The approver's private key: stored in a file, open in one process at a terminal, and gone with that process.

keyfile.py the key in its file, and its signatures · isolation.py the process in which the key is open, and the question for its
passphrase · box.py contents that only one unlocked approver can read · security_key.py a security key that signs instead ·
hidraw.py the security keys that are plugged in · ctap_channel.py packets to a security key · signing.py statements that are
signed · terminal.py who else could type at a terminal

Runs in commands; in the daemon only for a page that a person unlocked (daemon/http/page.py): otherwise it holds the public half
only, in the vault's sealed contents. keyfile and box load `cryptography` only when they use a key.
"""
