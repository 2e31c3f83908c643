"""A connector's repository made from the document with which a service describes itself.

Data flows down this list, once for each import:

fetching.py, deadline.py the named document, as bytes · reading.py as plain values · references.py `$ref` · swagger.py Swagger
2.0 in the shape of 3.0 · found.py its operations · servers.py, security.py where they are and what they need ·
schemas.py schemas in the keywords that a connector checks · rules.py the same in the keywords that an action has, never
wider · inputs.py, media.py arguments and bodies · operations.py one operation whole, or why not · actions.py, manifest.py,
cases.py, toml.py its files · repository.py all of them · record.py, updating.py, action_merging.py importing it again ·
mcp_*.py the tools of an MCP server in the place of a document · challenges.py, authorization.py where to sign in for one

Runs in `aileron connector new --from`, on the author's machine: no daemon, no home, no key. The document is a stranger's:
it is bounded, nothing of it runs, and nothing is read or fetched that was not named. Why as it is:
docs/adr/0054-openapi-documents.md.
"""
