"""A connector that sends requests to the granted host and measures, inside the jail, how long each answer took."""

import time

from aileron_connector import hosts, http, op, run


@op
def ask(times: int = 20) -> list[float]:
    """Send `times` requests with the credential. Return the seconds of each, from the call to the end of the body."""
    url, taken = hosts()[0].url + "/", []
    for _ in range(times):
        began = time.perf_counter()
        with http.request("GET", url, credential="api_key") as response:
            assert response.status == 200
            assert response.read()
        taken.append(time.perf_counter() - began)
    return taken


run()
