"""Secrets at rest, the bindings that use them, and loans of a secret. Runs in the daemon only, and has no access to a network
or a jail.

envelope.py the ciphers · contents.py the file's contents · bindings.py which secret serves which connector · consents.py the
approver and their consents · opened.py verified contents and their key · file.py the file itself · vault.py the complete vault
as one object · slots.py, recovery.py the ways to open it · lend.py one secret for one request · unchanged.py the check that a
binding is the one that a plan was made with · sendable.py the secrets that could have been sent to a host · secret_form.py
checks of a value · copies.py backups · references.py secrets whose value is stored outside the vault

The library `cryptography` (20 ms) is imported when it is first used. The daemon imports the package, commands never do.
"""

from aileron.vault.bindings import Binding
from aileron.vault.contents import SecretInfo
from aileron.vault.lend import Loan, VaultLender
from aileron.vault.vault import Vault

__all__ = ["Binding", "Loan", "SecretInfo", "Vault", "VaultLender"]
