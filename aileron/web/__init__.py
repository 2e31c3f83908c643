"""The web page, on the loopback port: it shows open questions in a person's browser and accepts their decisions.

app.py            the modules below as one set of routes           sessions.py    unlocked browsers: process, key, end
admission.py      unlocking, and the admission of requests         forms.py       input from a browser, read strictly
questions.py      the pages that show questions                    views.py       rows of lists and of the record
decision_forms.py decisions, in two steps                          templating.py  templates, style, script, response headers
passkey_pages.py  passkeys: list, add, revoke                      workers.py     service workers left by other programs
refusals.py       the pages that refuse                            daemon_port.py requests of the page to the daemon
several_pages.py  similar requests, decided on one page

A user interface in the daemon: it shows what other parts of the daemon decide. The templates are jinja2's, which is
imported when the first page is requested.
"""
