"""A program is kept on loopback whatever it asks for, and ends as it does without."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.sandbox.node import programs
from k8s.sandbox.node.programs.on_loopback import on_loopback

PROGRAM = (sys.executable, "-I", "-S", str(Path(programs.__file__).with_name("on_loopback.py")))
LISTEN = """
import socket, sys, threading
def listen(family, address, **options):
    made = socket.socket(family)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, options["alone"])
    made.bind((address, 0))
    made.listen()
    return made
def show():
    first = listen(socket.AF_INET, "0.0.0.0")
    print(first.getsockname()[0])
    print(listen(socket.AF_INET6, "::", alone=1).getsockname()[0])
    both = listen(socket.AF_INET6, "::", alone=0)
    print(both.getsockname()[0])
    for port in (first.getsockname()[1], both.getsockname()[1]):
        print(socket.create_connection((sys.argv[1], port)).getpeername()[0])
for each in (show, lambda: threading.Thread(target=show).start()):
    each()
"""


def own_address() -> str:
    """Return an address of this machine besides loopback; loopback where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.255", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, words[0], *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_wildcard_listener_is_bound_to_loopback_and_reached_by_the_machines_address() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    done = run(sys.executable, "-c", LISTEN, own_address())
    if "listens on all addresses" in done.stderr:
        pytest.skip("this kernel has no way")
    assert done.stdout.split() == ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1"] * 2, done


@pytest.mark.parametrize(
    ("asked", "gets"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.9", "127.0.0.9"),
        ("0.0.0.0", "127.0.0.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("::1", "::1"),
        ("::", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("::ffff:0.0.0.0", "::ffff:127.0.0.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
    ],
)
def test_only_wildcard_addresses_are_replaced_by_loopback(asked: str, gets: str) -> None:
    assert read_back(on_loopback(socket_address(asked))) == ipaddress.ip_address(gets)


def test_an_address_of_this_machine_is_loopback_in_either_family() -> None:
    own = own_address()
    assert read_back(on_loopback(socket_address(own))) == ipaddress.ip_address("127.0.0.1")
    mapped = ipaddress.ip_address("::ffff:127.0.0.1")
    assert read_back(on_loopback(socket_address(f"::ffff:{own}"))) == mapped


def socket_address(address: str) -> bytes:
    """Return a `sockaddr_in` or `sockaddr_in6` with port 80."""
    packed = ipaddress.ip_address(address).packed
    if len(packed) == 4:
        return struct.pack("=H", socket.AF_INET) + struct.pack("!H", 80) + packed + bytes(8)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", 80, 0) + packed + bytes(4)


def read_back(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    assert address[2:4] == struct.pack("!H", 80)
    return ipaddress.ip_address(address[4:8] if len(address) == 16 else address[8:24])


def test_nested_loopback_wrappers_keep_a_socket_on_loopback() -> None:
    done = run(
        *PROGRAM,
        sys.executable,
        sys.executable,
        "-c",
        "import socket; s = socket.create_server(('', 0)); print(s)",
    )
    assert done.stderr == "" or "listens on all addresses" in done.stderr
    assert "laddr=('127.0.0.1'" in done.stdout or done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("no-such-program",), 127),
        (("true",), 0),
    ],
)
def test_the_loopback_wrapper_exits_with_the_status_of_its_program(
    words: tuple[str, ...], status: int
) -> None:
    assert run(*words).returncode == status


def test_a_signal_is_handled_by_the_wrapped_program() -> None:
    line = "trap 'echo asked; exit 5' TERM; echo begun; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [*PROGRAM, "sh", "sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"begun\n"
        # As the shim does: to everybody below it.
        os.killpg(process.pid, signal.SIGTERM)
        assert said.readline() == b"asked\n"
    assert process.wait(30) == 5
