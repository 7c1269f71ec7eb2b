"""Statistics over the mixture as it is sampled: true quantiles, floors, and no silent NaN."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robocoach.configs.errors import UserError
from robocoach.datasets.statistics import weighted_quantiles, weighted_statistics

# 9,000 simulated frames near 0 and 1,000 real ones beyond them, as in the fault that this module exists for.
SIM = np.linspace(-0.245, 0.245, 9000)[:, None]
REAL = np.linspace(0.83, 0.93, 1000)[:, None]


def test_averaging_the_quantiles_of_two_datasets_gives_a_third_of_the_truth():
    """LeRobot's merge, shown here so that the next test means something."""
    from lerobot.datasets.compute_stats import aggregate_stats, get_feature_stats

    merged = aggregate_stats([{"action": get_feature_stats(part, axis=0, keepdims=False)} for part in (SIM, REAL)])
    assert merged["action"]["q99"][0] == pytest.approx(0.31, abs=0.005)


def test_the_quantile_of_the_mixture_is_the_true_one():
    statistics = weighted_statistics([SIM, REAL], [0.9, 0.1], ["joint_1.pos"])
    assert statistics.q99[0] == pytest.approx(0.92, abs=0.001)
    assert statistics.q99[0] == pytest.approx(np.quantile(np.concatenate([SIM, REAL]), 0.99), abs=0.001)


def test_the_quantile_moves_with_the_sampling_weight():
    q50 = [weighted_statistics([SIM, REAL], [1 - real, real], ["x"]).q50[0] for real in (0.1, 0.6)]
    assert q50[0] < 0.25 < 0.8 < q50[1]


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 60), st.just(2)), elements=st.floats(-10, 10)),
    st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.99]),
)
def test_equal_weights_give_numpys_quantile(rows, quantile):
    weights = np.full(len(rows), 1 / len(rows))
    expected = np.quantile(rows, quantile, axis=0, method="hazen")
    assert weighted_quantiles(rows, weights, [quantile])[0] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(1)), elements=st.floats(-10, 10)),
    st.data(),
    st.floats(0.01, 0.99),
)
def test_a_quantile_divides_the_weight(rows, data, quantile):
    raw = data.draw(hnp.arrays(np.float64, len(rows), elements=st.floats(0.01, 1)))
    weights = raw / raw.sum()
    value = weighted_quantiles(rows, weights, [quantile])[0, 0]
    below, not_above = weights[rows[:, 0] < value - 1e-9].sum(), weights[rows[:, 0] <= value + 1e-9].sum()
    assert below - weights.max() <= quantile <= not_above + weights.max()


def test_a_nearly_constant_joint_does_not_explode():
    rng = np.random.default_rng(0)
    still = 1.0 + rng.normal(scale=1e-7, size=(1000, 1))
    statistics = weighted_statistics([still], [1.0], ["joint_3.pos"])
    normalised = 2 * (1.001 - statistics.q01[0]) / (statistics.q99[0] - statistics.q01[0]) - 1
    assert abs(normalised) < 0.2
    assert abs(1.001 - statistics.mean[0]) / statistics.std[0] < 0.5
    assert statistics.floored == ("joint_3.pos",)


def test_a_moving_joint_is_left_as_it_is():
    statistics = weighted_statistics([SIM], [1.0], ["joint_1.pos"])
    assert statistics.floored == ()
    assert statistics.q99[0] - statistics.q01[0] == pytest.approx(0.98 * 0.49, rel=1e-3)


def test_a_gripper_has_its_own_floor_in_metres():
    width = np.full((100, 1), 0.04)
    statistics = weighted_statistics([width], [1.0], ["gripper.pos"])
    assert statistics.q99[0] - statistics.q01[0] == pytest.approx(0.002)


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(2)), elements=st.floats(-1e-3, 1e-3)))
def test_quantiles_stay_in_order_under_the_floor(rows):
    s = weighted_statistics([rows], [1.0], ["joint_1.pos", "gripper.pos"])
    for low, high in ((s.min, s.q01), (s.q01, s.q10), (s.q10, s.q50), (s.q50, s.q90), (s.q90, s.q99), (s.q99, s.max)):
        assert (low <= high + 1e-12).all()
    assert (s.std > 0).all()


def test_a_nan_is_refused_with_its_place():
    broken = SIM.copy()
    broken[17] = np.nan
    with pytest.raises(UserError, match=r"sim: joint_1\.pos of frame 17 is nan"):
        weighted_statistics([broken, REAL], [0.9, 0.1], ["joint_1.pos"], labels=["sim", "real"])


def test_a_source_that_is_not_sampled_does_not_count():
    broken = np.full((5, 1), np.nan)
    statistics = weighted_statistics([SIM, broken], [1.0, 0.0], ["joint_1.pos"])
    assert statistics.count == len(SIM)


def test_lerobots_normaliser_maps_the_true_quantiles_to_one():
    import torch
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.processor.normalize_processor import NormalizerProcessorStep

    statistics = weighted_statistics([SIM, REAL], [0.9, 0.1], ["joint_1.pos"])
    step = NormalizerProcessorStep(
        features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(1,))},
        norm_map={FeatureType.ACTION: NormalizationMode.QUANTILES},
        stats={"action": statistics.lerobot()},
    )
    ends = torch.tensor([[statistics.q01[0]], [statistics.q99[0]]], dtype=torch.float32)
    normalised = step._normalize_action(ends, inverse=False)
    assert normalised.flatten().tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)
