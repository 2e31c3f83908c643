"""Questions that wait for a person, and the changes that the person approved.

approver.py the approver's state · enrollment.py naming the approver · service.py checks and follows decisions · consents.py
changes that wait for a decision · consent_checks.py compares files with consents · settings.py the settings in force ·
passkeys.py · previews.py the current state, for the approver · approval_queue.py shows and withdraws questions ·
standing_grants.py · after_unlock.py work that waited for the vault · expiry.py questions and undo windows end in time ·
build_consents.py builds all
"""
