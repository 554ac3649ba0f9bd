"""The plots, by gnuplot: time and bandwidth over size, one line a library, as SVG and PNG."""
import pathlib
import subprocess

from comparison.cases import SHM, TCP

PANELS = [(SHM, "shared memory, 2 ranks"), (TCP, "TCP over loopback, 2 ranks")]
# Colours that colour-blind people tell apart (Okabe and Ito); points differ, too.
STYLES = {
    "Ropewalk": "lc rgb '#0072B2' lw 3 dt 1 pt 7 ps 0.6",
    "Open MPI": "lc rgb '#D55E00' lw 1.5 dt 1 pt 5 ps 0.5",
    "MPICH": "lc rgb '#009E73' lw 1.5 dt 1 pt 9 ps 0.6",
    "Gloo": "lc rgb '#CC79A7' lw 1.5 dt 1 pt 11 ps 0.6",
    "limit": "lc rgb '#000000' lw 1.5 dt 2",
}
TITLES = {"limit": "limit of the hardware"}
KINDS = {
    # name: (title, y axis, value of (bytes, median in microseconds), y ticks, where the legend stands)
    "latency": ("Time of an all_reduce", "time", lambda size, us: us,
                [("0.1 µs", 0.1), ("1 µs", 1), ("10 µs", 10), ("100 µs", 100), ("1 ms", 1e3),
                 ("10 ms", 1e4), ("100 ms", 1e5), ("1 s", 1e6)], "left top"),
    "bandwidth": ("Bandwidth of an all_reduce", "bytes / time", lambda size, us: size / us / 1e3,
                  [("0.1 MB/s", 1e-4), ("1 MB/s", 1e-3), ("10 MB/s", 1e-2), ("100 MB/s", 0.1),
                   ("1 GB/s", 1), ("10 GB/s", 10), ("100 GB/s", 100)], "right bottom"),
}


def ticks(labels):
    return ", ".join(f"'{label}' {value}" for label, value in labels)


SIZE_TICKS = ticks([
    ("8 B", 8), ("64 B", 64), ("512 B", 512), ("4 KiB", 4 << 10), ("32 KiB", 32 << 10),
    ("256 KiB", 256 << 10), ("2 MiB", 2 << 20), ("16 MiB", 16 << 20), ("64 MiB", 64 << 20)])


def points(summary, group, name, value):
    found = sorted((one["bytes"], value(one["bytes"], one["median_us"])) for one in summary
                   if one["group"] == group and one["name"] == name)
    return "".join(f"{size} {y}\n" for size, y in found)


def panel(summary, group, title, kind):
    _, axis, value, y_ticks, legend = KINDS[kind]
    data, lines = "", []
    for name, style in STYLES.items():
        block = points(summary, group, name, value)
        if block:
            data += f"${name.replace(' ', '_')} << EOD\n{block}EOD\n"
            drawn = "lines" if name == "limit" else "linespoints"
            lines.append(f"${name.replace(' ', '_')} using 1:2 with {drawn} {style} "
                         f"title '{TITLES.get(name, name)}'")
    if not lines:
        return ""
    return (f"{data}set title '{title}'\nset ylabel '{axis}'\nset ytics ({ticks(y_ticks)})\n"
            f"set key {legend} reverse Left\nplot {', '.join(lines)}\n")


def script(summary, kind, output):
    terminal = ("svg noenhanced size 1100,480 font 'sans,13' background '#ffffff'" if output.suffix == ".svg"
                else "pngcairo noenhanced size 1650,720 font 'sans,13' fontscale 1.15 background '#ffffff'")
    panels = [panel(summary, group, title, kind) for group, title in PANELS]
    panels = [one for one in panels if one]
    return "\n".join([
        f"set terminal {terminal}", f"set output '{output}'",
        "set encoding utf8", "set logscale x 2", "set logscale y 10",
        f"set xtics ({SIZE_TICKS}) rotate by 35 right", "set xrange [6:90000000]",
        "set xlabel 'bytes of the vector' offset 0,-0.5",
        "set grid xtics ytics lc rgb '#dddddd' lt 1", "set border 3", "set tics nomirror out",
        f"set multiplot layout 1,{len(panels)} title '{KINDS[kind][0]} (float32 sum, in place)'",
        *panels, "unset multiplot", ""]) if panels else ""


def draw(summary, folder):
    """Writes the plots for which there are measurements; returns their paths."""
    written = []
    for kind in KINDS:
        for suffix in (".svg", ".png"):
            path = pathlib.Path(folder) / (kind + suffix)
            text = script(summary, kind, path)
            if text:
                subprocess.run(["gnuplot"], input=text, text=True, check=True)
                written.append(path)
    return written
