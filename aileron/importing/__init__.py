"""Generator of a connector's repository from a document in which a service describes its API, or from the tools of an MCP server.

Data flows down this list, once for each import:

fetching.py, deadline.py the document as bytes · reading.py the document as plain values · references.py `$ref` · swagger.py
Swagger 2.0 converted to OpenAPI 3.0 · found.py the operations · choosing.py which of them · servers.py, security.py,
key_forms.py their hosts and credentials · effects.py their effects, guessed ·
schemas.py schemas in the keywords that a connector checks · rules.py schemas in the keywords that an action has, never
wider, shrinking.py smaller · inputs.py, media.py, examples.py arguments and bodies · listing.py the list in a response ·
words.py prose · operations.py one complete operation, or why it is not possible · actions.py,
manifest.py, cases.py, toml.py the generated files · repository.py all files together · record.py, updating.py,
action_merging.py a repeated import · mcp_*.py an MCP server's tools instead of a document · challenges.py, authorization.py
where to sign in at an MCP server

Runs in `aileron connector import`, on the author's machine: without daemon or vault; of the home, only the settings are
read. A token for a server's list of tools is in memory until the list is complete. The document is untrusted: its size is
bounded, nothing in it runs, and nothing is read or fetched except the named sources and, for a sign-in, the metadata of the
server and of its authorization server. Reasons for this design: docs/adr/0054-openapi-documents.md,
docs/adr/0055-mcp-servers.md.
"""
