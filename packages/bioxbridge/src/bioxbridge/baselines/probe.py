"""The baseline that the paper's tables leave out: a linear probe on pseudo labels.

A logistic regression on the pooled features of one frozen block of the new model, fitted to the
classes that the old task model predicts on the simultaneous old signal.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor


class PseudoLabelProbe:
    """Standardised features, then L2-regularised logistic regression.

    Args:
        regularisation: scikit-learn's C, smaller is stronger.
    """

    def __init__(self, *, regularisation: float = 0.1) -> None:
        self.model = make_pipeline(
            StandardScaler(), LogisticRegression(C=regularisation, max_iter=2000)
        )

    def fit(
        self, pooled: Float[Tensor, "batch width"], pseudo_labels: np.ndarray
    ) -> PseudoLabelProbe:
        """Fit to (N, D) features and (N,) classes.

        Raises:
            ValueError: there is one class only.
        """
        if len(np.unique(pseudo_labels)) < 2:
            raise ValueError("pseudo labels: the task model predicts one class only")
        self.model.fit(pooled.numpy(), pseudo_labels)
        return self

    def predict(self, pooled: Float[Tensor, "batch width"]) -> np.ndarray:
        """Classes (N,) of (N, D) features."""
        return self.model.predict(pooled.numpy())

    @property
    def parameters(self) -> int:
        """Fitted coefficients and intercepts."""
        logistic = self.model[-1]
        return logistic.coef_.size + logistic.intercept_.size
