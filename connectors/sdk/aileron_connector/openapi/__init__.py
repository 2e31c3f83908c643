"""Connectors of one line for a service with an OpenAPI document, which lies beside the program.

service.py `run`, and calls of the operations · document.py the packed document as types · request.py the request of a call ·
styles.py how values are written · media.py kinds of bodies · answer.py the output of an answer · lists.py members and fields ·
links.py the next page · saying.py what a service says when it refuses

    from aileron_connector import openapi

    if __name__ == "__main__":
        openapi.run("service")          # the folder with `__init__.py` and `document.json`

`declare` makes the operations known without serving, for tests with `aileron_connector.testing.call`. Reference:
docs/reference/packed-openapi.md. Runs in the jail. A connector that does not import this does not pay for it.
"""

from aileron_connector.openapi.service import declare, run

__all__ = ["declare", "run"]
