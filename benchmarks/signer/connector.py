"""A connector that measures in the jail how long the granted host takes to answer requests, signed by the supervisor or not."""

import time

from aileron_connector import hosts, http, op, run


@op
def ask(times: int = 20, is_signed: bool = True) -> list[float]:
    """Send `times` requests. Return the seconds of each, from the call to the end of the body."""
    url, taken, credential = hosts()[0].url + "/notes/2026", [], "aws_sigv4" if is_signed else None
    for _ in range(times):
        began = time.perf_counter()
        with http.request("GET", url, credential=credential) as response:
            assert response.status == 200
            assert response.read()
        taken.append(time.perf_counter() - began)
    return taken


run()
