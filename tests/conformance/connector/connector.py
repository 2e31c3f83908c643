"""The fixture tools of the conformance suite that an action can honestly be, named as the suite names them."""

from aileron_connector import ExternalApiError, hosts, http, log, op, progress, run


@op
def test_simple_text():
    """Return a text."""
    return "This is a simple text response for testing."


@op
def test_error_handling():
    """Fail, always."""
    raise ExternalApiError("This tool intentionally returns an error for testing", status=500)


@op
def test_tool_with_progress():
    """Report progress three times."""
    for done in (0, 50, 100):
        progress(done, total=100)
    return "done"


@op
def test_tool_with_logging():
    """Write three log lines; the tool `test_logging_tool` is this operation, too."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        log.info(line)
    return "done"


@op
def give_back(text: str, number: int, flag: bool, share: float = 0.0):
    """Return the arguments."""
    return {"text": text, "number": number, "flag": flag, "share": share}


@op
def greet(name: str):
    """Return a greeting."""
    return f"Hello, {name}!"


@op
def test_trigger_tool_change():
    """Ask the one granted host to change something; the test's server then switches an action off or on."""
    with http.request("POST", hosts()[0].url + "/change") as response:
        return response.raise_for_status().status


if __name__ == "__main__":
    run()
