"""What a bridge saves: training epochs and memory beside distillation, passes over frozen models.

Every ratio is of two arms in one process that alternate; caches are filled as they are in a run.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from setting import write

from bioxbridge.adapters import BlockModel, TaskModel
from bioxbridge.baselines.distillation import DistillationModule, new_student
from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from bioxbridge.features import pooled_states, token_states
from bioxbridge.frozen import FrozenFeatures, Transfer, frozen_encoder
from bioxbridge.module import BridgeModule
from bioxbridge.selection import Positions
from bioxbridge.windows import Pairs
from papers_shared.device import set_threads
from papers_shared.measure import Cost

REPEATS = 5
# At most this share of distillation's seconds, and of its memory.
EPOCH_TARGET, MEMORY_TARGET = 0.4, 0.6
# A pass for all blocks is at least this share of the number of blocks faster.
PASS_TARGET = 0.7


@dataclass(frozen=True, kw_only=True)
class Size:
    """An encoder and a number of windows."""

    name: str
    windows: int
    tokens: int
    width: int
    depth: int


SMALL = Size(name="4 blocks of width 48, 7 tokens", windows=1408, tokens=7, width=48, depth=4)
LARGE = Size(name="8 blocks of width 256, 46 tokens", windows=64, tokens=46, width=256, depth=8)


def problem(size: Size) -> Transfer:
    """Random models and windows; both modalities have the same sizes."""
    torch.manual_seed(0)
    sizes = {"features": 51, "tokens": size.tokens, "width": size.width, "depth": size.depth}
    new, encoder = (frozen_encoder(SignalEncoder(**sizes)) for _ in range(2))
    old = TaskModel(encoder, torch.nn.Linear(size.width, 7)).freeze()
    inputs = torch.randn(2, size.windows, size.tokens, 51)
    labels = torch.zeros(size.windows, dtype=int)
    pairs = Pairs(inputs[0], inputs[1], labels, labels.numpy())
    scores = [0.0] * size.depth
    return Transfer(
        new=new,
        old=old,
        pairs={"pair": pairs},
        features={"pair": FrozenFeatures.of(pairs, new=new, old=old)},
        positions=Positions(new_block=0, old_block=0, probe_scores=scores, cka_scores=scores),
    )


def epoch(module: torch.nn.Module, rows: tuple[torch.Tensor, ...]) -> Callable[[], Cost]:
    """One pass of forward, backward and Adam over the rows, without a trainer around it."""
    module.log = lambda *_, **__: None

    def run() -> Cost:
        loader = row_loader(*rows, batch_size=64, shuffle=True)
        with Cost(interval=0.002) as cost:
            optimizer = module.configure_optimizers()
            for index, batch in enumerate(loader):
                optimizer.zero_grad()
                module.training_step(batch, index).backward()
                optimizer.step()
            optimizer.zero_grad()
        return cost

    return run


def alternate(ours: Callable[[], Cost], theirs: Callable[[], Cost]) -> tuple[float, float]:
    """Median ratios of seconds and of memory; one unmeasured turn each first."""
    ours(), theirs()
    costs = [(ours(), theirs()) for _ in range(REPEATS)]
    return (
        statistics.median(a.seconds / b.seconds for a, b in costs),
        statistics.median(a.memory / max(b.memory, 0.1) for a, b in costs),
    )


def against_distillation(size: Size) -> dict[int, tuple[float, float]]:
    """Ratios by the old block that the bridge writes into."""
    transfer = problem(size)
    pair, inputs = transfer.features["pair"], transfer.pairs["pair"]
    student = DistillationModule(new_student("logits", transfer, seed=0))
    theirs = epoch(student, (inputs.new, pair.last_pooled, pair.logits))
    ratios = {}
    for block in range(size.depth):
        place = [block, size.depth]
        hidden, target = token_states(transfer.old.encoder, inputs.old, place)
        bridge = BridgeModule().connect(
            new=transfer.new,
            old=transfer.old,
            positions=replace(transfer.positions, old_block=block),
            read=pair.new_pooled[0],
            old_hidden=hidden,
        )
        ratios[block] = alternate(epoch(bridge, (pair.new_pooled[0], target, pair.logits)), theirs)
    return ratios


def one_pass(size: Size) -> float:
    """How many times faster all blocks come in one pass than by one run a block."""
    model = problem(size).new
    inputs = torch.randn(size.windows, size.tokens, 51)

    def ours() -> Cost:
        with Cost() as cost:
            pooled_states(model, inputs)
        return cost

    def theirs() -> Cost:
        with Cost() as cost:
            for block in range(model.depth):
                _run_whole_model_for(model, block, inputs)
        return cost

    return 1 / alternate(ours, theirs)[0]


@torch.no_grad()
def _run_whole_model_for(model: BlockModel, block: int, inputs: torch.Tensor) -> torch.Tensor:
    kept = []
    hook = model.blocks[block].register_forward_hook(
        lambda _module, _inputs, output: kept.append(output.mean(dim=1))
    )
    for batch in inputs.split(512):
        model.module(batch)
    hook.remove()
    return torch.cat(kept)


def measure() -> None:
    set_threads(1)
    rows = []
    for size, key in ((SMALL, "small"), (LARGE, "large")):
        ratios = against_distillation(size)
        upper = [block for block in ratios if block >= size.depth // 2]
        for index, what, target, paper in (
            (0, "epoch", EPOCH_TARGET, "1.9 h against 6.5 h for 50 epochs (0.29)"),
            (1, "memory", MEMORY_TARGET, "fits where distillation needs a batch of half the size"),
        ):
            listed = ", ".join(f"l={block} {found[index]:.2f}" for block, found in ratios.items())
            claim = {
                "epoch": f"In the upper half, an epoch takes at most {target} of distillation's",
                "memory": f"In the upper half, training takes at most {target} of its memory",
            }[what]
            rows.append(
                {
                    "id": f"{what}-{key}",
                    "claim": claim,
                    "paper": paper,
                    "ours": f"ratio {listed}",
                    "condition": f"{size.name}; median of {REPEATS}, alternating",
                    "held": all(ratios[block][index] <= target for block in upper),
                    "headline": False,
                }
            )
        faster = one_pass(size)
        rows.append(
            {
                "id": f"pass-{key}",
                "claim": "Features of all blocks come in one pass, not in one run a block",
                "paper": "published code runs the whole model once a block",
                "ours": f"{faster:.1f} times faster with {size.depth} blocks",
                "condition": f"{size.name}; median of {REPEATS}, alternating",
                "held": faster >= PASS_TARGET * size.depth,
                "headline": False,
            }
        )
    write(seeds=[], rows=rows)


if __name__ == "__main__":
    measure()
