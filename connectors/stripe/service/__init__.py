"""The packed OpenAPI document: the request and the response of each operation. See docs/reference/packed-openapi.md of
Aileron.
"""
