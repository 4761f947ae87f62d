"""Runs a program whose sockets are on loopback, though it asks for all addresses, as Open MPI always does.

Linux asks this process, by seccomp's user notification, before the program or anything that it starts
binds a socket or connects one: `all addresses` becomes loopback, and so does an address of this machine's,
as nothing of the program listens there. Where Linux does not let it, the program runs as it is,
and a line says so. It guards nobody: the program belongs to the same user and could get around it.

Started as `python -I -S on_loopback.py WORDS...`; exits as the program does. Needs only the standard library.
"""

import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import select
import signal
import socket
import struct
import sys
from contextlib import suppress

_SYSTEM_CALLS = {"x86_64": (0xC000003E, 317, 49, 42), "aarch64": (0xC00000B7, 277, 200, 203)}
"""By machine: its architecture to the kernel, and the numbers of seccomp, bind and connect."""
_NO_NEW_PRIVILEGES, _FILTER, _WITH_LISTENER = 38, 1, 8
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1
_REQUEST = struct.Struct("<QIIiIQ6Q")
"""Id, thread, flags; number, architecture, instruction, six arguments."""
_ANSWER = struct.Struct("<QqiI")
"""Id, return value, error, flags."""
_IPV6 = int(socket.AF_INET6).to_bytes(2, sys.byteorder)
_LOOPBACK_4 = ipaddress.ip_address("127.0.0.1").packed
_LOOPBACK_6 = ipaddress.ip_address("::1").packed
_LOOPBACK_4_IN_6 = ipaddress.ip_address("::ffff:127.0.0.1").packed
_TAKE_DESCRIPTOR = 438
"""The number of pidfd_getfd."""
_NOT_FOUND, _SIGNALLED = 127, 128
_LEFT_TO_PROGRAM = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that the program is told too; it decides how it ends."""
_LONGEST_ADDRESS = 28


def main(*words: str) -> int:
    """Run the program; return its exit status, as a shell counts a signal."""
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_PROGRAM)
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.close()
        _become(words, theirs)
    theirs.close()
    for number in _LEFT_TO_PROGRAM:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    has_filter, listeners, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    if listeners:
        _serve(listeners[0], pid)
    elif has_filter != b"+":
        sys.stderr.write(
            "sandbox: this kernel has no way to keep MPI on loopback: it listens on all addresses\n"
        )
        sys.stderr.flush()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNALLED - code


def _become(words: tuple[str, ...], parent: socket.socket) -> None:
    """Ask to be asked, hand over by what, and become the program."""
    with suppress(OSError):
        try:
            listener = install_filter()
        except OSError as error:
            # Busy: a filter that was there before asks already.
            parent.send(b"+" if error.errno == errno.EBUSY else b"-")
        else:
            socket.send_fds(parent, [b"+"], [listener])
            os.close(listener)
        parent.close()
        os.execvp(words[0], words)
    os._exit(_NOT_FOUND)


def install_filter() -> int:
    """Have the kernel ask before this process binds or connects; return the descriptor on which it does.

    Raises:
        OSError: It does not let us, or is none that is known here.
    """
    if (machine := platform.machine()) not in _SYSTEM_CALLS:
        raise OSError(f"{machine} is not known")
    architecture, seccomp, bind, connect = _SYSTEM_CALLS[machine]
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 0, 3, architecture),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_EQUAL, 2, 0, bind),
        (_JUMP_IF_EQUAL, 1, 0, connect),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOTIFY),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = int(libc.syscall(seccomp, _FILTER, _WITH_LISTENER, program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def _serve(listener: int, pid: int) -> None:
    """Answer the kernel until the program has ended; what it left behind is ended with its pod."""
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.register(ended, select.POLLIN)
    while True:
        ready = dict(poller.poll())
        if ready.get(listener, 0) & select.POLLIN:
            with suppress(OSError):
                _answer(listener)
        elif ended in ready or ready:
            return


def _answer(listener: int) -> None:
    """Change the address of one system call, if need be, and let the kernel go on with it.

    Raises:
        OSError: Whoever asked is gone.
    """
    request = bytearray(_REQUEST.size)
    fcntl.ioctl(listener, _RECEIVE, request)
    call, thread, _, number, _, _, descriptor, pointer, length, *_ = _REQUEST.unpack(request)
    is_bind = number == _SYSTEM_CALLS[platform.machine()][2]
    try:
        memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
        try:
            address = os.pread(memory, min(length, _LONGEST_ADDRESS), pointer)
            if (changed := on_loopback(address)) != address:
                takes_both = is_bind and changed[:2] == _IPV6 and _takes_both_families(thread, descriptor)
                os.pwrite(
                    memory, changed.replace(_LOOPBACK_6, _LOOPBACK_4_IN_6) if takes_both else changed, pointer
                )
        finally:
            os.close(memory)
    finally:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(call, 0, 0, _GO_ON))


def on_loopback(address: bytes) -> bytes:
    """Return a socket's address, or loopback in its place where it is all addresses or one of our own."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == socket.AF_INET and len(address) >= 8:
        at, loopback = slice(4, 8), _LOOPBACK_4
    elif family == socket.AF_INET6 and len(address) >= 24:
        at, loopback = slice(8, 24), _LOOPBACK_6
    else:
        return address
    found = ipaddress.ip_address(address[at])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found, at, loopback = found.ipv4_mapped, slice(20, 24), _LOOPBACK_4
    if found.is_unspecified or (not found.is_loopback and _is_ours(found)):
        return address[: at.start] + loopback + address[at.stop :]
    return address


def _takes_both_families(thread: int, descriptor: int) -> bool:
    """Tell whether a socket of the program, though of IPv6, is for IPv4 too: then it is for that here."""
    with open(f"/proc/{thread}/status") as file:
        process = next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))
    whose = os.pidfd_open(process)
    try:
        taken = int(ctypes.CDLL(None).syscall(_TAKE_DESCRIPTOR, whose, descriptor, 0))
    finally:
        os.close(whose)
    if taken < 0:
        return False
    with socket.socket(fileno=taken) as found:
        return not found.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def _is_ours(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether an address is one of this machine's."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
