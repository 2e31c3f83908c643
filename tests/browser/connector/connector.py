"""A connector for tests with an account at a provider: who am I, send one message."""

from aileron_connector import hosts, http, op, run


@op
def whoami():
    """Whose token it was, as the service says."""
    with http.request("GET", hosts()[0].url + "/me", credential="oauth2") as response:
        return response.raise_for_status().json()


@op
def send(text: str):
    """One message."""
    with http.request("POST", hosts()[0].url + "/send", body=text.encode(), credential="oauth2") as response:
        return response.raise_for_status().json()


@op
def reflect():
    """Everything the service says to a request: its answer has what it was sent."""
    with http.request("GET", hosts()[0].url + "/reflect", credential="oauth2") as response:
        return {"status": response.status, "body": response.text(), "headers": dict(response.headers)}


if __name__ == "__main__":
    run()
