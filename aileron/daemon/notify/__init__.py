"""Notices that a question waits, where the person is: notifier.py chooses, desktop.py and webhook.py send; text in notices.py."""
