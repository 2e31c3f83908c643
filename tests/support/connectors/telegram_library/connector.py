"""python-telegram-bot on its own, unmodified; it believes that it has a token."""

import asyncio

from aileron_connector import ExternalApiError, op, run, transports


def bot():
    """Return the library's client, with its own address of Telegram."""
    from telegram import Bot

    return Bot(transports.placeholder("api_key"))


@op
def say(chat: int, text: str):
    """Send a message. Return its id and the sender."""

    async def send():
        async with bot() as client:
            sent = await client.send_message(chat, text)
            return {"message_id": sent.message_id, "username": client.username}

    return _done(send())


@op
def hear():
    """Return the texts of all updates."""

    async def read():
        async with bot() as client:
            return [update.message.text for update in await client.get_updates(timeout=0)]

    return _done(read())


def _done(asked):
    from telegram.error import TelegramError

    try:
        return asyncio.run(asked)
    except TelegramError as error:
        raise ExternalApiError(f"{type(error).__name__}: {error}", status=400) from error


if __name__ == "__main__":
    run()
