"""Recordings, windows, pairs and splits by subject."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bioxbridge.windows import (
    Pairs,
    Recording,
    cut_windows,
    split_blocks,
    split_subjects,
    time_blocks,
)


def recording(seconds=10.0, labels=None, **options):
    ramp = {
        "ECG": np.arange(round(seconds * 50), dtype=np.float32)[None],
        "EDA": np.stack([np.arange(round(seconds * 4), dtype=np.float32)] * 2),
    }
    return Recording(
        **{
            "name": "visit 3",
            "subject": "s1",
            "signals": ramp,
            "rates": {"ECG": 50.0, "EDA": 4.0},
            "labels": np.zeros(int(np.ceil(seconds)), int) if labels is None else labels,
            "label_rate": 1.0,
        }
        | options
    )


def test_windows_start_together_in_every_modality():
    visit = recording()
    fast, labels = cut_windows(visit, "ECG", seconds=2.0, stride=0.5)
    slow, same = cut_windows(visit, "EDA", seconds=2.0, stride=0.5)
    assert fast.shape == (17, 1, 100)
    assert slow.shape == (17, 2, 8)
    assert np.array_equal(labels, same)
    np.testing.assert_array_equal(fast[:, 0, 0] / 50, np.arange(17) * 0.5)
    np.testing.assert_array_equal(slow[:, 0, 0] / 4, np.arange(17) * 0.5)
    assert fast.dtype == slow.dtype == np.float32


@settings(max_examples=60)
@given(
    st.floats(5.0, 20.0), st.floats(1.0, 4.0), st.floats(0.3, 2.0), st.sampled_from([31.7, 64, 100])
)
def test_as_many_windows_whatever_the_rate(seconds, window, stride, rate):
    visit = recording(
        signals={
            "ECG": np.zeros((1, round(seconds * rate)), np.float32),
            "EDA": np.zeros((1, round(seconds * 4)), np.float32),
        },
        rates={"ECG": float(rate), "EDA": 4.0},
        labels=np.zeros(int(np.ceil(seconds)), int),
    )
    fast, _ = cut_windows(visit, "ECG", seconds=window, stride=stride)
    slow, _ = cut_windows(visit, "EDA", seconds=window, stride=stride)
    assert len(fast) == len(slow) == int((visit.seconds - window + 1e-6) / stride) + 1
    assert fast.shape[2] == round(window * rate)
    assert slow.shape[2] == round(window * 4)


def test_a_window_over_a_change_has_no_label():
    visit = recording(labels=np.array([0, 0, 0, 2, 2, 2, -1, -1, 1, 1]))
    _, labels = cut_windows(visit, "ECG", seconds=2.0, stride=1.0)
    assert labels.tolist() == [0, 0, -1, 2, 2, -1, -1, -1, 1]
    # A window that covers a part of a step counts that step.
    _, labels = cut_windows(visit, "ECG", seconds=2.0, stride=0.5)
    assert labels[:6].tolist() == [0, 0, 0, -1, -1, -1]


def test_a_class_may_have_the_majority_of_a_window():
    visit = recording(labels=np.array([0, 0, 0, 0, 1, -1, -1, -1, -1, 2]))
    options = {"seconds": 5.0, "stride": 1.0}
    _, labels = cut_windows(visit, "ECG", **options, majority=0.8)
    # 4 of 5 are class 0; then 3; unknown steps are a class of their own.
    assert labels.tolist() == [0, -1, -1, -1, -1, -1]
    _, labels = cut_windows(visit, "ECG", **options, majority=0.6)
    assert labels.tolist() == [0, 0, -1, -1, -1, -1]
    _, strict = cut_windows(visit, "ECG", **options)
    assert strict.tolist() == [-1] * 6
    for majority in (0.5, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"majority: .* is not above 0\.5 and at most 1"):
            cut_windows(visit, "ECG", **options, majority=majority)


def test_labels_have_their_own_rate():
    visit = recording(labels=np.repeat([0, 1], 20), label_rate=4.0)
    _, labels = cut_windows(visit, "EDA", seconds=1.0, stride=1.0)
    assert labels.tolist() == [0] * 5 + [1] * 5


def test_the_last_step_of_labels_may_be_missing():
    assert recording(labels=np.zeros(9, int)).seconds == 10
    # A window in that step alone has no label.
    _, labels = cut_windows(recording(labels=np.zeros(9, int)), "ECG", seconds=0.5, stride=0.5)
    assert labels.tolist() == [0] * 18 + [-1] * 2
    with pytest.raises(ValueError, match=r"8 labels at 1\.0 a second"):
        recording(labels=np.zeros(8, int))


def test_a_short_recording_gives_no_window():
    windows, labels = cut_windows(recording(), "EDA", seconds=11.0, stride=1.0)
    assert windows.shape == (0, 2, 44)
    assert labels.shape == (0,)
    whole, _ = cut_windows(recording(), "EDA", seconds=10.0, stride=1.0)
    assert whole.shape == (1, 2, 40)


def test_an_unknown_modality_is_refused():
    with pytest.raises(ValueError, match="visit 3: has no 'EMG', only ECG, EDA"):
        cut_windows(recording(), "EMG", seconds=2.0, stride=1.0)


def test_a_conditioned_modality_keeps_its_windows():
    visit = recording(seconds=9.98)

    def slower(signal, rate):
        return signal[:, ::2][:, :-1]

    changed = visit.conditioned("ECG", slower, 25.0)
    assert changed.rates == {"ECG": 25.0, "EDA": 4.0}
    # 499 samples at 50 Hz last as long as 249.5 at 25 Hz: one is repeated.
    assert changed.signals["ECG"].shape == (1, 250)
    assert changed.signals["ECG"][0, -2:].tolist() == [496.0, 496.0]
    assert changed.signals["EDA"] is visit.signals["EDA"]
    assert visit.rates["ECG"] == 50.0
    whole, _ = cut_windows(visit, "ECG", seconds=2.0, stride=1.0)
    same, _ = cut_windows(changed, "ECG", seconds=2.0, stride=1.0)
    # The repeated sample ends a ninth window; the other eight are cut at the same moments.
    assert (len(whole), len(same)) == (8, 9)
    np.testing.assert_array_equal(same[:8], whole[:, :, ::2])
    with pytest.raises(ValueError, match="visit 3: has no 'EMG'"):
        visit.conditioned("EMG", slower, 25.0)

    def refuses(signal, rate):
        raise ValueError("signal: too short")

    with pytest.raises(ValueError, match="visit 3: ECG: signal: too short"):
        visit.conditioned("ECG", refuses, 25.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_samples_are_located(value):
    signals = recording().signals
    signals["EDA"][1, 6] = signals["EDA"][1, 9] = value
    message = rf"visit 3: EDA: channel 1, sample 6 \(1\.50 s\) is {value}.*\(2 such\)"
    with pytest.raises(ValueError, match=message):
        recording(signals=signals)


def test_modalities_of_different_duration_are_refused():
    signals = recording().signals
    signals["EDA"] = signals["EDA"][:, :35]  # 1.25 s less
    with pytest.raises(ValueError, match=r"differ in duration \(ECG 10.0 s, EDA 8.8 s\)"):
        recording(signals=signals)
    signals["EDA"] = recording().signals["EDA"][:, :36]
    assert recording(signals=signals).seconds == 9.0


def test_bad_shapes_and_rates_are_refused():
    for shape in ((5,), (1, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"ECG: shape .* is not \(channels, samples\)"):
            recording(signals={"ECG": np.zeros(shape)})
    for rates in ({"ECG": 0.0}, {"ECG": -1.0}, {"ECG": float("nan")}, {}):
        with pytest.raises(ValueError, match=r"ECG: sampling rate .* Hz is not positive"):
            recording(rates=rates)


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.integers(0, 4),
    st.integers(0, 1000),
    st.integers(1, 5),
)
def test_splits_share_no_subject(counts, spare, seed, windows):
    people = sum(counts) + spare
    subjects = np.repeat([f"s{i:02d}" for i in range(people)], windows)
    masks = split_subjects(subjects, counts, seed)
    assert list(masks) == ["train", "val", "pair", "test"]
    for mask, count in zip(masks.values(), counts, strict=True):
        assert len(np.unique(subjects[mask])) == count
        assert mask.sum() == count * windows
    assert np.stack(list(masks.values())).sum(axis=0).max() == 1
    again = split_subjects(subjects, counts, seed)
    assert all(np.array_equal(mask, again[name]) for name, mask in masks.items())


def test_splits_depend_on_the_seed():
    subjects = np.array([f"s{i}" for i in range(8)])
    tests = {tuple(split_subjects(subjects, [2, 2, 2, 2], seed)["test"]) for seed in range(10)}
    assert len(tests) > 3


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1], []])
def test_counts_that_are_no_split_are_refused(counts):
    with pytest.raises(ValueError, match="are not four counts of at least 1"):
        split_subjects(np.array(["a", "b", "c", "d"]), counts, 0)


def test_too_few_subjects_are_refused():
    with pytest.raises(ValueError, match=r"\[1, 1, 1, 2\] need 5 subjects, there are 4"):
        split_subjects(np.array(["a", "b", "c", "d"] * 3), [1, 1, 1, 2], 0)


def test_blocks_of_time_share_no_moment():
    starts = np.tile(np.arange(0, 28.5, 0.5), 2)
    recordings = np.repeat(["a", "b"], 57)
    blocks = time_blocks(recordings, starts, window=2.0, block=10.0)
    # By hand: from 0 to 8, 10 to 18 and 20 to 28 s; those between cross into the next block.
    assert np.unique(blocks).tolist() == [
        "",
        *(f"{n} {s}-{s + 10} s" for n in "ab" for s in (0, 10, 20)),
    ]
    assert (blocks[:57] == "").sum() == 2 * 3
    assert starts[blocks == "b 10-20 s"].tolist() == np.arange(10, 18.5, 0.5).tolist()
    masks = split_blocks(blocks, [2, 1, 2, 1], 0)
    assert [len(np.unique(blocks[mask])) for mask in masks.values()] == [2, 1, 2, 1]
    assert np.stack(list(masks.values())).sum(axis=0).tolist() == (blocks != "").tolist()
    spans = {
        name: [(r, s, s + 2.0) for r, s in zip(recordings[mask], starts[mask], strict=True)]
        for name, mask in masks.items()
    }
    for name, own in spans.items():
        for other in set(spans) - {name}:
            assert not [
                1
                for r, begin, end in own
                for q, start, stop in spans[other]
                if r == q and begin < stop and start < end
            ]
    assert len({tuple(split_blocks(blocks, [2, 1, 2, 1], seed)["test"]) for seed in range(9)}) > 2


def test_blocks_are_dealt_out_by_shares():
    blocks = np.array([f"r {i}" for i in range(68)])
    masks = split_blocks(blocks, [33, 11, 33, 22], 1)
    # 22.67, 7.56, 22.67 and 15.11 of 68, rounded at their sums 22.67, 30.22, 52.89 and 68.
    assert [int(mask.sum()) for mask in masks.values()] == [23, 7, 23, 15]


def test_blocks_that_cannot_be_dealt_are_refused():
    with pytest.raises(ValueError, match=r"block: 2 s are shorter than a window of 3 s"):
        time_blocks(np.array(["a"]), np.zeros(1), window=3.0, block=2.0)
    with pytest.raises(ValueError, match=r"\[9, 1, 9, 9\] deal 4 blocks out as \[1, 0, 2, 1\]"):
        split_blocks(np.array(["a", "b", "c", "d", ""]), [9, 1, 9, 9], 0)
    with pytest.raises(ValueError, match="are not four shares of at least 1"):
        split_blocks(np.array(["a", "b"]), [1, 0, 1, 1], 0)


def pairs(old=6, new=6, labels=6, subjects=6):
    return Pairs(
        torch.arange(old), 10 * torch.arange(new), torch.arange(labels) % 3, np.arange(subjects)
    )


@pytest.mark.parametrize("side", ["old", "new", "labels", "subjects"])
def test_sides_that_do_not_match_are_refused(side):
    with pytest.raises(ValueError, match="do not match"):
        pairs(**{side: 5})


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="no windows"):
        pairs(0, 0, 0, 0)


def test_pairs_keep_their_rows_together():
    six = pairs()
    assert len(six) == 6
    assert six.classes == 3
    assert [int(value) for value in six[4]] == [4, 40, 1]
    for rows in (np.array([1, 4]), np.arange(6) % 3 == 1):
        part = six.subset(rows)
        assert part.old.tolist() == [1, 4]
        assert part.new.tolist() == [10, 40]
        assert part.labels.tolist() == [1, 1]
        assert part.subjects.tolist() == [1, 4]


def test_labels_must_cover_the_signals():
    with pytest.raises(ValueError, match=r"5 labels at 1\.0 a second cover 5\.0 s of 40\.0 s"):
        Recording(
            name="r",
            subject="s",
            signals={"ECG": np.zeros((1, 400))},
            rates={"ECG": 10.0},
            labels=np.zeros(5, int),
            label_rate=1.0,
        )
