"""The console: open questions and a person's decisions, on a terminal that may stay open all day.

daemon_client.py requests to the daemon · waiting.py open questions, in an order that does not move · guard.py when a key may
decide · key_session.py the approver's key while it is open, timed_key.py for how long · sending.py from the second step to the
daemon's answer · rendering.py cards and records as rows · story.py, story_rows.py what happened, run by run ·
terminal_signals.py the terminal's title and notifications · readable.py the least contrast · news.py waits for changes · app.py
the console, of console_base.py, frame.py, queue.py, reading.py, view.py, decisions.py, together.py, telling.py, activity.py and
screens.py

Runs in a process of its own that no other process of the user can inspect (approver_key/isolation.py). Textual is imported by
app.py and its parts, and by nothing else of Aileron.
"""
