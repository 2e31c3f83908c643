"""What egress does with each kind of credential: one module for each family, one `Kind` for each kind.

`lent` is what the vault lends, and what is said where it cannot be sent; `kind` what there is to say of a kind. The families:
`key` (an API key in its place), `authorization` (passwords and tokens in the field of that name), `signatures` (what is not sent
itself), `certificate`, `login`.

Not here: the table of all kinds, and what asks it (egress/inject.py).
"""
