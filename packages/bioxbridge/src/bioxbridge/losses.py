"""Alignment losses of BioX-Bridge (arXiv 2510.02276, section 3.4) and of its rivals.

Every loss takes what the bridge produced and what the old model produced on the simultaneous old
signal, both (B, T, D), and returns the mean over the batch.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

AlignmentLoss = Literal["cosine", "token_cosine", "l1", "mse", "infonce"]
Hidden = Float[Tensor, "batch tokens width"]
Scalar = Float[Tensor, ""]


def cosine(produced: Hidden, target: Hidden) -> Scalar:
    """1 - cos of the flattened hidden states, the paper's default; in [0, 2]."""
    return 1 - F.cosine_similarity(produced.flatten(1), target.flatten(1)).mean()


def token_cosine(produced: Hidden, target: Hidden) -> Scalar:
    """1 - cos token by token, so that a token of small norm counts as much; in [0, 2]."""
    return 1 - F.cosine_similarity(produced, target, dim=-1).mean()


def infonce(produced: Hidden, target: Hidden, temperature: float = 0.1) -> Scalar:
    """Contrast with the other windows of the batch; the published scripts name it, none defines it.

    Rows are L2-normalised flattened hidden states; each produced row must pick its own target.
    """
    similarity = F.normalize(produced.flatten(1)) @ F.normalize(target.flatten(1)).T
    return F.cross_entropy(
        similarity / temperature, torch.arange(len(produced), device=produced.device)
    )


ALIGNMENT_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosine,
    "token_cosine": token_cosine,
    "l1": F.l1_loss,
    "mse": F.mse_loss,
    "infonce": infonce,
}


def logits_kl(
    student: Float[Tensor, "batch classes"],
    teacher: Float[Tensor, "batch classes"],
    temperature: float = 2.0,
) -> Scalar:
    """Distillation loss T^2 KL(teacher || student) at temperature T (Hinton et al. 2015), >= 0."""
    return (
        F.kl_div(
            F.log_softmax(student / temperature, dim=-1),
            F.log_softmax(teacher / temperature, dim=-1),
            log_target=True,
            reduction="batchmean",
        )
        * temperature**2
    )
