"""The document: what each operation sends and what comes back. docs/reference/packed-openapi.md of Aileron."""
