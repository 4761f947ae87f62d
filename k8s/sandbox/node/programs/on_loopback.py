"""Launcher that keeps a program's sockets on loopback even if it binds all addresses, as Open MPI does.

With seccomp user notification Linux asks this process before the program or a descendant binds or connects a
socket; "all addresses" and this machine's own addresses become loopback. Where the kernel refuses, the
program runs unchanged and a message says so. This is no security boundary against the program itself, which
belongs to the same user.

Started as `python -I -S on_loopback.py PROGRAM NAME WORDS...`; exits as the program does. Needs only the
standard library.
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

# By machine: audit architecture and the numbers of the system calls seccomp, bind and connect.
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 317, 49, 42), "aarch64": (0xC00000B7, 277, 200, 203)}
_NO_NEW_PRIVILEGES, _FILTER, _WITH_LISTENER = 38, 1, 8
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1
# Id, thread, flags; number, architecture, instruction pointer, six arguments.
_REQUEST = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_IPV6 = int(socket.AF_INET6).to_bytes(2, sys.byteorder)
_LOOPBACK_4 = ipaddress.ip_address("127.0.0.1").packed
_LOOPBACK_6 = ipaddress.ip_address("::1").packed
_LOOPBACK_4_IN_6 = ipaddress.ip_address("::ffff:127.0.0.1").packed
_TAKE_DESCRIPTOR = 438
_NOT_FOUND, _SIGNALLED = 127, 128
# The program gets these signals too, and decides how to end.
_LEFT_TO_PROGRAM = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LONGEST_ADDRESS = 28


def main(program: str, *words: str) -> int:
    """Run the program; return its exit status, 128 + N for signal N."""
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_PROGRAM)
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.close()
        _become(program, words, theirs)
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


def _become(program: str, words: tuple[str, ...], parent: socket.socket) -> None:
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
        os.execvp(program, words)
    os._exit(_NOT_FOUND)


def install_filter() -> int:
    """Make the kernel notify before this process binds or connects; return the notification descriptor.

    Raises:
        OSError: The kernel refuses, or the machine is not a known one.
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
    request = bytearray(_REQUEST.size)
    fcntl.ioctl(listener, _RECEIVE, request)
    call, thread, _, number, _, _, descriptor, pointer, length, *_ = _REQUEST.unpack(request)
    is_bind = number == _SYSTEM_CALLS[platform.machine()][2]
    try:
        memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
        try:
            address = os.pread(memory, min(length, _LONGEST_ADDRESS), pointer)
            if (changed := on_loopback(address)) != address:
                takes_both = is_bind and changed[:2] == _IPV6 and _is_dual_stack(thread, descriptor)
                os.pwrite(
                    memory, changed.replace(_LOOPBACK_6, _LOOPBACK_4_IN_6) if takes_both else changed, pointer
                )
        finally:
            os.close(memory)
    finally:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(call, 0, 0, _GO_ON))


def on_loopback(address: bytes) -> bytes:
    """Return a socket address with "all addresses" and this machine's addresses replaced by loopback."""
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


def _is_dual_stack(thread: int, descriptor: int) -> bool:
    # An IPv6 socket that also accepts IPv4 must listen on the IPv4 loopback address.
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
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
