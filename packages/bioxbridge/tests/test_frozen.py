"""The transfer problem: what frozen models say, subsets of it, labels along time."""

import numpy as np
import pytest
import torch
from lightning import Trainer
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.encoder import SignalEncoder
from bioxbridge.fitting import fit_bridge
from bioxbridge.frozen import FrozenFeatures, Transfer
from bioxbridge.module import BridgeModule, predict
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs


def models(segments=None):
    torch.manual_seed(0)
    new = BlockModel(SignalEncoder(features=3, tokens=6, width=8, depth=3, heads=2), "blocks")
    old = BlockModel(SignalEncoder(features=2, tokens=4, width=6, depth=2, heads=2), "blocks")
    return new.freeze(), TaskModel(old, nn.Linear(6, 2), segments=segments).freeze()


def windows(count=40):
    torch.manual_seed(1)
    people = np.arange(count) % 4
    labels = torch.zeros(count, dtype=int)
    return Pairs(torch.randn(count, 4, 2), torch.randn(count, 6, 3), labels, people)


def between(segments=None):
    new, old = models(segments)
    place = Positions(new_block=1, old_block=0, probe_scores=[0.0], cka_scores=[0.0])
    return Transfer.between(new, old, pair=windows(), val=windows(12), positions=place)


@pytest.mark.parametrize("cached", [False, True])
def test_features_are_those_of_the_models(cached, tmp_path):
    (new, old), pairs = models(), windows()
    features = FrozenFeatures.of(pairs, new=new, old=old, cache=tmp_path if cached else None)
    with torch.no_grad():
        torch.testing.assert_close(features.logits, old(pairs.old))
        torch.testing.assert_close(features.new_pooled[1], new.forward_to(pairs.new, 1).mean(dim=1))
        torch.testing.assert_close(features.last_pooled, old.encoder(pairs.old).mean(dim=1))
    assert (len(features.new_pooled), len(features.old_pooled)) == (3, 2)


def test_a_share_of_the_pairs_keeps_rows_together():
    transfer = between()
    thin = transfer.with_pairs(0.25, seed=3)
    whole, part = transfer.features["pair"], thin.features["pair"]
    assert len(thin.pairs["pair"]) == 10
    rows = [int(np.flatnonzero((whole.logits == row).all(dim=1).numpy())[0]) for row in part.logits]
    assert rows == sorted(set(rows))
    assert torch.equal(part.new_pooled[2], whole.new_pooled[2][rows])
    assert torch.equal(thin.pairs["pair"].new, transfer.pairs["pair"].new[rows])
    assert len(thin.pairs["val"]) == 12
    assert len(transfer.with_pairs(1e-9, seed=0).pairs["pair"]) == 1
    with pytest.raises(ValueError, match=r"pairs: a share of 1\.5 is not in \(0, 1\]"):
        transfer.with_pairs(1.5, seed=0)


def test_each_bridge_needs_a_trainer_of_its_own():
    transfer = between()
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, enable_model_summary=False, **options)
    fit_bridge(BridgeModule(prototypes=8), transfer, trainer)
    with pytest.raises(ValueError, match="trainer: has trained before"):
        fit_bridge(BridgeModule(prototypes=8), transfer, trainer)


def test_a_bridge_that_diverges_is_refused():
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=2, enable_model_summary=False, **options)
    with pytest.raises(ValueError, match="bridge: training diverged"):
        fit_bridge(BridgeModule(prototypes=8, learning_rate=1e30), between(), trainer)


def test_labels_along_time_are_bridged_token_by_token():
    transfer = between(segments=4)
    assert transfer.features["pair"].logits.shape == (40, 4, 2)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, enable_model_summary=False, **options)
    bridged = fit_bridge(BridgeModule(bridge="per_token", prototypes=8), transfer, trainer)
    assert predict(bridged, transfer.pairs["val"].new).shape == (12, 4)
    trainer = Trainer(max_epochs=1, enable_model_summary=False, **options)
    with pytest.raises(ValueError, match="take one that reads tokens"):
        fit_bridge(BridgeModule(prototypes=8), transfer, trainer)
