"""Other users of the machine get no page."""

from __future__ import annotations

from tuneyard.console.peers import is_other_user, uid_of

TABLE = """\
   0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:8000 0100007F:1CFC 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1CFC 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
""".splitlines()


def test_the_owner_is_that_of_the_client_end() -> None:
    assert uid_of(TABLE, ("127.0.0.1", 0x8000), ("127.0.0.1", 0x1CFC)) == 1000
    assert uid_of(TABLE, ("127.0.0.1", 0x8001), ("127.0.0.1", 0x1CFC)) is None
    assert uid_of(["", "x y"], ("testclient", 1), ("127.0.0.1", 2)) is None


def test_what_cannot_be_told_is_no_other_user() -> None:
    assert not is_other_user(None, ("127.0.0.1", 1))
    assert not is_other_user(("127.0.0.1", 1), ("127.0.0.1", 1))
