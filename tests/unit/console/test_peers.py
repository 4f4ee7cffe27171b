"""Other users of the machine get no page."""

from __future__ import annotations

import os
import socket

import pytest

from tuneyard.console.peers import is_other_user, uid_of

TABLE = """\
   0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:8000 0100007F:1CFC 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1CFC 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 0100007F:8002 0100007F:1CFC 06 00000000:00000000 03:00000F9B 00000000     0        0 0 3 ffff8c0b
   4: 0100007F:8003 0100007F:1CFC 04 00000000:00000000 00:00000000 00000000     0        0 0 1 ffff8c0b 20 4 30 10 -1
   5: 0100007F:8004 0100007F:1CFC 01 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1
""".splitlines()


def test_the_owner_is_that_of_the_client_end() -> None:
    assert uid_of(TABLE, ("127.0.0.1", 0x8000), ("127.0.0.1", 0x1CFC)) == 1000
    assert uid_of(TABLE, ("127.0.0.1", 0x8001), ("127.0.0.1", 0x1CFC)) is None
    assert uid_of(TABLE, ("127.0.0.1", 0x8004), ("127.0.0.1", 0x1CFC)) == 0
    assert uid_of(["", "x y"], ("testclient", 1), ("127.0.0.1", 2)) is None


@pytest.mark.parametrize("port", [0x8002, 0x8003], ids=["TIME_WAIT", "FIN_WAIT1"])
def test_a_closed_socket_that_the_kernel_lists_as_root_s_has_no_owner(port: int) -> None:
    assert uid_of(TABLE, ("127.0.0.1", port), ("127.0.0.1", 0x1CFC)) is None


def test_a_connection_that_no_table_has_is_of_another_user() -> None:
    assert not is_other_user(None, ("127.0.0.1", 1))
    assert not is_other_user(("testclient", 1), ("127.0.0.1", 1)), "no address"
    assert is_other_user(("127.0.0.1", 1), ("127.0.0.1", 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mapped", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("uid", [0, 65534])
def test_sockets_of_both_families_tell_their_user(uid: int, mapped: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            os.setuid(uid)
            with socket.socket(socket.AF_INET6 if mapped else socket.AF_INET) as client:
                client.connect((f"::ffff:{address[0]}" if mapped else address[0], address[1]))
                theirs.recv(1)
            os._exit(0)
        accepted, peer = server.accept()
        with accepted:
            assert is_other_user(peer, accepted.getsockname()) == (uid != 0)
        ours.send(b"x")
        os.waitpid(child, 0)
        ours.close()
        theirs.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mapped", [False, True], ids=["IPv4", "IPv6"])
def test_a_user_who_asks_and_closes_at_once_is_refused(mapped: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            with socket.socket(socket.AF_INET6 if mapped else socket.AF_INET) as client:
                client.connect((f"::ffff:{address[0]}" if mapped else address[0], address[1]))
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            os._exit(0)
        os.waitpid(child, 0)
        accepted, peer = server.accept()
        with accepted:
            assert accepted.recv(1000)
            assert is_other_user(peer, address), "the closed end waits for the end of ours"
        assert is_other_user(peer, address), "and then for late packets"
