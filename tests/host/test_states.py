"""States of the host: modes of exchange times, and the samples in each state."""

import itertools
import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from memkern.host.rates import CoreRates, labels_of, modes_of

WIDTH = 0.01


def counts(values: npt.ArrayLike) -> Counter[int]:
    return Counter(np.floor(np.log(np.asarray(values)) / WIDTH).astype(int).tolist())


def drawn(*modes: tuple[float, int], spread: float = 0.06) -> npt.NDArray[np.float64]:
    """Return the given number of values around the centre of each mode."""
    rng = np.random.default_rng(7)
    return np.concatenate([rng.lognormal(math.log(c), spread, n) for c, n in modes])


@pytest.mark.parametrize("number", [30, 300, 30_000])
def test_modes_of_recorded_hosts_are_found(number):
    values = drawn((40e-9, number), (65e-9, 9 * number), (215e-9, 2 * number))
    found = modes_of(counts(values), WIDTH)
    assert [round(mode.share, 2) for mode in found] == pytest.approx([0.08, 0.75, 0.17], abs=0.02)
    for mode, centre in zip(found, (40e-9, 65e-9, 215e-9), strict=True):
        assert mode.low < centre < mode.high
    # There is no gap between consecutive modes.
    assert all(a.high == b.low for a, b in itertools.pairwise(found))


def test_one_mode_is_not_divided():
    for spread in (0.001, 0.05, 0.15):
        for number in (1, 10, 100, 10_000):
            found = modes_of(counts(drawn((5e-8, number), spread=spread)), WIDTH)
            # Of ten values, one can be so far from the others that it is a mode.
            assert len(found) <= (2 if number == 10 and spread == 0.15 else 1)
            assert max(mode.share for mode in found) >= 0.9
            assert found[0].low < 5e-8 < found[-1].high
    assert modes_of({}, WIDTH) == []
    (only,) = modes_of({0: 1}, WIDTH)
    assert only.share == 1 and only.low < 1 < only.high


def test_a_rare_value_is_no_mode():
    found = modes_of(counts(drawn((5e-8, 1000), (2e-7, 20))), WIDTH)
    assert len(found) == 1 and found[0].share == pytest.approx(1000 / 1020)


def test_samples_are_labelled_by_both_exchanges_beside_them():
    known = modes_of(counts(drawn((5e-8, 1000), (2e-7, 1000))), WIDTH)
    ranges = np.array([[5e-8, 5.1e-8], [5e-8, 2e-7], [2e-7, 2.1e-7], [np.nan, np.nan], [1.0, 1.0]])
    # The state changed during the second sample.
    assert labels_of(ranges, known).tolist() == [0, -1, 1, -1, -1]
    assert labels_of(ranges, []).tolist() == [-1] * 5
    assert labels_of(np.empty((0, 2)), known).tolist() == []


def test_modes_include_those_of_earlier_processes():
    first = CoreRates()
    first.add(1 / drawn((5e-8, 500)), "exchanges")
    known = CoreRates({"exchanges": first.added["exchanges"]})
    assert len(known.modes("exchanges")) == 1 and known.modes("others") == []
    known.add(1 / drawn((2e-7, 300)), "exchanges")
    far, near = known.modes("exchanges")
    assert far.low < 1 / 2e-7 < far.high and near.low < 1 / 5e-8 < near.high
