"""The command line of rdma-vm."""
import argparse
import dataclasses
import os
import pathlib
import re

USAGE = "tools/rdma-vm [options] -- COMMAND ARGS..."

HELP = """\
Runs COMMAND in a virtual machine that has an RDMA adapter in software (Soft-RoCE, rxe0), in the
current folder and with the environment of the caller, as root. Needs neither root rights nor KVM.

The machine sees the file system of this one. What COMMAND writes is kept under the current folder
and under folders given by --writable; anything else that it writes is lost with the machine.
Standard input is empty. Output arrives as it is written.

"""

EPILOG = """
Adapter rxeI is node N's end of an Ethernet link with the address 10.99.I.(N+1)/24, GID index 1.
Links of one node lead nowhere: RDMA between its processes never leaves the adapter. With --nodes 2
they join the nodes, which name each other node0 and node1, and have nothing else in common: each
has a file system of its own (but the writable folders) and the clock of this machine. COMMAND runs
on both, each line of output begins with "[node0] " or "[node1] ", and the machines go when both
have ended. There is no network but this.

COMMAND finds in its environment
  RDMA_VM_NODE, RDMA_VM_NODES   its node, from 0, and how many there are
  RDMA_VM_ADDRESS               this node's address on its first adapter
  RDMA_VM_ADDRESSES             that of every node, with commas between

A job of Ropewalk with two ranks on each of two nodes, between which one in a thousand packets is
lost: --ranks starts COMMAND twice a node, with ROPEWALK_RANK, ROPEWALK_SIZE, ROPEWALK_COORDINATOR,
ROPEWALK_JOB_KEY and the like set:
  tools/rdma-vm --nodes 2 --ranks 2 --loss 0.1% -- build/tools/ropewalk bench all_reduce --sizes 8,64K

Exit status: that of COMMAND, of several the greatest (128 + N: signal N ended it; 127: not found);
124: --timeout ran out; 125: the machine failed, and standard error says how.

The first use fetches Debian's kernel (70 MB) into ~/.cache/ropewalk/rdma-vm (or XDG_CACHE_HOME).
tools/dependencies rdma installs what else is needed.
"""


@dataclasses.dataclass(frozen=True)
class Options:
    command: list
    folder: str          # where the command runs
    writable: list       # folders of this machine that the command may change
    nodes: int
    ranks: int           # processes of COMMAND a node; 0: one, and not as ranks
    adapters: int
    mtu_bytes: int
    netem: str           # arguments of `tc qdisc add ... netem`; empty: none
    memory: str
    cpus: int
    avx: bool
    accel: str
    timeout_s: float
    verbose: bool


def matching(pattern, what):
    def check(word):
        if not re.fullmatch(pattern, word):
            raise argparse.ArgumentTypeError(f"{word!r}: write {what}")
        return word
    return check


def between(low, high):
    def check(word):
        if not word.isdecimal() or not low <= int(word) <= high:
            raise argparse.ArgumentTypeError(f"{word!r}: write a number from {low} to {high}")
        return int(word)
    return check


def seconds(word):
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", word)
    if not parts or float(parts[1]) == 0:
        raise argparse.ArgumentTypeError(f"{word!r}: write seconds, or 90s, 10m, 1h")
    return float(parts[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[parts[2]]


class Format(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog):
        super().__init__(prog, width=100)


def parser():
    result = argparse.ArgumentParser(prog="rdma-vm", usage=USAGE, description=HELP, epilog=EPILOG,
                                     allow_abbrev=False, formatter_class=Format)
    add = result.add_argument
    add("--writable", action="append", default=[], metavar="DIR",
        help="what COMMAND writes here is kept too; may be given again")
    add("--nodes", type=between(1, 2), default=1, metavar="N", help="1 or 2 machines (default 1)")
    add("--ranks", type=between(1, 64), default=0, metavar="N",
        help="start COMMAND so often on each node, as the ranks of one job")
    add("--adapters", type=between(1, 8), default=1, metavar="N",
        help="rxe0 to rxe(N-1) (default 1)")
    add("--mtu", type=between(1280, 65535), default=9000, metavar="BYTES",
        help="of the links (default 9000, from which RoCE makes 4096)")
    add("--delay", type=matching(r"\d+(\.\d+)?(us|ms|s)", "a time, such as 5ms"), metavar="TIME",
        help="added to each packet between nodes, each way: 500us, 5ms")
    add("--loss", type=matching(r"\d+(\.\d+)?%", "a percentage, such as 0.1%"), metavar="PERCENT",
        help="of the packets between nodes: 0.1%%")
    add("--memory", type=matching(r"\d+[MG]", "a size, such as 4G"), default="4G", metavar="SIZE",
        help="of a node (default 4G)")
    add("--cpus", type=between(1, 64), default=2, metavar="N", help="of a node (default 2)")
    add("--no-avx", action="store_true",
        help="leave AVX out of an emulated processor, where it takes three times as long as SSE")
    add("--accel", choices=("auto", "kvm", "tcg"), default="auto",
        help="auto (default): kvm where a machine boots with it, else tcg (in software)")
    add("--timeout", type=seconds, default=600.0, metavar="TIME",
        help="of the whole run: 90, 90s, 10m (default 10m)")
    add("--verbose", action="store_true", help="say on standard error what is done")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return result


def folders(current, more, complain):
    """The writable folders: without those inside others, and the root, which stays as it is."""
    result = []
    for name in [current, *more]:
        path = pathlib.Path(name)
        if not path.is_dir():
            complain(f"--writable {name}: there is no such folder")
        path = str(path.resolve())
        if "\n" in path:
            complain(f"--writable {name}: a name with a line break will not do")
        if path == "/":
            if name != current:
                complain("--writable /: the whole root cannot be made writable; name a folder")
            continue
        result.append(path)
    return [path for path in dict.fromkeys(result)
            if not any(path.startswith(other + "/") for other in result)]


def parse(words):
    """Options; ends the program with status 2 where the words make no sense."""
    reader = parser()
    given = reader.parse_args(words)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        reader.error("no command given; write tools/rdma-vm -- COMMAND ARGS...")
    netem = [word for name, value in (("delay", given.delay), ("loss", given.loss)) if value
             for word in (name, value)]
    if netem and given.nodes == 1:
        reader.error("--delay and --loss act on packets between nodes, and RDMA within a node sends "
                     "none; add --nodes 2")
    current = os.getcwd()
    return Options(command=command, folder=current,
                  writable=folders(current, given.writable, reader.error), nodes=given.nodes,
                  ranks=given.ranks, adapters=given.adapters, mtu_bytes=given.mtu,
                  netem=" ".join(netem), memory=given.memory, cpus=given.cpus,
                  avx=not given.no_avx, accel=given.accel, timeout_s=given.timeout,
                  verbose=given.verbose)
