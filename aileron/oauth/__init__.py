"""Signing in at a provider, and keeping a grant alive: OAuth 2, in the daemon; and once in the author's command (importing/).

The person signs in on the provider's own page, in a browser here or with a code typed into one elsewhere; the tokens go into
the vault and nowhere else. What is sent to a provider leaves through egress, as everything does, and its answers are captured:
no connector sees one.

request.py what a browser is sent to · redirect.py is this the answer · callback.py the listener · pages.py what the person sees ·
answers.py what a provider said · registration.py a client of our own · endpoint.py the way to it · signin.py one sign-in ·
renew.py renewals · revoke.py tokens taken back · problems.py every error and its sentence

Source: docs/explanation/oauth.md, docs/adr/0023-oauth.md. Not here: keeping tokens (vault/), how one is sent (egress/).
"""
