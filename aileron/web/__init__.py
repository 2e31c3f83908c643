"""The page on which a person decides in a browser: a desk of the daemon's, told in HTML.

app.py        the rooms below as one page, and their routes
door.py       who unlocks it, who is let in, who is not             sessions.py  who unlocked, from which process, until when
questions.py  what is shown of questions, and of what is over       deciding.py  what is decided, in two steps
passkeys.py   those that may decide: one more, one less             refusals.py  the pages that say no
forms.py      what a browser sends, checked                         shown.py     rows of the page that are not a question's own
desk.py       what the daemon does for the page, as Protocols       looks.py     the frame, the style, the script, the fields of an answer
"""
