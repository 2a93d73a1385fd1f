"""Names of keys: the same wherever the salt is, and no way back to the key."""

import re

import pytest

from zooserve_router.context import ANONYMOUS
from zooserve_router.headers import known_headers
from zooserve_router.keys import KeyIds

SALT = "0123456789abcdef"


def name(*headers: tuple[bytes, bytes], salt: str = SALT) -> str:
    return KeyIds(salt).of(known_headers(headers))


def test_a_key_has_one_name_in_every_replica_and_after_every_restart() -> None:
    assert name((b"authorization", b"Bearer s3cret")) == "5d0e98a1dda9"


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer s3cret"),
        (b"authorization", b"bearer  s3cret"),
        (b"authorization", b"s3cret"),
        (b"x-api-key", b"s3cret"),
    ],
)
def test_a_key_has_one_name_however_it_is_sent(header: tuple[bytes, bytes]) -> None:
    assert name(header) == name((b"x-api-key", b"s3cret"))


def test_other_keys_and_other_salts_make_other_names() -> None:
    mine = name((b"x-api-key", b"s3cret"))
    assert len({mine, name((b"x-api-key", b"other")), name((b"x-api-key", b"s3cret"), salt=SALT[::-1])}) == 3
    assert re.fullmatch("[0-9a-f]{12}", mine)


def test_without_a_salt_the_names_are_good_for_one_process_alone() -> None:
    one = KeyIds()
    headers = {b"x-api-key": b"s3cret"}
    assert one.of(headers) == one.of(headers) != KeyIds().of(headers)


@pytest.mark.parametrize("headers", [(), ((b"user-agent", b"x"),), ((b"authorization", b""),)])
def test_who_sends_no_key_is_anonymous(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert name(*headers) == ANONYMOUS


def test_the_first_of_several_keys_counts() -> None:
    both = ((b"authorization", b"Bearer s3cret"), (b"x-api-key", b"other"), (b"authorization", b"Bearer third"))
    assert name(*both) == name((b"x-api-key", b"s3cret"))
