"""Warm-up and cosine by hand."""

import pytest

from alignfuse.training.schedule import ScheduleConfig, learning_rate, warmup_steps


def rates(total: int, config: ScheduleConfig) -> list[float]:
    return [learning_rate(step, total, 1.0, config) for step in range(total)]


def test_eight_steps_with_warm_up_of_four_peak_at_step_four() -> None:
    found = rates(8, ScheduleConfig(warmup=4, start=0.0, end=0.0))
    # Cosine over the four steps after warm-up: (1 + cos(pi k / 4)) / 2.
    assert found == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_official_ends() -> None:
    config = ScheduleConfig(warmup=2000)
    assert learning_rate(0, 10000, 1e-4, config) == pytest.approx(1e-5)
    assert learning_rate(2000, 10000, 1e-4, config) == pytest.approx(1e-4)
    assert learning_rate(10000, 10000, 1e-4, config) == pytest.approx(1e-5)
    assert learning_rate(20000, 10000, 1e-4, config) == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("warmup", "total", "steps"), [(1000, 64, 32), (0.1, 64, 6), (0, 64, 0), (1000, 1, 0), (3, 64, 3), (0.9, 10, 5)]
)
def test_warm_up_fits_the_run(warmup: float, total: int, steps: int) -> None:
    config = ScheduleConfig(warmup=warmup)
    assert warmup_steps(config, total) == steps
    found = rates(total, config)
    assert max(found) == found[steps] == 1.0


@pytest.mark.parametrize("warmup", [-1, 1.5])
def test_a_warm_up_that_means_nothing_is_refused(warmup: float) -> None:
    with pytest.raises(ValueError, match="warmup"):
        ScheduleConfig(warmup=warmup)
