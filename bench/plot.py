#!/usr/bin/env python3
"""Draws bench/results/train_transform.json as docs/train_transform.svg: rates, and what they cost."""
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend without a window)

ROOT = Path(__file__).resolve().parent.parent
OURS, OTHERS = "#1f6f8b", "#b8b8b8"


def bars(axes, names, values, title, form):
    """Horizontal bars from top to bottom, each with its number."""
    places = range(len(names))[::-1]
    axes.barh(places, values, color=[OURS if name.startswith("Headrace") else OTHERS for name in names], height=0.6)
    for place, value in zip(places, values):
        axes.text(value, place, " " + form.format(value), va="center")
    axes.set_yticks(places, names)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xticks([])
    axes.set_xlim(0, 1.2 * max(values))
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def main():
    result = json.loads((ROOT / "bench" / "results" / "train_transform.json").read_text())
    rows = [row for row in result["rows"] if row["unit"] == "img/s"]
    names = [row["what"].replace("PyTorch DataLoader + ", "PyTorch DataLoader\n+ ") for row in rows]
    plt.rcParams["svg.hashsalt"] = "headrace"  # the same file from the same numbers
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.4), sharey=True)
    bars(left, names, [row["value"] for row in rows], "images per second, two cores (more is better)", "{:,.0f}")
    bars(right, names, [row["cpu_s_per_1000"] for row in rows], "CPU seconds per 1,000 images (less is better)", "{:.2f}")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "train_transform.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
