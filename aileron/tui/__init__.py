"""The console: open questions and a person's decisions, on a terminal that may stay open all day.

daemon_client.py requests to the daemon · waiting.py the open questions, in an order that does not change · guard.py
when a key press may decide · key_session.py the approver's key while it is open, timed_key.py how long it stays open ·
sending.py signs and sends a decision · rendering.py cards and records as rows · story.py, story_rows.py what happened,
run by run · terminal_signals.py the terminal's title and notifications · readable.py minimum contrast · news.py waits
for changes · app.py the console, built from console_base.py, frame.py, queue.py, reading.py, view.py, decisions.py,
together.py, telling.py, activity.py and screens.py

Runs in a process of its own that no other process of the user can inspect (approver_key/isolation.py). Textual is imported by
app.py and its parts, and by nothing else of Aileron.
"""
