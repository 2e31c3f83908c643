"""That a question waits, told where the person is: notifier.py chooses, desktop.py and webhook.py send, notices.py says what."""
