"""The kinds of credential in egress: one module for each family, one `Kind` for each kind.

`lent` has the vault's loan, and the errors if a loan cannot be sent; `kind` has the properties of a kind. The families:
`key` (an API key in its place), `authorization` (passwords and tokens in the `Authorization` field), `signatures`
(secrets that are not sent themselves), `certificate`, `login`.

Not here: the table of all kinds, and its callers (egress/inject.py).
"""
