"""The approver's private key: at rest, open in one process at a terminal, and gone with it.

keyfile.py the key in its file, and signing · isolation.py the process in which it is open, and how its passphrase is asked for ·
box.py what the daemon shows to one unlocked approver and to nobody else · security_key.py a security key that signs in its
place · hidraw.py which are plugged in · ctap_channel.py packets to one · signing.py what is signed

Runs in commands; in the daemon only for a page that a person unlocked (daemon/http/page.py): otherwise it holds the public half
only, in the vault's sealed contents. Importing keyfile or box loads `cryptography`; presence does not.
"""
