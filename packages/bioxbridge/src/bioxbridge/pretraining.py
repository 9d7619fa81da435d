"""Self-supervised pretraining of one modality's encoder: masked reconstruction, no labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from bioxbridge.data import row_loader
from bioxbridge.encoder import SignalEncoder
from papers_shared.errors import require_positive
from papers_shared.seeds import seeded


@dataclass(kw_only=True)
class PretrainOptions:
    """Masked reconstruction of each modality's encoder, on train and pair windows, no labels.

    Args:
        epochs: passes over the windows.
        width: encoder width.
        depth: encoder blocks.
        heads: attention heads.
        mask_probability: share of masked tokens.
        learning_rate: highest rate of the one-cycle schedule.
        batch_size: windows per step.
        worst_error: highest reconstruction error, relative to the variance, with which an encoder
            counts as pretrained; a run with a worse one stops. Null lets any pass.
    """

    epochs: int = 20
    width: int = 48
    depth: int = 4
    heads: int = 4
    mask_probability: float = 0.5
    learning_rate: float = 2e-3
    batch_size: int = 64
    worst_error: float | None = 0.95

    def __post_init__(self) -> None:
        positive = ("epochs", "width", "depth", "heads", "learning_rate", "batch_size")
        require_positive("pretrain", self, *positive)
        if self.width % self.heads:
            raise ValueError(f"pretrain.heads: {self.heads} do not divide width {self.width}")
        if not 0 < self.mask_probability < 1:
            raise ValueError(
                f"pretrain.mask_probability: {self.mask_probability} is not between 0 and 1"
            )


class PretrainModule(lightning.LightningModule):
    """Masked reconstruction: batches are tokens (B, T, F), no labels.

    AdamW with a one-cycle rate; the loss is the squared error on masked tokens alone.

    Args:
        encoder: trained in place.
        mask_probability: share of tokens that are masked, in (0, 1).
        learning_rate: highest rate of the cycle.
        weight_decay: AdamW's.
    """

    def __init__(
        self,
        encoder: SignalEncoder,
        *,
        mask_probability: float = 0.5,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-3,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.mask_probability = mask_probability
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        width, features = encoder.sizes["width"], encoder.sizes["features"]
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, features))

    def _errors(self, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Squared errors (M, F) on the masked tokens."""
        chance = torch.rand(tokens.shape[:2], device=tokens.device, generator=generator)
        masked = chance < self.mask_probability
        masked[0, 0] |= ~masked.any()
        reconstructed = self.decoder(self.encoder(tokens, masked)[masked])
        return (reconstructed - tokens[masked]).square()

    def training_step(self, batch: tuple[Tensor], batch_index: int) -> Tensor:
        """Loss of one batch."""
        loss = self._errors(batch[0]).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW and a one-cycle schedule over the whole training."""
        # A fused one takes no clipped gradients in mixed precision.
        optimizer = torch.optim.AdamW(
            self.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, foreach=True
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.learning_rate, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    @torch.no_grad()
    def relative_error(self, tokens: Tensor, *, seed: int = 0) -> float:
        """Reconstruction error over the variance of the tokens; 1 means nothing was learned."""
        generator = torch.Generator(tokens.device).manual_seed(seed)
        error = self._errors(tokens, generator).mean()
        return float(error / tokens.var(dim=(0, 1), correction=0).mean())


def pretrain_encoder(
    tokens: Tensor,
    val_tokens: Tensor,
    options: PretrainOptions,
    *,
    stage: str,
    seed: int,
    new_trainer: Callable[..., lightning.Trainer],
) -> tuple[SignalEncoder, float]:
    """Pretrain one encoder.

    Args:
        tokens: (N, T, F) unlabelled windows.
        val_tokens: (M, T, F) windows of other subjects.
        options: sizes and budget.
        stage: name for the log.
        seed: of weights, masks and order.
        new_trainer: makes a trainer from a stage name and options.

    Returns:
        The encoder and its masked reconstruction error on `val_tokens`, relative to their variance.
    """
    with seeded(seed):
        encoder = SignalEncoder(
            features=tokens.shape[2],
            tokens=tokens.shape[1],
            width=options.width,
            depth=options.depth,
            heads=options.heads,
        )
        module = PretrainModule(
            encoder,
            mask_probability=options.mask_probability,
            learning_rate=options.learning_rate,
        )
        trainer = new_trainer(stage, epochs=options.epochs, gradient_clip_val=1.0)
        trainer.fit(
            module, row_loader(tokens, batch_size=options.batch_size, shuffle=True, seed=seed)
        )
    return encoder, module.relative_error(val_tokens)
