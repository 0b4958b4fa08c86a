"""What a worker says of its host, stored and read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fleet.condition import Condition, Driver, Remark, RootState, first_blocker, read_condition

FULL = Remark("disk_full", "The disk is full.")
SMALL = Remark("small_shm", "Shared memory is small.")
remarks = st.lists(st.builds(Remark, st.text(), st.text()), max_size=3).map(tuple)
sizes = st.none() | st.integers(0, 1 << 62)
conditions = st.builds(
    Condition,
    disk_free_bytes=sizes,
    disk_total_bytes=sizes,
    shm_bytes=sizes,
    environments=sizes,
    environments_bytes=sizes,
    roots=st.dictionaries(st.text(), st.builds(RootState, st.booleans(), st.none() | st.text()), max_size=3),
    problems=remarks,
    blockers=remarks,
    driver=st.none() | st.builds(Driver, st.text(), st.none() | st.text()),
    metrics_port=st.none() | st.integers(1, 65535),
)


class TestJson:
    @given(conditions)
    def test_it_comes_back_as_it_was(self, condition: Condition) -> None:
        assert read_condition(json.loads(json.dumps(condition.as_json()))) == condition

    @pytest.mark.parametrize(
        "stored",
        [
            None,
            {},
            {"driver": "580", "roots": [], "problems": {}, "blockers": "full"},
            {"disk_free_bytes": "5", "shm_bytes": 1.5, "roots": {"a": None}, "blockers": [None], "later": 1},
        ],
    )
    def test_what_another_version_wrote_is_read_as_far_as_it_is_understood(self, stored: object) -> None:
        assert read_condition(stored) == Condition()  # type: ignore[arg-type] # whatever a row may hold

    def test_a_remark_without_its_parts_still_counts(self) -> None:
        assert read_condition({"blockers": [{}]}).blockers == (Remark("other", ""),)


class TestBlocked:
    def test_the_first_blocker_says_why(self) -> None:
        both = Condition(blockers=(FULL, SMALL))
        assert both.blocked == first_blocker(both.as_json()) == "The disk is full."

    def test_problems_do_not_block(self) -> None:
        only = Condition(problems=(SMALL,))
        assert (only.blocked, first_blocker(only.as_json()), first_blocker(None)) == (None, None, None)
