"""Draws the table of `graphlets study` as the paper's Figures 4 and 5, and writes it as Markdown.

figures.py study.csv FOLDER
"""

import csv
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from PIL import Image

ROW_BYTES = 292
# Colours that people who see few can tell apart (Okabe and Ito).
COLOURS = {"basic": "#E69F00", "list": "#0072B2", "tree": "#009E73", "full": "#555555", "zstd-1": "#CC79A7", "lz4": "#D55E00",
           "bitcomp": "#56B4E9", "bitcomp-sparse": "#000000", "cascaded": "#F0E442"}
NAMES = {"full": "Full", "basic": "Basic", "list": "List", "tree": "Tree", "zstd-1": "Zstd 1", "lz4": "LZ4",
         "bitcomp": "Bitcomp", "bitcomp-sparse": "Bitcomp sparse", "cascaded": "Cascaded"}
MEASURES = {"ratio": "original / stored", "gb_per_s": "GB/s"}


def read(path):
    with open(path) as file:
        lines = file.readlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for row in rows:
        row["chunk_bytes"] = int(row["chunk_bytes"] or 0)
        row["checkpoints"] = int(row["checkpoints"])
        for name in ["ratio", "gb_per_s", "ratio_with_first", "gb_per_s_with_first", "vertices", "edges", "original_bytes"]:
            row[name] = float(row[name])
    return [line[1:].strip() for line in lines if line.startswith("#")], rows


def is_power_of_two(number):
    return number & (number - 1) == 0


def where(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def swept(rows):
    """How many checkpoints the series with the most lengths of chunks have."""
    chunks = {}
    for row in rows:
        chunks.setdefault(row["checkpoints"], set()).add(row["chunk_bytes"])
    return max(chunks, key=lambda number: len(chunks[number]))


def codecs(rows):
    """The compressors that are there: nvCOMP's may be missing."""
    return [method for method in ["zstd-1", "lz4", "bitcomp", "bitcomp-sparse", "cascaded"] if where(rows, method=method)]


def grid(graphs):
    figure, axes = plt.subplots(2, len(graphs), figsize=(2.9 * len(graphs), 5.6), sharex="col", sharey="row", squeeze=False)
    for column, graph in enumerate(graphs):
        axes[0][column].set_title(graph, fontsize=11)
    for row, (measure, label) in enumerate(MEASURES.items()):
        axes[row][0].set_ylabel(label)
        for axis in axes[row]:
            axis.set_yscale("log")
            axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0,) if measure == "ratio" else (1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.yaxis.set_minor_formatter(NullFormatter())
    return figure, axes


def finish(figure, axes, title, path, *more):
    handles, _ = axes[0][0].get_legend_handles_labels()
    handles += more
    columns = 2 * axes.shape[1] - 1  # as many names as are not wider than the graphs
    figure.suptitle(title, fontsize=11)
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.05 * math.ceil(len(handles) / columns), 1, 1))
    figure.savefig(path, dpi=90)
    Image.open(path).convert("RGB").quantize(48).save(path, optimize=True)


def draw_chunk_size(rows, graphs, number, path):
    figure, axes = grid(graphs)
    for column, graph in enumerate(graphs):
        here = where(rows, graph=graph, checkpoints=number)
        for row, measure in enumerate(MEASURES):
            axis = axes[row][column]
            for method in ["basic", "list", "tree"]:
                series = sorted(where(here, method=method), key=lambda line: line["chunk_bytes"])
                of_two = [line for line in series if is_power_of_two(line["chunk_bytes"])]
                of_row = [line for line in series if not is_power_of_two(line["chunk_bytes"])]
                points = lambda lines: ([line["chunk_bytes"] for line in lines], [line[measure] for line in lines])
                # Tree lies on List in places: wide, and below it.
                wide = method == "tree"
                axis.plot(*points(of_two), "-o", markersize=5 if wide else 3, linewidth=3 if wide else 1.2,
                          zorder=2 if wide else 3, color=COLOURS[method], label=NAMES[method])
                axis.plot(*points(of_row), "D", markersize=7 if wide else 4.5, zorder=2 if wide else 3,
                          markerfacecolor="none", markeredgewidth=2 if wide else 1.2, color=COLOURS[method])
            for method in ["full", *codecs(here)]:
                value = where(here, method=method)[0][measure]
                axis.axhline(value, color=COLOURS[method], linestyle="--", linewidth=1.1, label=NAMES[method])
        axis = axes[1][column]
        axis.set_xscale("log", base=2)
        axis.set_xticks([32, 128, 512, 2048], ["32", "128", "512", "2048"])
        axis.set_xlabel("bytes of a chunk")
    of_row = Line2D([], [], linestyle="", marker="D", markerfacecolor="none", color="black", label="parts and multiples of a row")
    finish(figure, axes, f"{number} checkpoints, the first left out", path, of_row)


def bars(rows):
    """What is compared at each number of checkpoints: methods, and the engine's with each length of chunks."""
    lengths = sorted({row["chunk_bytes"] for row in rows if row["checkpoints"] != swept(rows)} - {0})
    yield from [("full", 0), ("basic", lengths[0])]
    yield from [(method, length) for method in ["list", "tree"] for length in lengths]
    yield from [(method, 0) for method in codecs(rows)]


def draw_frequency(rows, graphs, path):
    figure, axes = grid(graphs)
    numbers = sorted({row["checkpoints"] for row in rows})
    shown = list(bars(rows))
    width = 0.84 / len(shown)
    for column, graph in enumerate(graphs):
        for row, measure in enumerate(MEASURES):
            axis = axes[row][column]
            for at, (method, length) in enumerate(shown):
                lines = [where(rows, graph=graph, checkpoints=number, method=method, chunk_bytes=length)[0] for number in numbers]
                places = [place + (at - (len(shown) - 1) / 2) * width for place in range(len(numbers))]
                name = NAMES[method] + (f" {length} B" if length else "")
                axis.bar(places, [line[measure] for line in lines], width, color=COLOURS[method], label=name,
                         hatch="////" if length and not is_power_of_two(length) else None, edgecolor="white", linewidth=0.3)
        axes[1][column].set_xticks(range(len(numbers)), [str(number) for number in numbers])
        axes[1][column].set_xlabel("checkpoints")
    finish(figure, axes, "The first checkpoint left out", path)


def markdown(comments, rows, graphs, number):
    yield from comments
    yield ""
    yield "| graph | vertices | edges | counters |\n|---|---|---|---|"
    for graph in graphs:
        row = where(rows, graph=graph)[0]
        megabytes = row["vertices"] * ROW_BYTES / 1e6
        yield f"| {graph} | {row['vertices']:.0f} | {row['edges']:.0f} | {megabytes:.1f} MB |"
    yield f"\n## By length of chunks\n\n{number} checkpoints. Each cell: ratio, GB/s (the first checkpoint left out); ratio (with it)" + (
        "; device memory at its peak, as a multiple of the counters.\n" if any(row.get("peak") for row in rows) else ".\n")
    for graph in graphs:
        here = where(rows, graph=graph, checkpoints=number)
        yield f"### {graph}\n\n| bytes of a chunk | Basic | List | Tree |\n|---|---|---|---|"
        for chunk in sorted({row["chunk_bytes"] for row in here} - {0}):
            cells = [cell(where(here, chunk_bytes=chunk, method=method)[0]) for method in ["basic", "list", "tree"]]
            yield f"| {chunk} | " + " | ".join(cells) + " |"
        whole = [f"{NAMES[method]}: {cell(where(here, method=method)[0])}" for method in ["full", *codecs(here)]]
        yield "\n" + ". ".join(whole) + ".\n"
    numbers = sorted({row["checkpoints"] for row in rows})
    if len(numbers) == 1:
        return
    yield "## By number of checkpoints\n"
    yield "| graph | method | " + " | ".join(str(number) for number in numbers) + " |\n|---|---|" + "---|" * len(numbers)
    for graph in graphs:
        for method, length in bars(rows):
            cells = [cell(where(rows, graph=graph, checkpoints=number, method=method, chunk_bytes=length)[0]) for number in numbers]
            yield f"| {graph} | {NAMES[method]}{f' {length} B' if length else ''} | " + " | ".join(cells) + " |"


def cell(row):
    peak = f"; {float(row['peak']):.2f}" if row.get("peak") else ""
    return f"{row['ratio']:.1f}, {row['gb_per_s']:.2f} ({row['ratio_with_first']:.1f}){peak}"


def main():
    comments, rows = read(sys.argv[1])
    folder = Path(sys.argv[2])
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    number = swept(rows)
    draw_chunk_size(rows, graphs, number, folder / "chunk-size.png")
    if len({row["checkpoints"] for row in rows}) > 1:
        draw_frequency(rows, graphs, folder / "frequency.png")
    comments = [f"    {comment}" for comment in comments]
    text = "\n".join(["# What checkpoints of the counters cost\n", *markdown(comments, rows, graphs, number)])
    (folder / "study.md").write_text(text + "\n")


main()
