"""Linear centred kernel alignment: how alike two sets of features are, whatever their widths.

Stage 2 of BioX-Bridge's selection (arXiv 2510.02276, section 3.2). Everything comes from sums over
windows of size d_x d_y, so features may come in batches and no N x N matrix is formed.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class BatchedCKA:
    r"""CKA of features that come batch by batch, equal to that of all of them at once.

    Biased: $\|X_c^T Y_c\|_F^2 / (\|X_c^T X_c\|_F \|Y_c^T Y_c\|_F)$, in [0, 1]. Debiased: the
    U-statistic of Song et al. (2012) in place of each term, which does not grow with d / N and can
    be slightly negative. Both are exact: batches are not averaged over, as minibatch CKA of Nguyen
    et al. (2021) does, so their size does not matter.

    >>> whole = BatchedCKA()
    >>> for x, y in [(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]]))] * 2:
    ...     whole.update(x, y)
    >>> round(whole.compute(debiased=False), 6)
    1.0
    """

    def __init__(self) -> None:
        self._terms: dict[str, _PairSums] = {}
        self._origin: tuple[Tensor, Tensor] | None = None

    def update(self, x: Float[Tensor, "batch width_x"], y: Float[Tensor, "batch width_y"]) -> None:
        """Add windows.

        Args:
            x: (B, d_x).
            y: (B, d_y), of the same windows.

        Raises:
            ValueError: a width that differs from the batch before.
        """
        x, y = x.double(), y.double()
        if self._origin is None:
            # Neither form depends on it; sums around it lose no digits to a large mean.
            self._origin = x.mean(dim=0), y.mean(dim=0)
            self._terms = {name: _PairSums() for name in ("xy", "xx", "yy")}
        for name, features, origin in (("x", x, self._origin[0]), ("y", y, self._origin[1])):
            if features.shape[1] != len(origin):
                raise ValueError(f"{name}: width {features.shape[1]}, before {len(origin)}")
        x, y = x - self._origin[0], y - self._origin[1]
        for name, (left, right) in {"xy": (x, y), "xx": (x, x), "yy": (y, y)}.items():
            self._terms[name].update(left, right)

    def compute(self, *, debiased: bool | None = None) -> float:
        """The alignment of all windows so far; 0.0 when one side does not vary.

        Args:
            debiased: which one; None takes the debiased one when N < 5 max(d_x, d_y) and N > 3.

        Raises:
            ValueError: no windows, or fewer than four for the debiased one.
        """
        if self._origin is None:
            raise ValueError("cka: no windows")
        count, width = self._terms["xy"].count, max(map(len, self._origin))
        if debiased is None:
            debiased = 3 < count < 5 * width
        if debiased and count < 4:
            raise ValueError(f"cka: the debiased estimate needs 4 windows, not {count}")
        cross, own_x, own_y = (
            term.unbiased() if debiased else term.biased()
            for term in (self._terms[name] for name in ("xy", "xx", "yy"))
        )
        return float(cross / (own_x * own_y).sqrt()) if own_x > 0 and own_y > 0 else 0.0


def cka(
    x: Float[Tensor, "batch width_x"],
    y: Float[Tensor, "batch width_y"],
    *,
    debiased: bool | None = None,
) -> float:
    """Linear CKA of (N, d_x) and (N, d_y), see `BatchedCKA`.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 3.0], [2.0, 2.0], [5.0, 1.0]])
    >>> round(cka(x, 3 * x + 1), 6)
    1.0
    """
    whole = BatchedCKA()
    whole.update(x, y)
    return whole.compute(debiased=debiased)


class _PairSums:
    """The sums over windows from which both forms of HSIC follow, up to one common factor."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: list[Tensor] = []

    def update(self, x: Tensor, y: Tensor) -> None:
        self.count += len(x)
        norms_x, norms_y = x.square().sum(dim=1), y.square().sum(dim=1)
        batch = [
            x.T @ y,
            x.sum(dim=0),
            y.sum(dim=0),
            norms_x.sum(),
            norms_y.sum(),
            norms_y @ x,
            norms_x @ y,
            norms_x @ norms_y,
        ]
        self.sums = [a + b for a, b in zip(self.sums, batch, strict=True)] if self.sums else batch

    def biased(self) -> Tensor:
        """Squared norm of the cross-covariance."""
        products, sum_x, sum_y = self.sums[:3]
        return (products - torch.outer(sum_x, sum_y) / self.count).square().sum()

    def unbiased(self) -> Tensor:
        """HSIC_1 of Song et al. (2012), eq. 5, times n (n - 3).

        K = X X^T and L = Y Y^T have their diagonals removed; 1 is a vector of ones.
        """
        n = self.count
        products, sum_x, sum_y, norm_x, norm_y, x_norms, y_norms, norms = self.sums
        trace = products.square().sum() - norms  # tr(K L)
        totals = (sum_x @ sum_x - norm_x) * (sum_y @ sum_y - norm_y)  # 1'K1 1'L1
        rows = sum_x @ products @ sum_y - sum_x @ x_norms - sum_y @ y_norms + norms  # 1'K L1
        return trace + totals / ((n - 1) * (n - 2)) - 2 * rows / (n - 2)
