"""What waits for a person, and what they agreed to.

approver.py who decides · enrollment.py how they come to · service.py a decision is checked and followed · consents.py changes
that wait for one · agreements.py what was agreed to · settings.py the settings in force · passkeys.py · previews.py what is
there now, for who signs · approval_queue.py what waits, shown and taken back · standing_grants.py · after_unlock.py what waited
for the vault · expiry.py questions and undo windows end in time · build.py all of it, once
"""
