"""A connector that returns its argument."""

from aileron_connector import op, run


@op
def give_back(text: str) -> dict[str, str]:
    """Return the text."""
    return {"text": text}


run()
