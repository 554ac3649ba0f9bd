"""Runs a function on every rank of a process group of the backend: one process each, within a limit."""

import datetime
import os
import shutil
import signal
import sys
import tempfile

import torch
import torch.distributed as dist

from ropewalk.torch import build

sys.path.append(os.path.join(os.path.dirname(__file__), "../python"))
from processes import Job, RankFailed, returned  # noqa: E402

build.load()  # once, not by every rank
LIMIT_S = 90
EXIT_LIMIT_S = 45
TIMEOUT_S = 30


def start_group(store_path, rank, size, timeout_s=TIMEOUT_S, **options):
    """Joins; on the store of that path. Called again with another path it is another job."""
    dist.init_process_group("ropewalk", store=dist.FileStore(store_path, size), rank=rank,
                            world_size=size, timeout=datetime.timedelta(seconds=timeout_s),
                            **options)


def outcomes_of(size, body, *arguments, transport="shm", **options):
    """What became of each rank that ran `body(*arguments)` in a process group; timeout_s and more go to
    init_process_group. Raises RankFailed where a process does not end afterwards."""
    folder = tempfile.mkdtemp(prefix="ropewalk-torch-")

    def main(rank):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["ROPEWALK_TRANSPORT"] = transport
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        start_group(os.path.join(folder, "store"), rank, size, **options)
        said = body(*arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        return said

    job = Job(size, main, LIMIT_S)
    try:
        outcomes = job.outcomes()
        codes = job.exit_codes(EXIT_LIMIT_S)
    finally:
        job.end()
        shutil.rmtree(folder, ignore_errors=True)
    if None in codes:
        raise RankFailed(f"rank {codes.index(None)} was still there {EXIT_LIMIT_S} s after the end")
    for rank, code in enumerate(codes):
        if code != 0 and outcomes[rank][0] != "died":
            raise RankFailed(f"rank {rank} ended with {code}, after it {outcomes[rank]}")
    return outcomes


def run_group(size, body, *arguments, **options):
    """What `body` returned on each rank; raises RankFailed where one did not return."""
    return returned(outcomes_of(size, body, *arguments, **options))


def is_registered(tensor):
    """Whether it lies in memory that the backend has allocated: a file of Ropewalk's, mapped."""
    address = tensor.data_ptr()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            bounds, *rest = line.split(maxsplit=5)
            begin, end = (int(bound, 16) for bound in bounds.split("-"))
            if begin <= address < end:
                return rest[-1].startswith("/memfd:ropewalk")
    raise AssertionError(f"nothing is mapped at {address:#x}")
