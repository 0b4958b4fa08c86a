"""How long chunks are, and how fast a job is."""

import pytest

from workers.backends.pace import TARGET_S, Pace, Speed, WritePace


def chunks_until_settled(seconds_per_step: float) -> list[int]:
    pace = Pace()
    sizes = []
    for _ in range(12):
        sizes.append(pace.steps)
        pace.took(pace.steps, pace.steps * seconds_per_step)
    return sizes


class TestPace:
    @pytest.mark.parametrize("seconds_per_step", [1e-5, 1e-3, 0.02, 0.2, 3.0])
    def test_no_chunk_lasts_longer_than_the_target_or_one_step(self, seconds_per_step: float) -> None:
        for size in chunks_until_settled(seconds_per_step):
            assert size == 1 or size * seconds_per_step <= TARGET_S

    def test_fast_steps_are_soon_taken_in_long_chunks(self) -> None:
        assert chunks_until_settled(1e-4)[:5] == [1, 8, 64, 512, 2500]

    def test_first_chunk_is_one_step_however_long_compiling_takes(self) -> None:
        pace = Pace()
        assert pace.steps == 1

        pace.took(1, 30.0)
        assert pace.steps == 1

        pace.took(1, 1e-3)
        assert pace.steps == 8

    def test_slowing_down_shortens_the_next_chunk_at_once(self) -> None:
        pace = Pace()
        for _ in range(6):
            pace.took(pace.steps, pace.steps * 1e-4)

        pace.took(2500, 2.5)

        assert pace.steps == 250

    def test_chunk_cut_short_by_the_end_of_an_epoch_teaches_nothing(self) -> None:
        pace = Pace()
        for _ in range(6):
            pace.took(pace.steps, pace.steps * 1e-4)

        pace.took(1, 0.01)

        assert pace.steps == 2500

    def test_even_a_short_chunk_teaches_when_it_was_slow(self) -> None:
        pace = Pace()
        for _ in range(6):
            pace.took(pace.steps, pace.steps * 1e-4)

        pace.took(10, 5.0)

        assert pace.steps == 1

    def test_clock_that_stands_still_is_no_error(self) -> None:
        pace = Pace()

        pace.took(1, 0.0)

        assert pace.steps == 8


class TestSpeed:
    def test_unknown_before_a_second_chunk(self) -> None:
        speed = Speed()
        assert (speed.rows_per_s, speed.seconds_for(5)) == (None, None)

        speed.add(1, 32, 2.0)
        assert (speed.rows_per_s, speed.seconds_for(5)) == (None, None)

    def test_leaves_out_the_first_chunk_in_which_a_graph_is_compiled(self) -> None:
        speed = Speed()
        speed.add(1, 32, 2.0)
        speed.add(10, 320, 0.5)
        speed.add(10, 320, 0.5)

        assert speed.rows_per_s == 640.0
        assert speed.seconds_for(40) == pytest.approx(2.0)


class TestWritePace:
    def test_first_is_due_after_a_second(self) -> None:
        pace = WritePace(100.0)

        assert not pace.due(100.9)
        assert pace.due(101.0)

    def test_next_is_due_five_seconds_later_when_it_costs_nothing(self) -> None:
        pace = WritePace(0.0)
        pace.wrote(1.0, 1.0)

        assert not pace.due(5.9)
        assert pace.due(6.0)

    @pytest.mark.parametrize("cost", [0.5, 3.0, 60.0])
    def test_all_of_them_cost_two_in_a_hundred(self, cost: float) -> None:
        pace, now, spent = WritePace(0.0), 0.0, 0.0
        while now < 100_000:
            now += 1.0
            if pace.due(now):
                pace.wrote(now, now + cost)
                now, spent = now + cost, spent + cost

        assert spent / now <= 0.02

    def test_a_long_job_loses_about_a_hundredth(self) -> None:
        pace = WritePace(0.0)
        pace.wrote(9_999.0, 10_000.0)

        assert not pace.due(10_099.0)
        assert pace.due(10_100.0)
