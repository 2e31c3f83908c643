"""Secrets at rest, and who may borrow one. In the daemon only; nothing here reaches a network or a jail.

envelope.py the ciphers · contents.py what the file says · bindings.py which secret for which connector · consents.py who decides,
and what they agreed to · opened.py verified contents and their key · file.py where it lies · vault.py all of it as one object ·
lend.py one secret for one request · references.py secrets whose value is elsewhere

Importing this loads `cryptography` (20 ms): the daemon does, a command line never.
"""

from aileron.vault.bindings import Binding
from aileron.vault.contents import SecretInfo
from aileron.vault.lend import Loan, VaultLender
from aileron.vault.vault import Vault

__all__ = ["Binding", "Loan", "SecretInfo", "Vault", "VaultLender"]
