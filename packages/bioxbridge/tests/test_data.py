"""Loaders that do not depend on the number of processes, and splits of tokens."""

from itertools import chain

import numpy as np
import pytest
import torch

from bioxbridge import data as data_module
from bioxbridge.data import BiosignalData, RowData, Rows, row_loader, tokenise
from bioxbridge.foundation import ARCHITECTURES
from bioxbridge.tokens import SpectralTokens
from bioxbridge.windows import Recording

ROWS = torch.arange(53)


def batches(epoch=0, **options):
    loader = row_loader(ROWS, 10 * ROWS, batch_size=8, **options)
    loader.sampler.set_epoch(epoch)
    result = []
    for first, second in loader:
        assert torch.equal(second, 10 * first)
        result.append(first.tolist())
    return result


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_together_see_the_batches_of_one(epoch, world_size):
    alone = batches(epoch, shuffle=True, seed=5)
    parts = [
        batches(epoch, shuffle=True, seed=5, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert [len(part) for part in parts] == [len(alone)] * world_size
    for whole, *shares in zip(alone, *parts, strict=True):
        assert [len(share) for share in shares] == [8 // world_size] * world_size
        assert sorted(chain(*shares)) == sorted(whole)


def test_the_order_follows_seed_and_epoch_alone():
    first = batches(0, shuffle=True, seed=1)
    torch.manual_seed(99)
    assert batches(0, shuffle=True, seed=1) == first
    assert batches(1, shuffle=True, seed=1) != first
    assert batches(0, shuffle=True, seed=2) != first


def test_shuffled_batches_are_full_and_repeat_nothing():
    order = batches(0, shuffle=True)
    assert [len(batch) for batch in order] == [8] * 6
    assert len(set(chain(*order))) == 48


def test_unshuffled_batches_hold_every_row_in_order():
    assert list(chain(*batches())) == ROWS.tolist()
    assert batches(4) == batches(0)


def test_fewer_rows_than_a_batch_are_one_batch():
    (only,) = row_loader(ROWS[:5], batch_size=8, shuffle=True)
    assert sorted(only[0].tolist()) == [0, 1, 2, 3, 4]


def test_rows_must_match():
    with pytest.raises(ValueError, match=r"rows: lengths \[3, 4\] differ"):
        Rows(torch.zeros(3), torch.zeros(4))
    rows = Rows(ROWS, 2 * ROWS)
    assert len(rows) == 53
    assert [int(value) for value in rows[7]] == [7, 14]
    assert [value.tolist() for value in rows.__getitems__([4, 2])] == [[4, 2], [8, 4]]


def recordings(people=8, seconds=12.0):
    rng = np.random.default_rng(0)
    return [
        Recording(
            name=f"visit {i}",
            subject=f"s{i}",
            signals={
                "ECG": rng.normal(size=(1, round(seconds * 50))),
                "EDA": rng.normal(size=(2, round(seconds * 32))),
            },
            rates={"ECG": 50.0, "EDA": 32.0},
            labels=np.repeat([0, 1], int(seconds) // 2),
            label_rate=1.0,
        )
        for i in range(people)
    ]


@pytest.fixture
def small(monkeypatch):
    calls = []

    def load(source, path):
        calls.append((source, path))
        return recordings()

    monkeypatch.setattr(data_module, "load_recordings", load)

    def make(**options):
        defaults = {"old": "ECG", "new": "EDA", "split_counts": (2, 1, 3, 2), "window": 3.0}
        return BiosignalData(**(defaults | options))

    make.calls = calls
    return make


def test_splits_share_no_subject_and_are_read_once(small):
    data = small(source="npz", path="somewhere")
    splits = data.split(0)
    people = [set(pairs.subjects) for pairs in splits.values()]
    assert [len(names) for names in people] == [2, 1, 3, 2]
    assert len(set.union(*people)) == 8
    # Ten windows a recording of 12 s.
    assert [len(pairs) for pairs in splits.values()] == [20, 10, 30, 20]
    assert set(data.split(1)["test"].subjects) | set(data.split(2)["test"].subjects) != people[3]
    assert small.calls == [("npz", "somewhere")]


def test_tokens_of_both_sides_are_simultaneous_and_scaled():
    tokens = SpectralTokens()
    options = {"window": 3.0, "stride": 1.0, "tokens": tokens}
    old, new = (tokenise(recordings(2), side, **options) for side in ("ECG", "EDA"))
    assert old.tokens.shape == (20, 5, 17)
    assert new.tokens.shape == (20, 5, 34)
    for side in (old, new):
        assert side.subjects.tolist() == ["s0"] * 10 + ["s1"] * 10
        assert side.labels.tolist() == [0, 0, 0, 0, -1, -1, 1, 1, 1, 1] * 2
        assert side.starts.tolist() == [*map(float, range(10))] * 2
        assert len(set(side.recordings)) == 2
    # By hand: window 4 of the second recording, before scaling.
    signal = torch.from_numpy(recordings(2)[1].signals["EDA"].astype(np.float32))
    raw = tokens(signal[None, :, 4 * 32 : 7 * 32], 32.0)
    every = tokens(torch.stack([signal[:, s * 32 : (s + 3) * 32] for s in range(10)]), 32.0)
    spread, mean = torch.std_mean(every, dim=(0, 1), correction=0)
    torch.testing.assert_close(
        new.tokens[14], ((raw - mean) / spread).clamp(-5, 5)[0], atol=1e-4, rtol=1e-4
    )


def test_recordings_too_short_for_a_window_are_left_out_or_refused():
    mixed = [*recordings(1), *recordings(2, seconds=4.0)[1:]]
    options = {"stride": 1.0, "tokens": SpectralTokens()}
    assert set(tokenise(mixed, "EDA", window=6.0, **options).subjects) == {"s0"}
    with pytest.raises(ValueError, match=r"data\.window: 13\.0 s is longer .* \(12\.0 s\)"):
        tokenise(mixed, "EDA", window=13.0, **options)


def test_a_missing_modality_is_refused(small):
    with pytest.raises(ValueError, match="visit 0: has no 'EMG', only ECG, EDA"):
        small(new="EMG").pairs()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0.0}, r"data\.window: 0\.0 seconds is not positive"),
        ({"window": float("inf")}, r"data\.window: inf seconds is not positive and finite"),
        ({"max_frequency": -3.0}, r"data\.max_frequency: -3\.0 Hz is not positive"),
        ({"means": -1}, r"data\.means: -1 is below 0"),
        ({"stride": -1.0}, r"data\.stride: -1\.0"),
        ({"frame": float("nan")}, r"data\.frame: nan"),
        ({"hop": 0.0}, r"data\.hop: 0\.0"),
        ({"batch_size": 0}, r"data\.batch_size: 0 is not positive"),
        ({"majority": 0.5}, r"data\.majority: 0\.5 is not above 0\.5"),
        ({"split_by": "block", "block": 2.0}, r"data\.block: 2\.0 s is shorter than a window"),
        ({"condition": {"ECG": "kalman"}}, r"data\.condition: ECG: 'kalman' is not one of labram"),
        ({"condition": {"ACC": "labram"}}, r"data\.condition: 'ACC' is neither 'ECG' nor 'EDA'"),
        ({"new": "ECG"}, r"data\.new: 'ECG' is also the old modality"),
    ],
)
def test_bad_settings_are_refused(small, options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_rows_come_back():
    data = RowData(train=(ROWS,), val=(ROWS[:20],), batch_size=8, seed=3)
    train = [batch[0].tolist() for batch in data.train_dataloader()]
    expected = [batch[0].tolist() for batch in row_loader(ROWS, batch_size=8, shuffle=True, seed=3)]
    assert train == expected
    assert [batch[0].tolist() for batch in data.val_dataloader()] == [list(range(20))]


def test_bad_windows_are_counted_and_left_out_on_demand(monkeypatch, caplog):
    people = recordings()
    people[0].signals["EDA"][:, : 3 * 32] = 0.5
    monkeypatch.setattr(data_module, "load_recordings", lambda *_: people)
    options = {"source": "npz", "old": "ECG", "new": "EDA", "split_counts": (2, 1, 3, 2)}
    whole = BiosignalData(**options, window=3.0).pairs()
    assert "1 of 80 windows: 1 flat; kept; data.quality drop leaves them out" in caplog.text
    kept = BiosignalData(**options, window=3.0, quality="drop").pairs()
    assert (len(whole), len(kept)) == (80, 79)
    assert torch.equal(kept.new, whole.new[1:])
    for person in people:
        person.signals["ECG"][:] = 1.0
    with pytest.raises(ValueError, match=r"data\.quality: every window is bad \(80 flat\)"):
        BiosignalData(**options, window=3.0, quality="drop").pairs()


def test_settings_name_the_newer_options_only_where_they_are_used(small):
    plain = small().settings()
    assert not {"split_by", "block", "majority", "condition"} & set(plain)
    used = small(split_by="block", majority=0.8, condition={"ECG": "hubert_ecg"}).settings()
    assert used["block"] == 30.0
    assert used["majority"] == 0.8
    assert used["condition"] == {"ECG": "hubert_ecg"}


def test_splits_by_block_leave_out_what_crosses(small):
    # 12 s a person in blocks of 6 s: of the windows of 3 s, those from second 4 and 5 cross.
    data = small(split_by="block", block=6.0, split_counts=(4, 2, 6, 4))
    pairs = data.pairs()
    assert len(pairs) == 8 * 8
    assert np.unique(pairs.subjects).tolist() == [
        f"visit {i} {span} s" for i in range(8) for span in ("0-6", "6-12")
    ]
    assert pairs.labels[:8].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    parts = data.split(3)
    assert [len(part) for part in parts.values()] == [16, 8, 24, 16]
    blocks = [set(part.subjects) for part in parts.values()]
    assert len(set.union(*blocks)) == sum(map(len, blocks)) == 16
    # Those that score a run later find the same windows.
    windows = data.windows("EDA") if data._recordings else small(source="npz").windows("EDA")
    kept = data.masks(data.groups(windows), 3)["test"]
    torch.testing.assert_close(windows.tokens[torch.from_numpy(kept)], parts["test"].new)


def test_the_published_split_by_window_leaks(small):
    data = small(split_by="window", split_counts=(33, 11, 33, 22))
    parts = data.split(0)
    assert sum(map(len, parts.values())) == len(data.pairs())
    people = [{name.split()[1] for name in part.subjects} for part in parts.values()]
    assert people[0] & people[3]
    assert data.settings()["split_by"] == "window"


def test_too_few_labels_in_a_block_split_are_told_with_few_names(small, monkeypatch):
    people = recordings()
    for person in people:
        person.labels[:] = -1
    monkeypatch.setattr(data_module, "load_recordings", lambda *_: people)
    data = small(split_by="block", block=3.0, split_counts=(9, 1, 1, 1))
    with pytest.raises(ValueError, match=r"no window of the train blocks of split 0 .*, \.\.\.\)"):
        data.split(0)


def test_a_conditioned_modality_is_cut_at_the_same_moments():
    whole = tokenise(recordings(1), "ECG", window=3.0, stride=1.0, tokens=SpectralTokens())
    seen = []

    def tokens(windows, rate):
        seen.append((windows, rate))
        return SpectralTokens()(windows, rate)

    person = recordings(1)[0]
    person.signals["ECG"][:, 100:250] = 0.25
    condition = ARCHITECTURES["ecg_fm"]
    ready = tokenise(
        [person], "ECG", window=3.0, stride=1.0, tokens=tokens, majority=0.6, condition=condition
    )
    windows, rate = seen[0]
    assert rate == 500.0
    assert windows.shape == (10, 1, 1500)
    expected = condition.condition(person.signals["ECG"], 50.0)[:, 2000:3500]
    np.testing.assert_allclose(windows[4], expected.astype(np.float32))
    # The raw signal is flat from second 2 to 5; the filtered one nowhere.
    assert ready.quality.flat.tolist() == [False, False, True, *[False] * 7]
    assert whole.labels.tolist() == [0, 0, 0, 0, -1, -1, 1, 1, 1, 1]
    assert ready.labels.tolist() == [0] * 5 + [1] * 5
    assert ready.starts.tolist() == whole.starts.tolist()


def test_a_bad_block_leaves_the_other_blocks_where_they_were(small, monkeypatch):
    options = {"split_by": "block", "block": 6.0, "split_counts": (4, 2, 6, 4)}
    before = small(**options).split(0)
    people = recordings()
    people[2].signals["EDA"][:, : 6 * 32] = 0.5
    monkeypatch.setattr(data_module, "load_recordings", lambda *_: people)
    after = small(**options, quality="drop").split(0)
    for name, part in before.items():
        kept = set(part.subjects) - {"visit 2 0-6 s"}
        assert set(after[name].subjects) == kept
    for person in people:
        person.signals["EDA"][:, : 6 * 32] = 0.5
    whole = {"split_by": "block", "block": 6.0, "split_counts": (13, 1, 1, 1), "quality": "drop"}
    data = small(**whole)
    data.pairs()
    # Every person's first block is gone; find a split that deals one of them to val alone.
    blocks, _ = data._dealt
    seed = next(s for s in range(9) if "0-6" in blocks[data.masks(blocks, s)["val"]][0])
    with pytest.raises(ValueError, match=rf"no window of the val blocks of split {seed} is good"):
        data.split(seed)
