"""The figures that a section measures, as CSV: on what and by what they were made first, each behind a #."""

import csv


class Figures:
    """A CSV file that grows row by row, so that what was measured before a failure is there."""

    def __init__(self, path, columns, like=None):
        """`path` has the lines about the machine already, or begins with those of `like`."""
        if like is not None:
            with open(like) as lines, open(path, "w") as file:
                file.writelines(line for line in lines if line.startswith("#"))
        self.file = open(path, "a", newline="")
        self.rows = csv.writer(self.file, lineterminator="\n")
        self.add(columns)

    def add(self, row):
        """A row; numbers get no more digits than they are worth."""
        self.rows.writerow(round(cell, 3) if isinstance(cell, float) else cell for cell in row)
        self.file.flush()


class Phases:
    """What each part of the stops took, in SECTION-phases.csv, one part a row. Where ckpt does not tell there is no
    such file.
    """

    def __init__(self, section_path):
        self.like = section_path
        self.path = section_path.with_name(section_path.stem + "-phases.csv")
        self.figures = None

    def add(self, workload, number, stop_phases_ms):
        """The parts of one stop by their names, or None."""
        if not stop_phases_ms:
            return
        if self.figures is None:
            self.figures = Figures(self.path, ["workload", "round", "phase", "ms"], self.like)
        for phase, ms in stop_phases_ms.items():
            self.figures.add([workload, number, phase, float(ms)])


def read(path):
    """The rows of a CSV file as dictionaries, without the lines about the machine; and those lines."""
    with open(path, newline="") as lines:
        lines = list(lines)
    about = [line[1:].strip() for line in lines if line.startswith("#")]
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), about
