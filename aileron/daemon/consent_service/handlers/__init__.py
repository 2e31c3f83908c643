"""Handlers of consents: one for each kind of consent, which knows everything about that kind.

handler.py the form of all handlers · every_kind.py the handler for a subject · action_file_consent.py · connector_consent.py ·
binding_consent.py · installation_consent.py these three together · secret_consent.py · grant_consent.py ·
trusted_key_consent.py · settings_consent.py · passkey_consent.py · tool_change_consent.py · host_consent.py
"""
