"""The table that a section prints, in Markdown, with the target beside the figure."""

import statistics


def heading(titles):
    """Prints the titles of the columns."""
    line(titles)
    print("|---" * len(titles) + "|", flush=True)


def line(cells):
    """Prints a row."""
    print("| " + " | ".join(cells) + " |", flush=True)


def held_against(value, target, digits=1):
    """A figure with the target beside it that it is not to exceed; None for no target."""
    shown = f"{value:.{digits}f}"
    return shown if target is None else f"{shown} (<= {target}: {'yes' if value <= target else 'no'})"


def reaches(value, target, digits=1):
    """A figure with the target beside it that it is to reach; None for no target."""
    shown = f"{value:.{digits}f}"
    return shown if target is None else f"{shown} (>= {target}: {'yes' if value >= target else 'no'})"


def p99(values):
    """The 99th percentile; of fewer than a hundred values the largest."""
    return max(values) if len(values) < 100 else statistics.quantiles(values, n=100)[-1]
