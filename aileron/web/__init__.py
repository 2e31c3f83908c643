"""The page: a person's browser is shown what waits, and decides it, on the loopback port.

app.py            the rooms below as one page                      sessions.py    who unlocked, from which process, until when
admission.py      who unlocks it, who is let in                    forms.py       what a browser sends, read strictly
questions.py      what is shown of questions                       views.py       rows of lists, of the record
decision_forms.py what is decided, in two steps                    templating.py  templates, style, script, fields of an answer
passkey_pages.py  those that may decide: one more, one less        workers.py     what other programs left in the browser
refusals.py       the pages that say no                            daemon_port.py what may be asked of the daemon

A front door in the daemon: it translates and shows. The templates are jinja2's, which is imported with the first page.
"""
