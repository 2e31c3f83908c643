"""The console: what waits for a person, and what they decide, on a terminal that may stay open all day.

door.py what it asks of the daemon · waiting.py what waits, in an order that does not move · guard.py when a key may decide ·
holder.py the approver's key while it is open · paint.py a sheet as lines of a terminal · app.py and screens.py the console ·
plain.py the same in lines

Runs in a process of its own that nobody of the same user can look into (approver/presence.py). Textual is imported by app.py and
screens.py alone, so nothing else of Aileron waits for it.
"""
