"""Stripe connector: the operations of its OpenAPI document, which is service/document.json."""

from aileron_connector import openapi

if __name__ == "__main__":
    openapi.run("service")
