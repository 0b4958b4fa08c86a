"""The key text: what scanners and people rely on."""

import hashlib
import re
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.accounts.keys import KeyText, digest, is_well_formed, new_key

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def value_of(text: str) -> int:
    """Base 62 read back by another route than the code writes it."""
    return sum(BASE62.index(character) * 62**place for place, character in enumerate(reversed(text)))


class TestNewKey:
    def test_has_the_documented_shape(self) -> None:
        key = new_key()
        assert re.fullmatch(r"ts_[0-9A-Za-z]{59}", key.text)
        assert key.text.startswith(key.hint)
        assert len(key.hint) == len("ts_") + 10

    def test_ends_with_the_crc_of_the_rest(self) -> None:
        text = new_key().text
        assert value_of(text[-6:]) == zlib.crc32(text[:-6].encode())

    def test_the_secret_part_uses_all_of_256_bits(self) -> None:
        # Of 200 random numbers below 2**256 about half have the top bit; none at all has a chance of 2**-200.
        secrets = [value_of(new_key().text[13:56]) for _ in range(200)]
        assert len(set(secrets)) == 200
        assert max(secrets).bit_length() == 256

    def test_does_not_show_its_secret_in_logs(self) -> None:
        key = new_key()
        assert key.text not in repr(key)
        assert key.hint in repr(key)


class TestIsWellFormed:
    def test_accepts_every_new_key(self) -> None:
        assert all(is_well_formed(new_key().text) for _ in range(50))

    @given(st.integers(0, 61), st.sampled_from(BASE62))
    def test_refuses_every_single_typo(self, place: int, character: str) -> None:
        # CRC-32 finds every burst of up to 32 bits, so a change of one byte cannot slip through.
        text = new_key().text
        typo = text[:place] + character + text[place + 1 :]
        assert is_well_formed(typo) == (typo == text)

    @pytest.mark.parametrize("text", ["", "ts_", "Bearer", "ts_" + "0" * 59, "ts_é" + "0" * 58, "x" * 100_000, "ts_\0"])
    def test_refuses_what_is_no_key(self, text: str) -> None:
        assert not is_well_formed(text)

    def test_refuses_a_key_with_something_around_it(self) -> None:
        text = new_key().text
        assert not any(is_well_formed(wrong) for wrong in (f"{text}\n", f" {text}", f"{text}0", text[:-1]))


class TestDigest:
    def test_is_sha_256_in_hex(self) -> None:
        # NIST's one-block example of FIPS 180-4: SHA-256("abc").
        assert digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    def test_matches_the_library_for_a_key(self) -> None:
        key = KeyText(text="ts_x", hint="ts_")
        assert digest(key.text) == hashlib.sha256(b"ts_x").hexdigest()
