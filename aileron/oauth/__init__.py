"""Signs in at a provider and renews the tokens with OAuth 2. Runs in the daemon, and in one command for authors (importing/).

The person signs in on the provider's own page, in a browser on this machine, or with a code that they type into a browser
elsewhere. The tokens are stored in the vault and nowhere else. Requests to a provider are sent through egress, as all requests
are. The responses stay in the daemon, and no connector gets a response.

request.py the page that a browser is sent to · redirect.py checks the answer · callback.py the listener · pages.py the pages
that the person sees · answers.py reads a provider's responses · registration.py registers a client · endpoint.py requests to
providers · signin.py one sign-in · renew.py renewals · revoke.py revocation of tokens · problems.py every error and its
sentence

Source: docs/explanation/oauth.md, docs/adr/0023-oauth.md. Not here: storing tokens (vault/), sending one with a request
(egress/).
"""
