"""An epoch of the bridge against an epoch of the distillation student, alternating in one process.

Both on the default sizes with caches filled; the bridge at every old block.
"""

import statistics
from dataclasses import replace
from pathlib import Path

import torch

from bioxbridge.adapters import TaskModel
from bioxbridge.baselines.distillation import DistillationModule, new_student
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import token_states
from bioxbridge.frozen import FrozenFeatures, Transfer, frozen_encoder
from bioxbridge.module import BridgeModule
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs
from papers_shared.device import set_threads
from papers_shared.measure import Cost
from papers_shared.readme import write_results

REPEATS = 9
WINDOWS = 1408
RESULTS = Path(__file__).with_name("results.json")


def epoch_seconds(module: torch.nn.Module, rows: tuple[torch.Tensor, ...], seed: int) -> float:
    """One pass of forward, backward and Adam over the rows, without a trainer around it."""
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-3)
    module.log = lambda *_, **__: None
    loader = row_loader(*rows, batch_size=64, shuffle=True, seed=seed)
    with Cost() as cost:
        for index, batch in enumerate(loader):
            optimizer.zero_grad()
            module.training_step(batch, index).backward()
            optimizer.step()
    return cost.seconds


def run() -> None:
    set_threads(1)
    torch.manual_seed(0)
    tokens = torch.randn(2, WINDOWS, 7, 51)
    pairs = Pairs(
        tokens[0], tokens[1], torch.zeros(WINDOWS, dtype=int), torch.zeros(WINDOWS).numpy()
    )
    new = frozen_encoder(SignalEncoder(features=51, tokens=7))
    encoder = frozen_encoder(SignalEncoder(features=51, tokens=7))
    old = TaskModel(encoder, torch.nn.Linear(48, 7)).freeze()
    features = FrozenFeatures.of(pairs, new=new, old=old)
    positions = Positions(new_block=0, old_block=0, probe_scores=[0.0] * 4, cka_scores=[0.0] * 4)
    transfer = Transfer(
        new=new, old=old, pairs={"pair": pairs}, features={"pair": features}, positions=positions
    )
    distillation = DistillationModule(new_student("logits", transfer, seed=0))
    student_rows = (pairs.new, features.last_pooled, features.logits)
    ratios = {}
    for block in range(encoder.depth):
        hidden, target = token_states(encoder, pairs.old, [block, encoder.depth])
        bridge = BridgeModule().connect(
            new=new,
            old=old,
            positions=replace(positions, old_block=block),
            read=features.new_pooled[0],
            old_hidden=hidden,
        )
        rows = (features.new_pooled[0], target, features.logits)
        epoch_seconds(bridge, rows, 0)
        epoch_seconds(distillation, student_rows, 0)
        ratios[block] = [
            epoch_seconds(bridge, rows, i) / epoch_seconds(distillation, student_rows, i)
            for i in range(REPEATS)
        ]
    text = ", ".join(
        f"l={block} {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
        for block, values in ratios.items()
    )
    row = {
        "id": "epoch",
        "claim": "A training epoch costs less than one of distillation",
        "paper": "1.9 h against 6.5 h for 50 epochs (0.29)",
        "ours": f"ratio {text}",
        "condition": f"median of {REPEATS}, alternating; 4 blocks, caches filled",
        "held": statistics.median(ratios[0]) < 1,
        "headline": False,
    }
    write_results(RESULTS, package="bioxbridge", seeds=[], rows=[row])


if __name__ == "__main__":
    run()
