"""Notifies a person, where the person is, that a question waits: notifier.py chooses the channels, desktop.py and webhook.py
send; text in notices.py.
"""
