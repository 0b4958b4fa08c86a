"""For how long a held card has done nothing."""

import pytest

from workers.idleness import Idleness

SECOND_NS = 1_000_000_000


class TestLook:
    def test_counts_from_the_first_idle_look(self) -> None:
        idleness = Idleness()
        found = [
            idleness.look(second * SECOND_NS, {"a": "job"}, {"a": {"utilization": busy}})
            for second, busy in ((0, 0.0), (10, 0.02), (25, 0.0), (30, 0.9), (40, 0.0), (47, 0.0))
        ]
        assert found == [{"a": 0.0}, {"a": 10.0}, {"a": 25.0}, {"a": 0.0}, {"a": 10.0}, {"a": 17.0}], (
            "work at second 30 begins the count anew, from there"
        )

    @pytest.mark.parametrize(("busy", "idle_s"), [(0.049, 60.0), (0.05, 0.0)])
    def test_the_bound_is_five_percent(self, busy: float, idle_s: float) -> None:
        idleness = Idleness()
        for second in (0, 60):
            found = idleness.look(second * SECOND_NS, {"a": "job"}, {"a": {"utilization": busy}})
        assert found == {"a": idle_s}

    def test_a_new_holder_begins_anew(self) -> None:
        idleness = Idleness()
        idle = {"a": {"utilization": 0.0}}
        idleness.look(0, {"a": "job-1"}, idle)
        assert idleness.look(60 * SECOND_NS, {"a": "job-2"}, idle) == {"a": 0.0}
        assert idleness.look(90 * SECOND_NS, {"a": "job-2"}, idle) == {"a": 30.0}

    def test_a_card_that_nobody_has_or_that_cannot_tell_is_forgotten(self) -> None:
        idleness = Idleness()
        idle = {"a": {"utilization": 0.0}, "b": {"utilization": 0.0}}
        idleness.look(0, {"a": "job", "b": "job"}, idle)
        assert idleness.look(10 * SECOND_NS, {"b": "job"}, {"b": {"power_w": 20.0}}) == {}
        assert idleness.look(20 * SECOND_NS, {"a": "job", "b": "job"}, idle) == {"a": 0.0, "b": 0.0}
