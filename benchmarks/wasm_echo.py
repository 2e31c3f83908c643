"""An echo in WebAssembly, run by wasmtime: a peer of bench_peers.py. As a program it serves frames on its standard input.

The module is compiled once. For each message a store and an instance are made, so that a message sees no data of the one before,
as in a jail; the message goes into the instance's memory, and the answer comes out of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import wasmtime

__all__ = ["echoing", "serve"]

_ECHO = """
(module
  (memory (export "memory") 1)
  (func (export "echo") (param $length i32) (result i32)
    (memory.copy (i32.const 32768) (i32.const 0) (local.get $length))
    (i32.const 32768)))
"""


def echoing() -> Callable[[bytes], bytes]:
    """Compile the module. Return a function that echoes at most 32 KiB."""
    engine = wasmtime.Engine()
    ready = wasmtime.Linker(engine).instantiate_pre(wasmtime.Module(engine, wasmtime.wat2wasm(_ECHO)))

    def echo(message: bytes) -> bytes:
        store = wasmtime.Store(engine)
        exports = ready.instantiate(store).exports(store)
        memory, function = exports["memory"], exports["echo"]
        memory.write(store, message)
        at = function(store, len(message))
        return bytes(memory.read(store, at, at + len(message)))

    return echo


def serve() -> None:
    """Answer each message on descriptor 0 on descriptor 1, until the end."""
    echo = echoing()
    while message := os.read(0, 32768):
        os.write(1, echo(message))
