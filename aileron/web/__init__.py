"""The page: shows open questions in a person's browser, and takes their decisions, on the loopback port.

app.py            the rooms below as one page                      sessions.py    unlocked browsers: process, key, end
admission.py      unlocking, and who is let in                     forms.py       what a browser sends, read strictly
questions.py      the pages that show questions                    views.py       rows of lists and of the record
decision_forms.py decisions, in two steps                          templating.py  templates, style, script, response headers
passkey_pages.py  passkeys: list, add, revoke                      workers.py     what other programs left in the browser
refusals.py       the pages that refuse                            daemon_port.py what the page can ask of the daemon

A front door in the daemon: it translates and shows. The templates are jinja2's, which is imported with the first page.
"""
