"""Draw what scripts/gpu-check measured of the loaders: samples/s by cores, beside what the models
alone make.

python benchmarks/loaders_figure.py docs/measured/gpu-nvidia-h200.json
docs/measured/gpu-nvidia-h200-loaders.svg
"""

import json
import math
import sys
from pathlib import Path

from matplotlib import pyplot

MEANINGLESS = "synthetic"  # batches that are already there
LABEL_GAP = 0.052  # of the logarithm of the rate


def apart(rates: list[float]) -> list[float]:
    """Logarithms (base 10) of these rates, ascending, moved up so that labels do not overlap."""
    placed: list[float] = []
    for rate in rates:
        placed.append(max(rate, placed[-1] + LABEL_GAP if placed else rate))
    return placed


def main(source: Path, target: Path) -> None:
    about, loaders = (json.loads(source.read_text())[key] for key in ("about", "items"))
    found = loaders["loaders"]
    by_cores = {int(cores): rows for cores, rows in found["samples_per_s_cpu_s_gpu_s"].items()}
    cores = sorted(by_cores)
    names = sorted(
        (name for name in by_cores[cores[-1]] if name != MEANINGLESS),
        key=lambda name: by_cores[cores[-1]][name][0],
    )
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "feedline", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    log = [math.log10(by_cores[cores[-1]][name][0]) for name in names]
    for index, (name, label) in enumerate(zip(names, apart(log), strict=True)):
        axes.plot(
            cores,
            [by_cores[one][name][0] for one in cores],
            marker="o",
            markersize=4,
            color=f"C{index}",
        )
        axes.annotate(
            name,
            (cores[-1], 10**label),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=f"C{index}",
        )
    for name, model in found["models"].items():
        axes.axhline(1 / model["step_s"], linestyle="--", linewidth=1, color="0.4")
        axes.annotate(
            f"{name} alone: {1 / model['step_s']:,.0f}",
            (cores[0], 1 / model["step_s"]),
            (0, 4),
            textcoords="offset points",
            color="0.3",
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(cores, [str(one) for one in cores])
    axes.set_yticks([200, 500, 1000, 2000, 5000], ["200", "500", "1,000", "2,000", "5,000"])
    axes.minorticks_off()
    axes.set_xlim(cores[0] * 0.93, cores[-1] * 1.75)
    axes.set_xlabel("cores, as many workers")
    axes.set_ylabel("images/s")
    axes.set_title(f"Loaders of JPEG photographs on {about['device']}, batches of 64", loc="left")
    axes.grid(visible=True, color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
