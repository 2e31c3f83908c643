"""Asks the granted host and measures, inside the jail, how long each answer took."""

import time

from aileron_connector import hosts, http, op, run


@op
def ask(times: int = 20) -> list[float]:
    """Seconds of each of so many requests with the credential, from the call to the end of the body."""
    url, taken = hosts()[0].url + "/", []
    for _ in range(times):
        began = time.perf_counter()
        with http.request("GET", url, credential="api_key") as response:
            assert response.status == 200
            assert response.read()
        taken.append(time.perf_counter() - began)
    return taken


run()
