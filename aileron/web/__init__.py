"""The page: shows open questions in a person's browser, and accepts their decisions, on the loopback port.

app.py            the rooms below as one page                      sessions.py    unlocked browsers: process, key, end
admission.py      unlocking, and the admission of requests         forms.py       input from a browser, read strictly
questions.py      the pages that show questions                    views.py       rows of lists and of the record
decision_forms.py decisions, in two steps                          templating.py  templates, style, script, response headers
passkey_pages.py  passkeys: list, add, revoke                      workers.py     service workers left by other programs
refusals.py       the pages that refuse                            daemon_port.py requests of the page to the daemon
several_pages.py  similar requests, decided on one page

A front door in the daemon: it translates and shows. The templates are jinja2's, which is imported with the first page.
"""
