"""The operations in an ordinary process, for a debugger: `python -m pytest`, in the directory above."""

import connector  # noqa: F401  (declares the operations)

from aileron_connector.testing import Reply, call

HOSTS = ["https://api.example.com"]


def test_things_are_listed() -> None:
    """What the service says is what comes back, and the key is asked for."""
    done = call("list_things", {"limit": 2}, answer=[Reply.of([{"id": 1}])], hosts=HOSTS)

    assert done.output == {"things": [{"id": 1}]}
    assert done.requests[0].url == "https://api.example.com/things?limit=2"
    assert done.requests[0].credential == "api_key"


def test_a_full_service_is_a_failure_with_its_status() -> None:
    """The caller learns what the service said."""
    done = call("add_thing", {"text": "one too many"}, answer=[Reply(507)], hosts=HOSTS)

    assert done.failure.details == {"status": 507}
