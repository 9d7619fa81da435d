"""Figures of a run, drawn from its results; nothing is computed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.transforms import Bbox

ACCENT = "#2563eb"
MUTED = "#94a3b8"
INK = "#1e293b"

_STYLE = {
    "figure.dpi": 150,
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 12,
    "figure.constrained_layout.use": True,
}


def plot_scores(path: Path, rows: list[dict[str, Any]], *, ours: str, chance: float) -> None:
    """Balanced accuracy of every method: mean as a bar, each split as a point.

    Args:
        path: PNG file to write.
        rows: `method`, `balanced_accuracy` and `splits` (one value a split), in percent.
        ours: method to set off.
        chance: balanced accuracy of a guess, percent.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 0.42 * len(rows) + 1.1))
        for i, row in enumerate(reversed(rows)):
            colour = ACCENT if row["method"] == ours else MUTED
            axes.barh(i, row["balanced_accuracy"], color=colour, height=0.62, alpha=0.85)
            axes.plot(row["splits"], [i] * len(row["splits"]), "o", color=INK, ms=3.5, alpha=0.7)
        axes.axvline(chance, color=INK, lw=1, ls=":")
        axes.text(chance + 0.8, len(rows) - 0.45, "chance", fontsize=10, va="bottom")
        axes.set_yticks(range(len(rows)), [row["method"] for row in reversed(rows)])
        axes.set_xlim(0, 100)
        axes.set_ylim(-0.6, len(rows))
        axes.set_xlabel("balanced accuracy on the test split (%)")
        _save(figure, path)


def plot_cost(path: Path, rows: list[dict[str, Any]], *, ours: str) -> None:
    """Balanced accuracy against trainable parameters on a logarithmic axis.

    Args:
        path: PNG file to write.
        rows: `method`, `balanced_accuracy` and `parameters` (above zero).
        ours: method to set off.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 3.4))
        for row in rows:
            own = row["method"] == ours
            x, y = row["parameters"], row["balanced_accuracy"]
            axes.semilogx(x, y, "o", ms=9 if own else 7, color=ACCENT if own else MUTED)
        values = [row["parameters"] for row in rows]
        axes.set_xlim(min(values) / 4, max(values) * 4)
        axes.margins(y=0.25)
        axes.set_xlabel("trainable parameters")
        axes.set_ylabel("balanced accuracy (%)")
        figure.draw_without_rendering()
        _label_points(axes, [(r["parameters"], r["balanced_accuracy"], r["method"]) for r in rows])
        _save(figure, path)


def _label_points(axes: plt.Axes, points: list[tuple[float, float, str]]) -> None:
    """Name points, each above or below where its name meets no other name and no point."""
    places = axes.transData.transform([(x, y) for x, y, _ in points])
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in places]
    for x, y, name in points:
        for offset in (8, -18, 20, -30, 32, -42):
            text = axes.annotate(
                name, (x, y), (0, offset), textcoords="offset points", ha="center", fontsize=10
            )
            box = text.get_window_extent().padded(1)
            if box.count_overlaps(taken) == 0:
                break
            text.remove()
        else:
            axes.add_artist(text)
        taken.append(box)


def plot_selection(path: Path, curves: list[dict[str, Any]]) -> None:
    """Both curves of the position selection, one line a split; the choice is ringed.

    Args:
        path: PNG file to write.
        curves: `split`, `probe_scores`, `cka_scores`, `new_block` and `old_block`.
    """
    with mpl.rc_context(_STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(5.6, 3.4))
        shades = plt.get_cmap("viridis")(np.linspace(0.15, 0.8, len(curves)))
        for curve, shade in zip(curves, shades, strict=True):
            for axes, scores, chosen in (
                (left, curve["probe_scores"], curve["new_block"]),
                (right, curve["cka_scores"], curve["old_block"]),
            ):
                axes.plot(
                    range(len(scores)),
                    scores,
                    "o-",
                    ms=4,
                    lw=1.4,
                    color=shade,
                    label=f"split {curve['split']}",
                )
                axes.plot(chosen, scores[chosen], "o", ms=11, mfc="none", mec=shade, mew=1.6)
        left.set_title("1. where to read")
        left.set_xlabel("block of the new model")
        left.set_ylabel("macro-F1 on pseudo labels")
        figure.get_layout_engine().set(wspace=0.08)
        right.set_title("2. where to write")
        right.set_xlabel("block of the old model")
        right.set_ylabel("CKA with the chosen block")
        for axes, key in ((left, "probe_scores"), (right, "cka_scores")):
            axes.set_xticks(range(len(curves[0][key])))
        handles, labels = right.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=5, fontsize=10, frameon=False
        )
        _save(figure, path)


def plot_places(path: Path, splits: list[dict[str, Any]], depths: tuple[int, int]) -> None:
    """Balanced accuracy of a bridge at every place, one panel a split; the selected is ringed.

    Args:
        path: PNG file to write.
        splits: `split`, `positions` and `accuracy`, (percent, seconds) by (new, old) block.
        depths: blocks of the new and of the old model.
    """
    grids = np.full((len(splits), *depths), np.nan)
    for grid, split in zip(grids, splits, strict=True):
        for place, (accuracy, _) in split["accuracy"].items():
            grid[place] = accuracy
    with mpl.rc_context(_STYLE):
        width = max(3.4, 1.9 * len(splits) + 1)
        figure, panels = plt.subplots(
            1, len(splits), figsize=(width, 2.9), squeeze=False, sharey=True
        )
        for axes, grid, split in zip(panels[0], grids, splits, strict=True):
            image = axes.imshow(grid, cmap="Blues", vmin=np.nanmin(grids), vmax=np.nanmax(grids))
            chosen = split["positions"]
            axes.plot(chosen.old_block, chosen.new_block, "o", ms=16, mfc="none", mec="#dc2626")
            axes.set_title(f"split {split['split']}")
            axes.set_xticks(range(depths[1]))
            axes.set_yticks(range(depths[0]))
            axes.set_xlabel("old block")
        panels[0][0].set_ylabel("new block")
        figure.colorbar(image, ax=panels[0], label="balanced accuracy (%)")
        _save(figure, path)


def plot_sweep(
    path: Path,
    names: list[str],
    combinations: list[tuple[Any, ...]],
    accuracy: list[list[float]],
    *,
    chance: float,
) -> None:
    """Balanced accuracy by option: mean as a line or bar, each split as a point.

    Args:
        path: PNG file to write.
        names: of the options that vary.
        combinations: their values.
        accuracy: percent, one list a combination, one value a split.
        chance: balanced accuracy of a guess, percent.
    """
    labels = ["\n".join(map(str, values)) for values in combinations]
    places = range(len(combinations))
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(max(4.0, 0.7 * len(labels) + 1.6), 3.4))
        axes.plot(places, [np.mean(found) for found in accuracy], "_", ms=22, mew=3, color=ACCENT)
        for place, found in zip(places, accuracy, strict=True):
            axes.plot([place] * len(found), found, "o", color=INK, ms=4, alpha=0.6)
        axes.axhline(chance, color=INK, lw=1, ls=":")
        axes.set_xticks(places, labels)
        axes.margins(x=0.08)
        axes.set_xlabel(", ".join(names))
        axes.set_ylabel("balanced accuracy (%)")
        _save(figure, path)


def plot_confusion(path: Path, matrix: np.ndarray, *, names: list[str], title: str) -> None:
    """Confusion matrix in percent of each true class.

    Args:
        path: PNG file to write.
        matrix: (C, C) counts, rows are true classes.
        names: of the classes; numbers where there are none.
        title: of the figure.
    """
    shares = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    classes = range(len(matrix))
    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 4.4))
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        for true in classes:
            for guess in classes:
                value = shares[true, guess]
                axes.text(
                    guess,
                    true,
                    f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=10,
                    color="white" if value > 55 else INK,
                )
        labels = names if len(names) == len(matrix) else list(map(str, classes))
        axes.set_xticks(classes, labels)
        axes.set_yticks(classes, labels)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_title(title)
        axes.spines[:].set_visible(False)
        _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.part")
    figure.savefig(temporary, format="png", facecolor="white")
    plt.close(figure)
    temporary.replace(path)
