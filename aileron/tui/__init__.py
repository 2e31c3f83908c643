"""The console: what waits for a person, and what they decide, on a terminal that may stay open all day.

daemon_client.py what it asks of the daemon · waiting.py what waits, in an order that does not move · guard.py when a key may
decide · key_session.py the approver's key while it is open, timed_key.py for how long · sending.py from the second step to what
the daemon says · rendering.py cards and records as rows · story.py, story_rows.py what happened, run by run · terminal_signals.py
the terminal's title and notifications · readable.py the least contrast · app.py the console, of frame.py, queue.py, view.py,
activity.py and screens.py · plain.py the same in lines

Runs in a process of its own that nobody of the same user can look into (approver/isolation.py). Textual is imported by app.py and
what it is made of, and by nothing else of Aileron.
"""
