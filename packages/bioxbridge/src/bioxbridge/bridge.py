"""The prototype bridge, the only part of BioX-Bridge that is trained.

"BioX-Bridge: Model Bridging for Unsupervised Cross-Modal Knowledge Transfer across Biosignals",
arXiv 2510.02276, ICLR 2026, section 3. The bridge turns one pooled vector of the new modality's
model into a whole hidden state of the old modality's.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PrototypeInit = Literal["real", "normal", "kmeans"]
OutputInit = Literal["zeros", "small"]
# What a bridge reads of the new model: the mean token (B, d_m), or all tokens (B, T_m, d_m).
Reads = Literal["pooled", "tokens"]


class PrototypeBridge(nn.Module):
    r"""Aggregate learnable prototypes with weights that a low-rank map predicts.

    $$W = \mathrm{reshape}(p A B) \in R^{T \times N}, \qquad \tilde h = W P$$

    with $p \in R^{d_m}$ the pooled hidden state of the new model, $A \in R^{d_m \times r}$,
    $B \in R^{r \times T N}$ and prototypes $P \in R^{N \times d_l}$. The weights are free linear
    coefficients, there is no softmax.

    Args:
        input_width: $d_m$, width of the new model at the block the bridge reads.
        tokens: $T$, tokens of the old model at the block the bridge writes.
        output_width: $d_l$, width of the old model there.
        rank: $r$, at least 1.
        prototypes: $N$, at least 1.
        output_init: `zeros` starts at a hidden state of exactly zero, as published; `small` draws
            $B$ from N(0, 0.02^2) so that every part receives a gradient at the first step.
        standardise_input: z-score the pooled vector with statistics that `calibrate` sets (an
            extension; the paper's bridge reads it as it is).
        mean_output: add the old model's mean hidden state, which `calibrate` sets, so that an
            untrained bridge writes that and not zero (an extension).

    Raises:
        ValueError: a size below 1.

    Example:
        >>> bridge = PrototypeBridge(input_width=8, tokens=3, output_width=5, rank=2, prototypes=4)
        >>> bridge(torch.ones(6, 8)).shape
        torch.Size([6, 3, 5])
    """

    reads: ClassVar[Reads] = "pooled"

    def __init__(
        self,
        *,
        input_width: int,
        tokens: int,
        output_width: int,
        rank: int = 16,
        prototypes: int = 50,
        output_init: OutputInit = "zeros",
        standardise_input: bool = False,
        mean_output: bool = False,
    ) -> None:
        super().__init__()
        sizes = {
            "input_width": input_width,
            "tokens": tokens,
            "output_width": output_width,
            "rank": rank,
            "prototypes": prototypes,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name}: {size} is below 1")
        self.settings = {
            **sizes,
            "standardise_input": standardise_input,
            "mean_output": mean_output,
        }
        self.tokens = tokens
        self.down = nn.Parameter(torch.empty(input_width, rank))
        self.up = nn.Parameter(torch.zeros(rank, tokens * prototypes))
        self.prototypes = nn.Parameter(torch.randn(prototypes, output_width))
        # Kaiming-uniform with a = sqrt(5) on a (r, d_m) matrix: bound 1/sqrt(d_m).
        nn.init.uniform_(self.down, -(input_width**-0.5), input_width**-0.5)
        if output_init == "small":
            nn.init.normal_(self.up, std=0.02)
        if standardise_input:
            self.register_buffer("input_mean", torch.zeros(input_width))
            self.register_buffer("input_scale", torch.ones(input_width))
        if mean_output:
            self.register_buffer("output_mean", torch.zeros(tokens, output_width))

    def forward(self, pooled: Float[Tensor, "batch width"]) -> Float[Tensor, "batch tokens out"]:
        """Hidden state for the old model.

        Args:
            pooled: (B, d_m) pooled hidden states of the new model.

        Returns:
            (B, T, d_l), takes the place of the input of the old model's block.
        """
        if self.settings["standardise_input"]:
            pooled = (pooled - self.input_mean) / self.input_scale
        weights = (pooled @ self.down @ self.up).unflatten(-1, (self.tokens, -1))  # (B, T, N)
        hidden = weights @ self.prototypes
        return hidden + self.output_mean if self.settings["mean_output"] else hidden

    @torch.no_grad()
    def calibrate(
        self,
        pooled: Float[Tensor, "batch width"],
        hidden: Float[Tensor, "windows tokens out"],
    ) -> None:
        """Set the statistics of `standardise_input` and `mean_output` from the pairs.

        Args:
            pooled: (N, d_m) pooled hidden states of the new model.
            hidden: (M, T, d_l) hidden states of the old model at the bridge's place.
        """
        if self.settings["standardise_input"]:
            scale, mean = torch.std_mean(pooled, dim=0, correction=0)
            self.input_mean.copy_(mean)
            # A feature that never varies says nothing: it stays at zero.
            self.input_scale.copy_(torch.where(scale > 1e-6, scale, torch.inf))
        if self.settings["mean_output"]:
            self.output_mean.copy_(hidden.mean(dim=0))


def prototype_bridge_parameters(
    *, input_width: int, tokens: int, output_width: int, rank: int, prototypes: int
) -> int:
    """Trainable parameters of a `PrototypeBridge`: d_m r + r N T + N d_l (section 3.3).

    >>> prototype_bridge_parameters(
    ...     input_width=512, tokens=181, output_width=200, rank=32, prototypes=300)
    1813984
    """
    return input_width * rank + rank * prototypes * tokens + prototypes * output_width


@torch.no_grad()
def initialise_prototypes(
    bridge: PrototypeBridge,
    hidden: Float[Tensor, "batch tokens width"],
    method: PrototypeInit = "real",
    *,
    seed: int = 0,
) -> None:
    """Set the prototypes in place.

    Args:
        bridge: its prototypes are overwritten.
        hidden: (B, T, d_l) hidden states of the old model at the bridge's place; at least N tokens
            in all for `real` and `kmeans`.
        method: `real` draws tokens of `hidden` without replacement, as the paper describes;
            `normal` draws N(0, 1), as the published scripts do; `kmeans` takes the centres of
            scikit-learn's minibatch k-means over the tokens.
        seed: of the draw.

    Raises:
        ValueError: fewer tokens than prototypes.
    """
    count = len(bridge.prototypes)
    generator = torch.Generator().manual_seed(seed)
    if method == "normal":
        bridge.prototypes.copy_(torch.randn(bridge.prototypes.shape, generator=generator))
        return
    tokens = hidden.flatten(0, 1)
    if len(tokens) < count:
        raise ValueError(f"prototypes: {count} asked for, but the pairs hold {len(tokens)} tokens")
    if method == "real":
        bridge.prototypes.copy_(tokens[_draw(len(tokens), count, generator).to(tokens.device)])
        return
    from sklearn.cluster import MiniBatchKMeans

    centres = MiniBatchKMeans(count, random_state=seed, n_init=1).fit(tokens.cpu().numpy())
    bridge.prototypes.copy_(torch.as_tensor(centres.cluster_centers_))


def _draw(total: int, count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    return torch.randperm(total, generator=generator)[:count]
