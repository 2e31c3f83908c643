"""Deferred building of the SDK's pydantic models. The models of the served methods are built before the first request,
all others when they are first used.

The SDK has 500 models of pydantic, of which a server of tools uses 200. By default pydantic builds each model when its class
is made, which would take 5 MB and a tenth of a second more.

Runs in the MCP process, before it confines itself. Building a model later is still possible, because it opens no file
and imports no module.

Source: pydantic, `defer_build`; mcp_types.methods, whose tables name the models of each method. Not here: avoiding imports
(sdk.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel, TypeAdapter

__all__ = ["build_served", "built_when_used"]

_SERVED: Final = frozenset({
    "initialize", "ping", "server/discover", "subscriptions/listen", "tools/call", "tools/list",
    "notifications/cancelled", "notifications/initialized", "notifications/progress",
    "notifications/subscriptions/acknowledged", "notifications/tools/list_changed",
})  # fmt: skip
"""Methods whose models are built at the start, so that the first call takes no longer than later calls."""
_ASKED: Final = "_defer_build"


@contextlib.contextmanager
def built_when_used() -> Iterator[None]:
    """Make pydantic build the models and adapters that are created in this context only when they are first used.

    A TypeAdapter of a union accepts no configuration, so the private property that it reads is replaced. A version of
    pydantic without that property builds adapters at once, which costs only memory.
    """
    asked = TypeAdapter.__dict__.get(_ASKED)
    BaseModel.model_config["defer_build"] = True  # every class inherits it
    if asked is not None:
        setattr(TypeAdapter, _ASKED, True)
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
        if asked is not None:
            setattr(TypeAdapter, _ASKED, asked)


def build_served() -> None:
    """Build the pydantic model of every method that the MCP server serves, which takes 30 ms, so that the first client
    does not wait for it.
    """
    from mcp.server.auth.provider import AccessToken
    from mcp.server.models import InitializationOptions
    from mcp_types import jsonrpc, methods

    built: set[type[BaseModel]] = set()
    for versions in (
        methods.CLIENT_REQUESTS,
        methods.CLIENT_NOTIFICATIONS,
        methods.SERVER_NOTIFICATIONS,
        methods.SERVER_RESULTS,
    ):
        _build((model for (method, _), model in versions.items() if method in _SERVED), built)
    for models in (methods.MONOLITH_REQUESTS, methods.MONOLITH_NOTIFICATIONS, methods.MONOLITH_RESULTS):
        _build((model for method, model in models.items() if method in _SERVED), built)
    _build([jsonrpc.JSONRPCMessage, InitializationOptions, AccessToken], built)
    jsonrpc.jsonrpc_message_adapter.rebuild()


def _build(annotations: Iterable[Any], built: set[type[BaseModel]]) -> None:
    """Build the pydantic models in these annotations. The models of a model's fields are built first, so that it can
    reuse them.
    """
    for annotation in annotations:
        for model in _models_in(annotation):
            if model not in built:
                built.add(model)
                _build((field.annotation for field in model.model_fields.values()), built)
                model.model_rebuild()


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
