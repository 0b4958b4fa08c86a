import re
import threading
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ids import PREFIXES, first_id, id_time, is_id, new_id, pattern

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


def uuid_of(identity: str) -> uuid.UUID:
    """Read base 32 back the long way; the library then says what kind of UUID it is."""
    number = 0
    for character in identity.split("_")[1]:
        number = number * 32 + CROCKFORD.index(character)
    return uuid.UUID(int=number)


class TestNewId:
    @given(st.integers(0, 2**48 - 1))
    def test_is_a_version_7_uuid_of_its_time(self, unix_ms: int) -> None:
        # RFC 9562 section 5.7: 48 bits of Unix milliseconds, version 7, variant 0b10, the rest random.
        value = uuid_of(new_id("job", unix_ms=unix_ms))
        assert value.version == 7
        assert value.variant == uuid.RFC_4122
        assert value.int >> 80 == unix_ms

    def test_the_example_of_the_rfc_has_its_first_characters(self) -> None:
        # RFC 9562 appendix A.6: 017F22E2-79B0-7CC3-98C4-DC0C0C07398F is of 2022-02-22T19:22:22Z.
        unix_ms = 0x017F22E279B0
        assert new_id("job", unix_ms=unix_ms).startswith("job_01fwhe4ydg")
        assert uuid_of(new_id("job", unix_ms=unix_ms)).hex.startswith("017f22e279b07")

    def test_later_ids_sort_after_earlier_ones(self) -> None:
        made = [new_id("job") for _ in range(5000)]
        assert made == sorted(made)
        assert len(set(made)) == 5000

    def test_also_across_threads_none_is_given_twice(self) -> None:
        made: list[list[str]] = []
        together = threading.Barrier(4)

        def make() -> None:
            together.wait()
            made.append([new_id("job") for _ in range(1000)])

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({identity for part in made for identity in part}) == 4000
        assert all(part == sorted(part) for part in made)

    def test_two_of_one_moment_cannot_be_guessed_from_each_other(self) -> None:
        # 74 random bits: the chance that two of 1000 agree in the last 12 characters (60 bits) is below 1e-12.
        assert len({new_id("job", unix_ms=1)[-12:] for _ in range(1000)}) == 1000


class TestPattern:
    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_matches_every_new_id_of_its_kind_alone(self, prefix: str) -> None:
        identity = new_id(prefix)
        assert re.fullmatch(pattern(prefix), identity)
        assert is_id(prefix, identity)
        assert not any(is_id(other, identity) for other in PREFIXES if other != prefix)

    @pytest.mark.parametrize("change", ["", "_", "job", "{}x", "x{}", "{}\n", "../{}", "{}/..", "{}%00", " {}"])
    def test_nothing_around_an_id_is_let_through(self, change: str) -> None:
        assert not is_id("job", change.format(new_id("job")))

    @pytest.mark.parametrize("wrong", ["i", "l", "o", "u", "I", "A", "8é"])
    def test_letters_that_are_easily_confused_are_no_digits(self, wrong: str) -> None:
        identity = new_id("job")
        assert not is_id("job", identity[: -len(wrong)] + wrong)

    def test_128_bits_leave_no_more_than_7_for_the_first_character(self) -> None:
        assert is_id("job", "job_7" + "z" * 25)
        assert not is_id("job", "job_8" + "0" * 25)


class TestTime:
    def test_the_example_of_the_rfc_is_read_back(self) -> None:
        # RFC 9562 appendix A.6: Tuesday, February 22, 2022 2:22:22.00 PM GMT-05:00.
        made = new_id("job", unix_ms=0x017F22E279B0)
        assert id_time(made) == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)

    @given(st.integers(0, 2**40))
    def test_the_first_id_of_a_time_parts_older_from_younger_ones(self, unix_ms: int) -> None:
        bound = first_id("job", datetime.fromtimestamp(unix_ms / 1000, UTC))
        assert new_id("job", unix_ms=unix_ms) >= bound
        assert unix_ms == 0 or new_id("job", unix_ms=unix_ms - 1) < bound
