"""The page: a person's browser is shown what waits, and decides it, on the loopback port.

app.py     routes: who may see, what is decided, where to go on       sessions.py  who unlocked, from which process, until when
forms.py   what a browser sends, read strictly                        shown.py     rows of lists, of the record, of what was said
looks.py   templates, style and script, and the fields of an answer   desk.py      what may be asked of the daemon

A front door in the daemon: it translates and shows. The templates are jinja2's, which is imported with the first page.
"""
