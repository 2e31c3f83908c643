"""Questions that wait for a person, and the changes that the person approved.

approver.py the approver's state · enrollment.py naming the approver · service.py checks and follows decisions · consents.py
changes that wait for a decision · handlers/ one handler for each kind of consent · consent_store.py consents in the vault ·
held_values.py secrets that wait for a decision · consent_checks.py compares files with consents · settings.py the settings in
force · passkeys.py · previews.py the current state, for the approver · approval_queue.py shows and withdraws questions ·
standing_grants.py · host_questions.py, allowed_hosts.py hosts that agents in cells connect to · tool_changes.py,
suspended_tools.py tools that their server changed · approved_settings.py the copy of the settings that a person approved ·
after_unlock.py work that waited for the vault · expiry.py questions end in time · build_consents.py builds all
"""
