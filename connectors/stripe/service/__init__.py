"""The packed OpenAPI document, document.json: the request and the response of each operation.

Source: docs/reference/packed-openapi.md of Aileron.
"""
