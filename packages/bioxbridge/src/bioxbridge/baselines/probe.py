"""The baseline that the paper's tables leave out: a linear probe on pseudo labels.

A logistic regression on the pooled features of one frozen block of the new model, fitted to the
classes that the old task model predicts on the simultaneous old signal.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from bioxbridge.adapters import BlockModel


class PseudoLabelProbe(nn.Module):
    """Standardised pooled features, then L2-regularised logistic regression.

    Args:
        new: frozen model of the new modality.
        block: whose pooled output is read.
        regularisation: scikit-learn's C, smaller is stronger.
    """

    def __init__(self, new: BlockModel, block: int, *, regularisation: float = 0.1) -> None:
        super().__init__()
        self.new = new
        self.block = block
        self.regularisation = regularisation

    def fit(
        self, pooled: Float[Tensor, "batch width"], pseudo_labels: np.ndarray, classes: int
    ) -> PseudoLabelProbe:
        """Fit to pooled features of the block, (N, D), and (N,) classes below `classes`.

        Raises:
            ValueError: there is one class only.
        """
        found = np.unique(pseudo_labels)
        if len(found) < 2:
            raise ValueError("pseudo labels: the task model predicts one class only")
        scaler = StandardScaler()
        logistic = LogisticRegression(C=self.regularisation, max_iter=2000)
        logistic.fit(scaler.fit_transform(pooled.numpy()), pseudo_labels)
        weight = logistic.coef_ / scaler.scale_
        bias = logistic.intercept_ - weight @ scaler.mean_
        self.linear = nn.Linear(weight.shape[1], len(weight))
        self.linear.load_state_dict(
            {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
        )
        self.classes = classes
        self.register_buffer("found", torch.from_numpy(found))
        return self

    def forward(self, inputs: Tensor) -> Float[Tensor, "batch classes"]:
        """Logits (B, C) of new inputs."""
        return self.read_out(self.new.forward_to(inputs, self.block).mean(dim=1))

    def read_out(self, pooled: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        """Logits (B, C) of pooled features; minus infinity for a class that was never taught."""
        scores = self.linear(pooled)
        if scores.shape[1] == 1:  # two classes: the second against the first
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        logits = scores.new_full((len(scores), self.classes), -torch.inf)
        return logits.index_copy(1, self.found, scores)
