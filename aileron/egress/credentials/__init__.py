"""The kinds of credential in egress: one module for each family, one `Kind` for each kind.

`lent` has what the vault lends, and the errors if it cannot be sent; `kind` has the properties of a kind. The families:
`key` (an API key in its place), `authorization` (passwords and tokens in the field of that name), `signatures` (secrets
that are not sent themselves), `certificate`, `login`.

Not here: the table of all kinds, and its callers (egress/inject.py).
"""
