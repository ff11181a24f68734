"""Draws the figures of the sections: DIR/SECTION.svg for each DIR/SECTION.csv of a kind that is known here. plots.py
DIR

The same figures give the same files, byte for byte. Round 0, the first checkpoint of a program, is in no plot: it has
everything to write. Bars and points are medians.
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (the back end is chosen first)

from figures import read  # noqa: E402

# Text stays text, and the names of parts do not come from chance.
matplotlib.rcParams.update(
    {"svg.hashsalt": "ckpt", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"], "font.size": 9}
)
matplotlib.rcParams.update({"axes.grid": True, "grid.alpha": 0.3})
OURS, FORK, TARGET = "tab:blue", "tab:gray", "tab:red"


def grouped(rows, key):
    """The further rounds by a column, in the order in which they were measured."""
    groups = defaultdict(list)
    for row in rows:
        if row["round"] != "0":
            groups[row[key]].append(row)
    return groups


def median(rows, column):
    """The median of a column."""
    return statistics.median(float(row[column]) for row in rows)


def most(rows, column):
    """The most of a column."""
    return max(float(row[column]) for row in rows)


def named(axes, names):
    """Puts a name beside each bar, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def downtime(rows):
    """How long the program stood still, by workload, beside a fork and the target."""
    groups = grouped(rows, "workload")
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(groups) + 1.3))
    for place, of in enumerate(groups.values()):
        stop = median(of, "stop_ms")
        axes.barh(place - 0.18, stop, 0.36, color=OURS, label="stopped" if place == 0 else None)
        axes.plot([stop, most(of, "stop_ms")], [place - 0.18] * 2, "k|-", lw=0.8, label="most" if place == 0 else None)
        axes.barh(place + 0.18, median(of, "fork_ms"), 0.36, color=FORK, label="bare fork" if place == 0 else None)
    targets = [(place, of[0]["stop_target_ms"]) for place, of in enumerate(groups.values()) if of[0]["stop_target_ms"]]
    for number, (place, target) in enumerate(targets):
        axes.plot(
            [float(target)] * 2, [place - 0.45, place + 0.45], color=TARGET, label="target" if number == 0 else None
        )
    named(axes, list(groups))
    axes.set_xlabel("ms")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def growth(rows):
    """What the stop grows with: a panel for each thing that grows."""
    groups = grouped(rows, "growth")
    titles = {
        "memory": "resident, GiB; 10 MiB/s are rewritten",
        "rewritten": "rewritten, MiB/s, of 1 GiB",
        "threads": "threads that wait",
        "mappings": "mappings",
    }
    figure, panels = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    for axes, (name, title) in zip(panels.flat, titles.items()):
        places = defaultdict(list)
        for row in groups.get(name, []):
            places[float(row["at"])].append(row)
        for column, colour, label in [("stop_ms", OURS, "stopped"), ("fork_ms", FORK, "bare fork")]:
            at = sorted(places)
            middle = [median(places[x], column) for x in at]
            above = [most(places[x], column) - y for x, y in zip(at, middle)]
            axes.errorbar(at, middle, [[0] * len(at), above], color=colour, marker="o", ms=4, capsize=2, label=label)
        if name in ("threads", "mappings") and places:
            axes.set_xscale("log")
            axes.set_xticks(sorted(places), [f"{x:g}" for x in sorted(places)])
            axes.minorticks_off()
        axes.set_xlabel(title)
        axes.set_ylabel("ms: median, most")
        axes.set_ylim(bottom=0)
    panels.flat[0].legend()
    return figure


def phases(rows):
    """What the parts of the stop took, one on the other: medians, in which a part that a stop did not have is 0. The first
    checkpoint of a program, which has others, is left out."""
    groups = grouped(rows, "workload")
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(groups) + 1.8))
    names = list(dict.fromkeys(row["phase"] for row in rows))
    colours = plt.get_cmap("tab20").colors
    left = [0.0] * len(groups)
    for number, phase in enumerate(names):
        widths = []
        for of in groups.values():
            rounds = {row["round"] for row in of} - {"0"} or {"0"}
            taken = {row["round"]: float(row["ms"]) for row in of if row["phase"] == phase}
            widths.append(statistics.median(taken.get(which, 0.0) for which in rounds))
        axes.barh(range(len(groups)), widths, 0.6, left, color=colours[number % len(colours)], label=phase)
        left = [start + width for start, width in zip(left, widths)]
    named(axes, list(groups))
    axes.set_xlabel("ms of the stop, medians")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return figure


def compare(rows):
    """What a checkpoint costs by the ways to take one: standstill, time until it is durable, bytes of five."""
    groups = grouped(rows, "way")
    figure, panels = plt.subplots(1, 3, figsize=(10, 0.35 * len(groups) + 1.2), sharey=True, layout="constrained")
    last = {way: max(int(row["round"]) for row in of) for way, of in groups.items()}
    kept = {
        way: [row for row in of if int(row["round"]) == last[way] and float(row["bytes_so_far"])]
        for way, of in groups.items()
    }
    durable = [median(of, "durable_ms") if kept[way] else 0 for way, of in groups.items()]
    bytes_mib = [median(of, "bytes_so_far") / (1 << 20) if of else 0 for of in kept.values()]
    for axes, title, lengths in [
        (panels[0], "stands still, ms", [median(of, "pause_ms") for of in groups.values()]),
        (panels[1], "until durable, ms", durable),
        (panels[2], f"{max(last.values(), default=0) + 1} checkpoints, MiB", bytes_mib),
    ]:
        places = range(len(groups))
        axes.barh(places, lengths, 0.6, color=[OURS if way.startswith("ckpt") else FORK for way in groups])
        for place, length in zip(places, lengths):
            axes.annotate(f" {length:.0f}" if length else "", (length, place), va="center", fontsize=7)
        axes.margins(x=0.2)
        axes.set_xlabel(title)
        axes.grid(axis="y", visible=False)
    named(panels[0], list(groups))
    return figure


DRAWN = {"downtime": downtime, "growth": growth, "compare": compare}


def main():
    place, drawn = Path(sys.argv[1]), []
    for path in sorted(place.glob("*.csv")):
        draw = phases if path.stem.endswith("-phases") else DRAWN.get(path.stem)
        rows, about = read(path)
        if draw is None or not any(row["round"] != "0" for row in rows):
            continue
        figure = draw(rows)
        figure.suptitle("\n".join([path.stem, *about]), y=1, va="bottom", fontsize=7)
        figure.savefig(path.with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None, "Creator": None})
        plt.close(figure)
        drawn.append(path.with_suffix(".svg"))
    print(*drawn or [f"{place} has no figures that are drawn: {', '.join(DRAWN)}"], sep="\n")


main()
