"""Connector for tests with an account at a provider: it asks who it is, and sends a message."""

from aileron_connector import hosts, http, op, run


@op
def whoami():
    """Return the account of the token, as the service says."""
    with http.request("GET", hosts()[0].url + "/me", credential="oauth2") as response:
        return response.raise_for_status().json()


@op
def send(text: str):
    """Send a message."""
    with http.request("POST", hosts()[0].url + "/send", body=text.encode(), credential="oauth2") as response:
        return response.raise_for_status().json()


@op
def reflect():
    """Return the service's whole response to a request; it repeats what the service was sent."""
    with http.request("GET", hosts()[0].url + "/reflect", credential="oauth2") as response:
        return {"status": response.status, "body": response.text(), "headers": dict(response.headers)}


if __name__ == "__main__":
    run()
