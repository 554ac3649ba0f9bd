"""The plots, by gnuplot: something over size, one line a library, as SVG and PNG."""
import dataclasses
import pathlib
import subprocess

# Colours that colour-blind people tell apart (Okabe and Ito); points differ, too.
STYLES = {
    "Ropewalk": "lc rgb '#0072B2' lw 3 dt 1 pt 7 ps 0.6",
    "Open MPI": "lc rgb '#D55E00' lw 1.5 dt 1 pt 5 ps 0.5",
    "MPICH": "lc rgb '#009E73' lw 1.5 dt 1 pt 9 ps 0.6",
    "Gloo": "lc rgb '#CC79A7' lw 1.5 dt 1 pt 11 ps 0.6",
    "PyTorch's Gloo": "lc rgb '#E69F00' lw 1.5 dt 1 pt 13 ps 0.6",
    "limit": "lc rgb '#000000' lw 1.5 dt 2",
    "bound": "lc rgb '#000000' lw 1.5 dt 2",
}
TITLES = {"limit": "limit of the hardware"}
BARE = ("limit", "bound")  # lines without points


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is drawn over size."""
    name: str
    title: str
    axis: str
    value: object  # bytes, median in microseconds, that of the bound -> y; None: no point
    y_ticks: tuple
    legend: str  # where it stands
    log_y: bool = True


@dataclasses.dataclass(frozen=True)
class Plot:
    kind: Kind
    file: str  # its name, without suffix
    panels: tuple  # (group, title)


LATENCY = Kind("latency", "Time of an all_reduce", "time", lambda size, us, bound_us: us,
               (("0.1 µs", 0.1), ("1 µs", 1), ("10 µs", 10), ("100 µs", 100), ("1 ms", 1e3),
                ("10 ms", 1e4), ("100 ms", 1e5), ("1 s", 1e6)), "left top")
BANDWIDTH = Kind("bandwidth", "Bandwidth of an all_reduce", "bytes / time",
                 lambda size, us, bound_us: size / us / 1e3,
                 (("0.1 MB/s", 1e-4), ("1 MB/s", 1e-3), ("10 MB/s", 1e-2), ("100 MB/s", 0.1),
                  ("1 GB/s", 1), ("10 GB/s", 10), ("100 GB/s", 100)), "right bottom")
SHARE = Kind("bound", "Bandwidth of an all_reduce, as part of the bound", "bound / time",
             lambda size, us, bound_us: bound_us and bound_us / us,
             tuple((f"{tenth / 10:g}", tenth / 10) for tenth in range(0, 11, 2)), "right bottom",
             log_y=False)


def of_kinds(prefix, panels, *kinds):
    """A plot of each kind, in files whose names begin so."""
    return tuple(Plot(kind, prefix + kind.name, panels) for kind in kinds)


def ticks(labels):
    return ", ".join(f"'{label}' {value}" for label, value in labels)


SIZE_TICKS = ticks([
    ("8 B", 8), ("64 B", 64), ("512 B", 512), ("4 KiB", 4 << 10), ("32 KiB", 32 << 10),
    ("256 KiB", 256 << 10), ("2 MiB", 2 << 20), ("16 MiB", 16 << 20), ("64 MiB", 64 << 20)])


def points(summary, group, name, value):
    times = {(one["name"], one["bytes"]): one["median_us"] for one in summary
             if one["group"] == group}
    found = sorted((size, value(size, us, times.get(("bound", size))))
                   for (whose, size), us in times.items() if whose == name)
    return "".join(f"{size} {y}\n" for size, y in found if y is not None)


def panel(summary, group, title, kind):
    data, lines = "", []
    for name, style in STYLES.items():
        block = points(summary, group, name, kind.value)
        if block:
            label = "".join(letter if letter.isalnum() else "_" for letter in name)
            data += f"${label} << EOD\n{block}EOD\n"
            drawn = "lines" if name in BARE else "linespoints"
            lines.append(f"${label} using 1:2 with {drawn} {style} "
                         f"title \"{TITLES.get(name, name)}\"")
    if not lines:
        return ""
    return (f"{data}set title '{title}'\nset ylabel '{kind.axis}'\n"
            f"set ytics ({ticks(kind.y_ticks)})\n"
            f"set key {kind.legend} reverse Left\nplot {', '.join(lines)}\n")


def script(summary, plot, output):
    terminal = ("svg noenhanced size 1100,480 font 'sans,13' background '#ffffff'" if output.suffix == ".svg"
                else "pngcairo noenhanced size 1650,720 font 'sans,13' fontscale 1.15 background '#ffffff'")
    kind = plot.kind
    panels = [panel(summary, group, title, kind) for group, title in plot.panels]
    panels = [one for one in panels if one]
    return "\n".join([
        f"set terminal {terminal}", f"set output '{output}'",
        "set encoding utf8", "set logscale x 2",
        "set logscale y 10" if kind.log_y else "set yrange [0:1.1]",
        f"set xtics ({SIZE_TICKS}) rotate by 35 right", "set xrange [6:90000000]",
        "set xlabel 'bytes of the vector' offset 0,-0.5",
        "set grid xtics ytics lc rgb '#dddddd' lt 1", "set border 3", "set tics nomirror out",
        f"set multiplot layout 1,{len(panels)} title '{kind.title} (float32 sum, in place)'",
        *panels, "unset multiplot", ""]) if panels else ""


def draw(plots, summary, folder):
    """Writes the plots for which there are measurements; returns their paths."""
    written = []
    for plot in plots:
        for suffix in (".svg", ".png"):
            path = pathlib.Path(folder) / (plot.file + suffix)
            text = script(summary, plot, path)
            if text:
                subprocess.run(["gnuplot"], input=text, text=True, check=True)
                written.append(path)
    return written
