"""Whose process is at the other end of a connection over loopback, asked of the kernel.

Source: "sock_diag(7)", Linux manual; `struct inet_diag_req_v2` and `inet_diag_msg` in linux/inet_diag.h.
"""

from __future__ import annotations

import socket
import struct

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_ANY_INTERFACE, _NO_COOKIE = b"\0" * 4, b"\xff" * 8
_UID_AT = _HEADER.size + 64
"""Behind the message's state, socket id and three counters."""


def uid_of_peer(connection: socket.socket) -> int | None:
    """Return the user whose socket is connected to this one; None where the kernel does not say."""
    try:
        here, there = connection.getsockname(), connection.getpeername()
        family = connection.family
        ends = struct.pack("!HH", there[1], here[1])
        ends += b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (there, here))
        asked = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        asked += ends + _ANY_INTERFACE + _NO_COOKIE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0.1)
            length = _HEADER.size + len(asked)
            kernel.sendto(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + asked, (0, 0))
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    if len(answer) < _UID_AT + 4 or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])
