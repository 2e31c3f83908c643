"""%%title%%: list things, add one."""

import msgspec

from aileron_connector import BadInput, hosts, http, log, op, run


@op
def list_things(limit: int = 10) -> dict:
    """The latest things, newest first."""
    with http.request("GET", f"{hosts()[0].url}/things?limit={limit}", credential="api_key") as answer:
        return {"things": answer.raise_for_status().json()}


@op
def add_thing(text: str) -> dict:
    """Add one thing and return it."""
    if not text.strip():
        raise BadInput("text is empty", argument="text")
    with http.request(
        "POST",
        f"{hosts()[0].url}/things",
        headers={"Content-Type": "application/json"},
        body=msgspec.json.encode({"text": text}),
        credential="api_key",
    ) as answer:
        thing = answer.raise_for_status().json()
    log.info("thing added", id=thing["id"])
    return {"thing": thing}


if __name__ == "__main__":
    run()
