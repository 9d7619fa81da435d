"""Training by a real trainer on tiny random models: what moves, what is kept, how it resumes."""

import hashlib

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.callbacks import KeepBest
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states, token_states
from bioxbridge.losses import cosine, logits_kl
from bioxbridge.module import BridgeModule, predict
from bioxbridge.pretraining import PretrainModule
from bioxbridge.selection import Positions
from bioxbridge.task import ClassifierModule, inverse_frequency


def positions(new_block=1, old_block=1):
    return Positions(
        new_block=new_block,
        old_block=old_block,
        probe_scores=[0.1, 0.6],
        cka_scores=[0.1, 0.5, 0.2],
    )


def new_trainer(folder, epochs, callbacks=(), **options):
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        max_epochs=epochs,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        num_sanity_val_steps=0,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **options,
    )


class Setting:
    """A transformer as new model, convolutions with batch norm as old one, and random pairs."""

    def __init__(self, place=None, **options):
        torch.manual_seed(0)
        encoder = SignalEncoder(features=3, tokens=4, width=8, depth=2, heads=2)
        self.new = BlockModel(encoder, "blocks").freeze()
        blocks = [
            nn.Sequential(nn.Conv1d(6, 6, 3, padding=1), nn.BatchNorm1d(6), nn.GELU())
            for _ in range(3)
        ]
        head = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
        self.old = TaskModel(BlockModel(nn.Sequential(*blocks), blocks, layout="BDT"), head)
        for _ in range(3):
            self.old(1 + torch.randn(32, 6, 5))
        self.old.freeze()
        source = torch.randn(64, 2)
        self.new_inputs = source @ torch.randn(2, 12) + 0.1 * torch.randn(64, 12)
        self.new_inputs = self.new_inputs.view(64, 4, 3)
        self.old_inputs = (source @ torch.randn(2, 30)).view(64, 6, 5)
        self.place = place or positions()
        (pooled,) = pooled_states(self.new, self.new_inputs, [self.place.new_block + 1])
        entry, last = token_states(
            self.old.encoder, self.old_inputs, [self.place.old_block, self.old.encoder.depth]
        )
        with torch.no_grad():
            logits = self.old(self.old_inputs)
        target = entry if options.get("align_at") == "bridge" else last
        self.rows = (pooled, target, logits)
        settings = {"rank": 4, "prototypes": 6, "learning_rate": 1e-2}
        self.module = BridgeModule(**(settings | options)).connect(
            new=self.new,
            old=self.old,
            positions=self.place,
            read=pooled,
            old_hidden=entry,
            seed=0,
        )

    def fit(self, folder, epochs, callbacks=(), ckpt_path=None):
        trainer = new_trainer(folder, epochs, callbacks)
        trainer.fit(
            self.module,
            row_loader(*self.rows, batch_size=16, shuffle=True, seed=4),
            row_loader(*self.rows, batch_size=64),
            ckpt_path=ckpt_path,
        )
        return trainer

    @torch.no_grad()
    def distance(self):
        bridged = self.module.bridged
        return float(cosine(bridged.last_hidden(self.rows[0]), self.rows[1]))

    def bridge(self):
        return {n: p.detach().clone() for n, p in self.module.bridged.bridge.named_parameters()}


def digest(model):
    result = hashlib.sha256()
    for name, value in model.state_dict().items():
        result.update(name.encode() + value.numpy().tobytes())
    return result.hexdigest()


def equal(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_fit_moves_the_bridge_alone_and_the_loss_falls(tmp_path):
    setting = Setting()
    frozen = digest(setting.new), digest(setting.old)
    before, distance = setting.bridge(), setting.distance()
    setting.module.train()
    trainer = setting.fit(tmp_path, 15)
    assert (digest(setting.new), digest(setting.old)) == frozen
    after = setting.bridge()
    assert not any(torch.equal(value, after[name]) for name, value in before.items())
    assert setting.distance() < 0.5 * distance
    assert not any(m.training for m in [*setting.new.modules(), *setting.old.modules()])
    assert {"loss", "val_loss", "val_agreement"} <= set(trainer.callback_metrics)
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(
        setting.distance(), abs=1e-5
    )
    same = predict(setting.module.bridged, setting.new_inputs) == predict(
        setting.old, setting.old_inputs
    )
    assert float(trainer.callback_metrics["val_agreement"]) == pytest.approx(100 * same.mean())


def test_other_modes_learn_too(tmp_path):
    for options in ({"align_at": "bridge", "loss": "mse"}, {"kl_weight": 0.5, "loss": "l1"}):
        setting = Setting(**options)
        losses = []

        class Note(lightning.Callback):
            def on_validation_end(self, trainer, pl_module, losses=losses):
                losses.append(float(trainer.callback_metrics["val_loss"]))

        setting.fit(tmp_path, 8, [Note()])
        assert losses[-1] < losses[0]


def test_the_losses_are_the_ones_asked_for():
    setting = Setting(kl_weight=0.7, temperature=3.0, output_init="small")
    bridged = setting.module.bridged
    loss, logits = setting.module._loss(setting.rows)
    expected = cosine(bridged.last_hidden(setting.rows[0]), setting.rows[1])
    expected = expected + 0.7 * logits_kl(logits, setting.rows[2], 3.0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(logits, bridged(setting.new_inputs))
    at_bridge = Setting(align_at="bridge", loss="mse", output_init="small")
    calls = []
    at_bridge.old.encoder.module[2].register_forward_hook(lambda *_: calls.append(1))
    loss, logits = at_bridge.module._loss(at_bridge.rows)
    produced = at_bridge.module.bridged.bridge(at_bridge.rows[0])
    torch.testing.assert_close(loss, (produced - at_bridge.rows[1]).square().mean())
    assert logits is None
    assert not calls  # the tail is not needed


def test_connect_follows_its_seed_and_leaves_the_global_one():
    one = Setting()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    connect = {
        "new": one.new,
        "old": one.old,
        "positions": positions(),
        "read": one.rows[0],
        "old_hidden": torch.randn(9, 5, 6, generator=torch.Generator().manual_seed(0)),
    }
    bridges = [
        BridgeModule(rank=4, prototypes=6).connect(**connect, seed=seed).bridged.bridge.state_dict()
        for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert equal(bridges[0], bridges[1])
    assert not torch.equal(bridges[0]["down"], bridges[2]["down"])
    tokens = {tuple(row) for row in connect["old_hidden"].flatten(0, 1).tolist()}
    assert {tuple(row) for row in bridges[0]["prototypes"].tolist()} <= tokens


def test_a_checkpoint_holds_the_bridge_and_its_place(tmp_path):
    setting = Setting()
    trainer = setting.fit(tmp_path, 1)
    trainer.save_checkpoint(tmp_path / "bridge.ckpt")
    checkpoint = torch.load(tmp_path / "bridge.ckpt", weights_only=True)
    assert set(checkpoint["state_dict"]) == {
        "bridged.bridge.down",
        "bridged.bridge.up",
        "bridged.bridge.prototypes",
    }
    assert Positions(**checkpoint["positions"]) == positions()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"place": positions(new_block=0)}, "trained at new_block 1, this run selected 0"),
        ({"place": positions(old_block=2)}, "trained at old_block 1, this run selected 2"),
        ({"rank": 3}, r"bridge\.down is \(8, 4\), here \(8, 3\)"),
    ],
)
def test_the_checkpoint_of_another_bridge_is_refused(tmp_path, other, message):
    file = tmp_path / "bridge.ckpt"
    Setting().fit(tmp_path, 1).save_checkpoint(file)
    setting = Setting(**other)
    before = setting.bridge()
    with pytest.raises(ValueError, match=message):
        setting.fit(tmp_path, 2, ckpt_path=file)
    assert equal(before, setting.bridge())


def test_the_checkpoint_of_something_else_is_refused():
    with pytest.raises(ValueError, match="is no checkpoint of a bridge"):
        Setting().module.on_load_checkpoint({"state_dict": {}})


@pytest.mark.filterwarnings("ignore:.*exists and is not empty.*")
def test_resumed_training_ends_with_equal_weights(tmp_path):
    folder = tmp_path / "checkpoints"

    def callbacks():
        return [
            KeepBest("val_agreement"),
            ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1),
        ]

    def weights(epoch):
        return torch.load(folder / f"epoch={epoch}.ckpt", weights_only=True)["state_dict"]

    whole = Setting()
    whole.fit(tmp_path, 4, callbacks())
    middle, last = weights(1), weights(3)
    assert not equal(middle, last)
    for epoch in (0, 2, 3):
        (folder / f"epoch={epoch}.ckpt").unlink()
    resumed = Setting()
    resumed.fit(tmp_path, 4, callbacks(), ckpt_path=folder / "epoch=1.ckpt")
    assert {p.stem for p in folder.iterdir()} == {"epoch=1", "epoch=2", "epoch=3"}
    assert equal(last, weights(3))  # where training ended
    assert equal(whole.bridge(), resumed.bridge())  # the best epoch, put back


class Scripted(lightning.LightningModule):
    """Logs given scores; its weight counts the steps, and one parameter is frozen."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores
        self.weight = nn.Parameter(torch.zeros(1))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)

    def training_step(self, batch, batch_index):
        return -self.weight.sum()

    def validation_step(self, batch, batch_index):
        self.log("score", self.scores[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD([self.weight], lr=1.0)


@pytest.mark.parametrize(
    ("mode", "scores", "best"),
    [
        ("max", [1.0, 5.0, 2.0, 3.0], 1),
        ("max", [1.0, 5.0, 5.0, 3.0], 2),
        ("min", [4.0, 5.0, 2.0, 3.0], 2),
        ("min", [0.0, 5.0, 2.0, 3.0], 0),
        ("max", [1.0, 2.0, 3.0, 4.0], 3),
    ],
)
def test_keep_best_restores_the_best_epoch(tmp_path, mode, scores, best):
    module, keep = Scripted(scores), KeepBest("score", mode)
    loader = row_loader(torch.zeros(4), batch_size=4)
    new_trainer(tmp_path, 4, [keep]).fit(module, loader, loader)
    assert keep.best_epoch == best
    assert keep.best == scores[best]
    assert set(keep.weights) == {"weight"}
    assert float(module.weight.detach()) == best + 1  # one step an epoch


def test_keep_best_travels(tmp_path):
    keep, again = KeepBest("score"), KeepBest("score")
    loader = row_loader(torch.zeros(4), batch_size=4)
    trainer = new_trainer(tmp_path, 3, [keep])
    trainer.fit(Scripted([1.0, 5.0, 2.0]), loader, loader)
    again.load_state_dict(keep.state_dict())
    module = Scripted([])
    again.on_train_end(trainer, module)
    assert float(module.weight.detach()) == 2.0
    assert (again.best, again.best_epoch) == (5.0, 1)


def test_keep_best_without_its_value_changes_nothing(tmp_path):
    module, keep = Scripted([1.0, 5.0]), KeepBest("other")
    loader = row_loader(torch.zeros(4), batch_size=4)
    new_trainer(tmp_path, 2, [keep]).fit(module, loader, loader)
    assert keep.best is None
    assert float(module.weight.detach()) == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl_weight": -1.0}, "kl_weight: -1.0 is below 0"),
        ({"learning_rate": 0.0}, "learning_rate: 0.0 is not above zero"),
        ({"temperature": float("nan")}, "temperature: nan is not above zero"),
        ({"rank": 0}, "rank: 0 is not above zero"),
        ({"prototypes": -1}, "prototypes: -1 is not above zero"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=rf"model\.{message}"):
        BridgeModule(**options)


def test_pretraining_learns_to_fill_in(tmp_path):
    torch.manual_seed(0)
    encoder = SignalEncoder(features=3, tokens=6, width=16, depth=1, heads=2)
    # Every token of a window is the same: a masked one can be read off its neighbours.
    tokens = torch.randn(256, 1, 3).expand(256, 6, 3).contiguous()
    module = PretrainModule(encoder, learning_rate=1e-2)
    before = module.relative_error(tokens)
    assert module.relative_error(tokens) == before
    new_trainer(tmp_path, 15).fit(module, row_loader(tokens, batch_size=32, shuffle=True))
    assert before > 0.8
    assert module.relative_error(tokens) < 0.3


def test_classifier_trains_what_may_be_trained(tmp_path):
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    inputs = torch.randn(60, 4, 3) + 3 * nn.functional.one_hot(labels, 3).unsqueeze(1)
    encoder = SignalEncoder(features=3, tokens=4, width=8, depth=1, heads=2)
    model = TaskModel(BlockModel(encoder, "blocks").freeze(), nn.Linear(8, 3))
    before = digest(encoder)
    module = ClassifierModule(model, learning_rate=0.1, class_weights=inverse_frequency(labels, 3))
    trainer = new_trainer(tmp_path, 15)
    loader = row_loader(inputs, labels, batch_size=60)
    trainer.fit(module, loader, loader)
    assert digest(encoder) == before
    score = 100 * np.mean(predict(model, inputs, batch_size=7) == labels.numpy())
    assert float(trainer.callback_metrics["val_bacc"]) == pytest.approx(score)
    assert score > 80


def test_inverse_frequency_by_hand():
    weights = inverse_frequency(torch.tensor([0, 0, 0, 1]), 3)
    # 1/3 and 1 with mean 1 over the two classes that occur.
    torch.testing.assert_close(weights, torch.tensor([0.5, 1.5, 0.0]))


def test_the_extensions_take_their_statistics_from_the_pairs():
    setting = Setting(standardise_input=True, mean_output=True)
    bridge = setting.module.bridged.bridge
    pooled = setting.rows[0]
    torch.testing.assert_close(bridge.input_mean, pooled.mean(dim=0))
    torch.testing.assert_close(bridge.input_scale, pooled.std(dim=0, correction=0))
    # B is zero: an untrained bridge writes the mean hidden state.
    produced = bridge(pooled)
    torch.testing.assert_close(produced, bridge.output_mean.expand_as(produced))
    assert float(bridge.output_mean.abs().sum()) > 0


def test_a_checkpoint_without_the_statistics_is_refused():
    plain, extended = Setting(), Setting(standardise_input=True)
    checkpoint = {"state_dict": plain.module.state_dict()}
    plain.module.on_save_checkpoint(checkpoint)
    with pytest.raises(ValueError, match=r"lacks bridged\.bridge\.input_mean"):
        extended.module.on_load_checkpoint(checkpoint)
