"""Samples into tables, and tables into docs/performance.md."""

import statistics
from dataclasses import dataclass, field


def spread(values, form):
    """The median, and in brackets the least and the most."""
    middle = form(statistics.median(values))
    least, most = form(min(values)), form(max(values))
    return middle if least == most else f"{middle} ({least} to {most})"


def whole(number):
    return f"{number:,.0f}"


def tenths(number):
    return f"{number:,.1f}"


def hundredths(number):
    return f"{number:.2f}"


def thousandths(number):
    return f"{number:.3f}"


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass
class Aim:
    """A figure that is aimed at: of each round, against its bound."""

    what: str
    values: list
    bound: float
    at_least: bool = True
    unit: str = ""
    form: object = hundredths

    def is_met(self):
        # As it is printed, so that the reader can follow the verdict.
        middle = float(self.form(statistics.median(self.values)).replace(",", ""))
        return middle >= self.bound if self.at_least else middle <= self.bound

    def row(self):
        return [self.what, spread(self.values, self.form) + self.unit]

    def verdict(self):
        aim = f"{'at least' if self.at_least else 'at most'} {self.bound:,g}{self.unit}"
        return f"aim: {self.what}: {aim}: {'met' if self.is_met() else 'MISSED'}"


@dataclass
class Bar:
    """A row of a picture."""

    name: str
    values: list


@dataclass
class Section:
    """The results of a part."""

    tables: list = field(default_factory=list)
    aims: list = field(default_factory=list)
    panels: list = field(default_factory=list)  # a title and its bars
    notes: list = field(default_factory=list)

    def text(self):
        parts = list(self.tables)
        if self.aims:
            parts.append(table(["within a round", "measured"], [aim.row() for aim in self.aims]))
        return "\n\n".join(parts + self.notes)


def ratios(samples, over, under, value=lambda sample: sample.per_second):
    """Of each round: one case over another."""
    return [value(a) / value(b) for a, b in zip(samples[over], samples[under])]


def differences(samples, of, less, value):
    return [value(a) - value(b) for a, b in zip(samples[of], samples[less])]


def throughput(samples, names=None):
    """The usual table: a case a row."""
    names = names or list(samples)
    stores = any(sample.store_us is not None for name in names for sample in samples[name])
    heads = ["", "checks a second", "CPU time a check, µs"] + ["Redis's, µs"] * stores
    rows = []
    for name in names:
        taken = samples[name]
        row = [
            name,
            spread([it.per_second for it in taken], whole),
            spread([it.cpu_us for it in taken], hundredths),
        ]
        if stores:
            of_store = [it.store_us for it in taken if it.store_us is not None]
            row.append(spread(of_store, hundredths) if of_store else "")
        rows.append(row)
    return table(heads, rows)


def bars(samples, names=None):
    """The panels that go with it."""
    names = names or list(samples)
    return [
        ("checks a second", [Bar(name, [it.per_second for it in samples[name]]) for name in names]),
        ("CPU time a check, µs", [Bar(name, [it.cpu_us for it in samples[name]]) for name in names]),
    ]


def find_marks(text, names):
    """Where the contents of sections stand. Raises ValueError for the first that has no place."""
    found = {}
    for name in names:
        marks = f"<!-- compare: {name} -->\n", f"<!-- end of {name} -->"
        if marks[0] not in text or marks[1] not in text:
            raise ValueError(f"docs/performance.md has no marks for {name}")
        found[name] = text.index(marks[0]) + len(marks[0]), text.index(marks[1])
    return found


def write(page, sections):
    """Replaces the text between the marks of each section."""
    for name, content in sections.items():
        text = page.read_text()
        begin, end = find_marks(text, [name])[name]
        page.write_text(f"{text[:begin]}\n{content}\n\n{text[end:]}")
