"""Mail by smtplib, imaplib and poplib, unmodified. None of them has a password."""

import imaplib
import poplib
import smtplib
import time
from email.message import EmailMessage

from aileron_connector import hosts, op, run


def _at(protocol):
    return next((host.host, host.port) for host in hosts() if host.login == protocol)


@op
def send(subject: str, to: str, start: bool = False):
    """Send a message by SMTP_SSL, or by SMTP and starttls."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "mira@example.com", to, subject
    message.set_content("hello")
    with (smtplib.SMTP if start else smtplib.SMTP_SSL)(*_at("smtp"), timeout=10) as client:
        if start:
            client.starttls()
        client.login("any", "any")
        return client.send_message(message)


@op
def read_imap(start: bool = False, until: str = ""):
    """Return all messages by IMAP; keep them in memory until a message arrives with the subject `until`."""
    client = (imaplib.IMAP4 if start else imaplib.IMAP4_SSL)(*_at("imap"), timeout=10)
    if start:
        client.starttls()
    client.login("any", "any")
    client.select()
    numbers = client.search(None, "ALL")[1][0].split()
    found = [client.fetch(number.decode(), "(RFC822)")[1][0][1].decode() for number in numbers]
    while until and client.search(None, "SUBJECT", until)[1] in ([b""], [None]):
        time.sleep(0.05)
        client.noop()
    client.logout()
    return found


@op
def read_pop3(start: bool = False):
    """Return all messages by POP3."""
    client = (poplib.POP3 if start else poplib.POP3_SSL)(*_at("pop3"), timeout=10)
    if start:
        client.stls()
    client.user("any")
    client.pass_("any")
    found = [b"\n".join(client.retr(number + 1)[1]).decode() for number in range(client.stat()[0])]
    client.quit()
    return found


if __name__ == "__main__":
    run()
