"""Signs in at a provider and keeps the grant alive with OAuth 2, in the daemon; also in one command for authors (importing/).

The person signs in on the provider's own page, in a browser here or with a code typed into one elsewhere; the tokens go into
the vault and nowhere else. Requests to a provider leave through egress, as all requests do, and the responses stay in the
daemon: no connector sees one.

request.py the page that a browser is sent to · redirect.py checks the answer · callback.py the listener · pages.py the pages
that the person sees · answers.py reads a provider's responses · registration.py registers a client · endpoint.py requests to
providers · signin.py one sign-in · renew.py renewals · revoke.py revocation of tokens · problems.py every error and its
sentence

Source: docs/explanation/oauth.md, docs/adr/0023-oauth.md. Not here: storing tokens (vault/), sending one with a request
(egress/).
"""
