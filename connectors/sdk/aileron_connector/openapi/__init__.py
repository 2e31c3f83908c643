"""One-line connectors for a service with an OpenAPI document, which is packed together with the program.

service.py `run`, and calls of the operations · document.py the packed document as types · request.py a call's HTTP request ·
styles.py writing values into requests · media.py kinds of bodies · answer.py the output from an answer · lists.py members and
fields · links.py the next page · saying.py the words of a service's refusal

    from aileron_connector import openapi

    if __name__ == "__main__":
        openapi.run("service")          # the folder with `__init__.py` and `document.json`

`declare` registers the operations without serving, for tests with `aileron_connector.testing.call`. Reference:
docs/reference/packed-openapi.md. Runs in the jail. It costs nothing in a connector that does not import it.
"""

from aileron_connector.openapi.service import declare, run

__all__ = ["declare", "run"]
