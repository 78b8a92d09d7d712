"""The server's address: held before a model is loaded, so that a taken port is known at once. Knows no HTTP."""

from __future__ import annotations

import os
import socket

from lattice_core.errors import LatticeError

_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that holds the address and does not listen yet; port 0 takes a free one.

    Raises ``LatticeError`` ``bind HOST:PORT failed: ...``, also where another process listens there.
    """
    name = host.removeprefix("[").removesuffix("]")
    where = _where(host, port)
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
        except OSError as error:
            listener.close()
            failure = error
        else:
            listener.setblocking(False)  # noqa: FBT003  # the socket's own signature
            return listener
    raise _failed(where, failure) from failure


def listen(listener: socket.socket, host: str) -> None:
    """Begin to accept connections. Two processes may hold an address, but only one may listen: ``LatticeError``."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _failed(_where(host, listener.getsockname()[1]), error) from error


def _where(host: str, port: int) -> str:
    return f"{url_host(host.removeprefix('[').removesuffix(']'))}:{port}"


def _failed(where: str, failure: OSError | None) -> LatticeError:
    cause = failure.strerror if failure is not None else "no address"
    return LatticeError(f"bind {where} failed: {cause}; choose another --port (0 takes a free one) or --host", param="port")


def url_host(host: str) -> str:
    """``host`` as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
