"""The table: medians, ratios and verdicts, as Markdown."""
import dataclasses
import statistics

ASIDE = {"Open MPI without yielding": ("Open MPI", "without yielding"),
         "ping-pong": ("limit", "ping-pong, one way")}  # beside another's number


@dataclasses.dataclass(frozen=True)
class Column:
    """Of the table: its head, and the text of a cell from a row, all entries and the row's verdicts."""
    head: str
    text: object
    align: str = "--:"


@dataclasses.dataclass
class Verdict:
    wanted: str
    measured: str
    against: str  # the fastest of those it is compared with
    time_ratio: float  # of Ropewalk's time to that one's
    met: bool


def time_ratio(own, other):
    """The median of the rounds' ratios: what disturbs a round disturbs both."""
    others = dict(other["by_round"])
    return statistics.median(us / others[number] for number, us in own["by_round"]
                             if number in others)


def verdicts(row, entries):
    """One for each want whose contenders were measured."""
    found = []
    own = entries[row.group, row.subject, row.bytes]
    for want in row.wants:
        others = [entries[row.group, name, row.bytes] for name in want.against
                  if (row.group, name, row.bytes) in entries]
        if others:
            other = min(others, key=lambda entry: entry["median_us"])
            ratio = time_ratio(own, other)
            found.append(Verdict(want.wanted, want.say(ratio, other["name"]), other["name"], ratio,
                                 ratio <= want.time_ratio_max))
    return found


def number(value):
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(contender, row, entries):
    entry = entries.get((row.group, contender, row.bytes))
    if entry is None:
        return ""
    text = number(row.shown(entry["median_us"]))
    if contender == "Gloo":
        text += f" ({entry['variant']})"
    for name, (beside, label) in ASIDE.items():
        aside = entries.get((row.group, name, row.bytes))
        if beside == contender and aside:
            text += f" ({label}: {number(aside['median_us'])})"
    return text


def time_of(contender):
    return Column(contender, lambda row, entries, _: cell(contender, row, entries))


def own_time(row, entries, _):
    return number(row.shown(entries[row.group, row.subject, row.bytes]["median_us"]))


def lines_of(head, word):
    """A line a verdict."""
    return Column(head, lambda _row, _entries, found: "<br>".join(map(word, found)), "---")


JUDGEMENTS = (lines_of("Ropewalk is", lambda one: one.measured),
              lines_of("wanted", lambda one: one.wanted),
              lines_of("verdict", lambda one: "met" if one.met else "missed"))


def judged(*contenders):
    """The columns: Ropewalk's time, those of the contenders, and what was wanted of it."""
    return (Column("Ropewalk", own_time), *map(time_of, contenders), *JUDGEMENTS)


def judged_rows(rows, summary):
    """[(row, entry, verdicts)] of the rows that were measured."""
    entries = {(one["group"], one["name"], one["bytes"]): one for one in summary}
    return [(row, verdicts(row, entries)) for row in rows
            if (row.group, row.subject, row.bytes) in entries], entries


def row_lines(rows, columns, summary):
    measured, entries = judged_rows(rows, summary)
    for group in dict.fromkeys(row.group for row, _ in measured):
        yield [f"**{group}**"]
        for row, found in (one for one in measured if one[0].group == group):
            yield [row.size, *(column.text(row, entries, found) for column in columns)]


def table(rows, columns, summary):
    head = ["bytes", *(column.head for column in columns)]
    lines = [head, ["--:", *(column.align for column in columns)]]
    lines += [line + [""] * (len(head) - len(line)) for line in row_lines(rows, columns, summary)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows_as_json(rows, summary):
    measured, entries = judged_rows(rows, summary)
    return [{"group": row.group, "bytes": row.bytes, "in_mbs": row.in_mbs,
             "median_us": entries[row.group, row.subject, row.bytes]["median_us"],
             "verdicts": [dataclasses.asdict(one) for one in found]} for row, found in measured]
