"""The fixture tools of the conformance suite that an action can honestly be, named as the suite names them."""

from aileron_connector import ExternalApiError, hosts, http, log, op, progress, run


@op
def test_simple_text():
    """Words."""
    return "This is a simple text response for testing."


@op
def test_error_handling():
    """Always fails."""
    raise ExternalApiError("This tool intentionally returns an error for testing", status=500)


@op
def test_tool_with_progress():
    """Says three times how far it is."""
    for done in (0, 50, 100):
        progress(done, total=100)
    return "done"


@op
def test_tool_with_logging():
    """Writes three lines of a log; `test_logging_tool` is this, too."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        log.info(line)
    return "done"


@op
def give_back(text: str, number: int, flag: bool, share: float = 0.0):
    """What came in."""
    return {"text": text, "number": number, "flag": flag, "share": share}


@op
def greet(name: str):
    """A word to somebody."""
    return f"Hello, {name}!"


@op
def test_trigger_tool_change():
    """Asks its one host to change something; there, an action is switched off or on."""
    with http.request("POST", hosts()[0].url + "/change") as response:
        return response.raise_for_status().status


if __name__ == "__main__":
    run()
