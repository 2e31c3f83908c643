"""Gives back what it was given."""

from aileron_connector import op, run


@op
def give_back(text: str) -> dict[str, str]:
    """What came in."""
    return {"text": text}


run()
