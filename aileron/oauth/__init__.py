"""OAuth 2: signs in at a provider, renews the tokens, and gets tokens without a person. Runs in the daemon, and in one command
for authors (importing/).

The person signs in on the provider's own page, in a browser on this machine, or with a code that they type into a browser
elsewhere. The tokens are stored in the vault and nowhere else. Tokens that are obtained without a person, and the token of
an author's sign-in, are in memory only. Requests to a provider are sent through egress. No connector gets a response.

request.py the page that a browser is sent to · redirect.py checks the answer · callback.py the listener · pages.py the pages
that the person sees · answers.py reads a provider's responses · registration.py registers a client · endpoint.py requests to
providers · signin.py one sign-in · renew.py renewals · minting.py tokens without a person, by token_request.py and
assertion.py · jobs.py one request at a time for each binding · revoke.py revocation of tokens · peer.py the user at the other
end · problems.py every error and its sentence

Source: docs/explanation/oauth.md, docs/adr/0023-oauth.md. Not here: storing tokens (vault/), sending one with a request
(egress/).
"""
