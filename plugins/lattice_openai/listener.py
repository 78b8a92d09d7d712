"""Binds the server's socket before anything else starts, so that a taken port is one clear line. Knows no HTTP."""

from __future__ import annotations

import os
import socket

from lattice_core.errors import LatticeError

_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that listens; port 0 takes a free one.

    Raises ``LatticeError`` ``bind HOST:PORT failed: ...``.
    """
    name = host.removeprefix("[").removesuffix("]")
    where = f"{url_host(name)}:{port}"
    try:
        candidates = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise LatticeError(f"bind {where} failed: {error.strerror}; give another --host", param="host") from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in candidates:
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted connections inherit this: a peer that vanished without a word is noticed in the end.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            listener.bind(address)
            # Two processes may bind a port at the same moment, but only one may listen.
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            failure = error
        else:
            listener.setblocking(False)  # noqa: FBT003  # the socket's own signature
            return listener
    cause = failure.strerror if failure is not None else "no address"
    raise LatticeError(
        f"bind {where} failed: {cause}; choose another --port (0 takes a free one) or --host", param="port"
    ) from failure


def url_host(host: str) -> str:
    """``host`` as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
