"""The service's packed OpenAPI document, document.json, which describes each operation's request and response. See
docs/reference/packed-openapi.md of Aileron.
"""
