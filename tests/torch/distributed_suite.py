#!/usr/bin/env python3
"""PyTorch's own distributed tests, over the backend "ropewalk".

Usage: distributed_suite.py [--backend NAME] [--ranks N] [--list] [TEST...]

The tests ship with PyTorch (torch.testing._internal.distributed.distributed_test). Many ask for a
backend by its name and skip all others, whatever those can do. So they are run in passes: first as
they are; then what was skipped is run again with the tests being told that the backend is "gloo",
then "mpi", and at last "gloo" with 8 ranks. Processes are forked from one that has loaded PyTorch, which
saves most of the time.

Prints a line per test and "N passed, M failed"; the exit status says whether all passed. A test that
no pass runs (most want GPUs) is listed with PyTorch's reason by --list and counts as neither.
"""
from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import unittest

# What cannot pass over any backend that is not PyTorch's own, and why.
REFUSED = {
    "test_ddp_logging_data_cpu": "DDP logs the backend's type, which is `custom`, as its name",
    "test_monitored_barrier_gloo": "PyTorch refuses monitored_barrier to all but gloo",
    "test_monitored_barrier_gloo_rank_0_timeout": "the same",
    "test_monitored_barrier_gloo_subgroup": "the same",
    "test_monitored_barrier_failure_order": "the same",
    "test_monitored_barrier_wait_all_ranks": "the same",
}
# Skips that no name changes.
FINAL = re.compile(r"accelerator|GPU|CUDA|[Nn]ccl|NCCL|issues/|small world size")


def is_by_name(why):
    """Whether the backend's name is why a test was skipped; some name NCCL's beside gloo's."""
    return "gloo" in why or not FINAL.search(why)


FORKS = multiprocessing.get_context("fork")
PASSES = [("ropewalk", 4), ("gloo", 4), ("mpi", 4), ("gloo", 8)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="ropewalk", help="another, to compare")
    parser.add_argument("--ranks", type=int, help="of a single pass, instead of all")
    parser.add_argument("--list", action="store_true", help="list what was not run, and why")
    parser.add_argument("tests", nargs="*", help="names, or parts of them; default: all")
    return parser.parse_args()


class Result(unittest.TestResult):
    """One line per test; `rows` has name -> (outcome, reason)."""

    def __init__(self, title):
        super().__init__()
        self.title = title
        self.rows = {}

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def note(self, test, outcome, reason=""):
        name = test.id().split(".")[-1]
        self.rows[name] = (outcome, reason)
        seconds = time.monotonic() - self.began
        if outcome == "ok":
            print(f"ok   {seconds:6.2f} s  {self.title}  {name}", flush=True)
        elif outcome == "failed" and name not in REFUSED:
            print(f"FAIL {seconds:6.2f} s  {self.title}  {name}\n{reason}", flush=True)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addError(self, test, error):
        self.note(test, "failed", self._exc_info_to_string(error, test))

    addFailure = addError


def disguise(backend, called):
    """Where the tests ask for `called` they get `backend`."""
    import torch.distributed as dist

    def renamed(function):
        def wrapper(*given, **options):
            given = [backend if value == called else value for value in given]
            options = {name: backend if value == called else value
                       for name, value in options.items()}
            return function(*given, **options)
        return wrapper

    dist.init_process_group = renamed(dist.init_process_group)
    dist.new_group = renamed(dist.new_group)


def load_pytorch(backend):
    """Once, for all passes and ranks: they are forked from this process."""
    os.environ.update(OMP_NUM_THREADS="1", PYTORCH_PRINT_REPRO_ON_FAILURE="0")
    import torch
    import torch._dynamo
    from torch.testing._internal import common_distributed

    torch.set_num_threads(1)
    for name in ("skip_if_no_gpu", "skip_if_small_worldsize", "skip_if_odd_worldsize"):
        setattr(common_distributed, name, skips_beforehand(getattr(common_distributed, name)))
    counting = common_distributed.skip_if_lt_x_gpu
    common_distributed.skip_if_lt_x_gpu = lambda *given, **options: skips_beforehand(
        counting(*given, **options))
    if backend == "ropewalk":
        from ropewalk.torch import build

        build.load()


def skips_beforehand(decorator):
    """The same decorator, but what it skips on each rank, by ending it, is skipped before ranks are
    started."""
    from torch.testing._internal.common_distributed import TEST_SKIPS

    def decorate(test):
        try:
            decorator(lambda _: None)(None)
        except SystemExit as end:
            why = next(skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code)
            return test if hasattr(test, "__unittest_skip__") else unittest.skip(why)(test)
        return decorator(test)
    return decorate


def load_suite(backend, called, ranks, temporary):
    os.mkdir(os.path.join(temporary, "barrier"))
    os.environ.update(BACKEND=called, WORLD_SIZE=str(ranks), TEMP_DIR=temporary,
                      INIT_METHOD=f"file://{temporary}/again")
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in ("ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add(called)
    from torch.testing._internal.distributed import distributed_test

    if called != backend:
        disguise(backend, called)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(FORKS.Process)

    return unittest.defaultTestLoader.loadTestsFromTestCase(Suite)


def run_pass(backend, called, ranks, tests, folder):
    """In a process of its own: the tests read the backend's name when they are imported."""
    # PyTorch's libraries write much to standard error of which nothing is wrong.
    log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 2)
    suite = load_suite(backend, called, ranks, folder)
    if tests:
        suite = unittest.TestSuite(test for test in suite
                                   if any(name in test.id() for name in tests))
    gc.freeze()  # what is not looked at stays shared with the ranks
    result = Result(f"{called}, {ranks} ranks")
    suite.run(result)
    with open(os.path.join(folder, "rows"), "w") as file:
        json.dump(result.rows, file)


def rows_of_pass(backend, called, ranks, tests):
    with tempfile.TemporaryDirectory(prefix="ropewalk-torch-") as folder:
        process = FORKS.Process(target=run_pass, args=(backend, called, ranks, tests, folder))
        process.start()
        process.join()
        if process.exitcode != 0:
            with open(os.path.join(folder, "log")) as log:
                sys.exit(f"{log.read()[-4000:]}\nthe pass as {called} ended with {process.exitcode}")
        with open(os.path.join(folder, "rows")) as file:
            return json.load(file)


def passes_of(options):
    if options.ranks:
        return [(options.backend, options.ranks)]
    if options.backend != "ropewalk":
        return [(options.backend, 4)]
    return PASSES


def main():
    options = arguments()
    load_pytorch(options.backend)
    rows = {}
    for called, ranks in passes_of(options):
        tests = options.tests
        if rows:
            small = ranks > 4
            tests = [name for name, (outcome, why) in rows.items() if outcome == "skipped"
                     and ("small world size" in why if small else is_by_name(why))]
            if not tests:
                continue
        rows.update(rows_of_pass(options.backend, called, ranks, tests))
    failed = [name for name, row in rows.items() if row[0] == "failed"]
    unexpected = [name for name in failed if name not in REFUSED]
    passed = sum(row[0] == "ok" for row in rows.values())
    skipped = {name: why for name, (outcome, why) in rows.items() if outcome == "skipped"}
    if options.list:
        for name, why in skipped.items():
            print(f"not run: {name}: {why.strip().splitlines()[-1]}")
    for name in failed:
        if name in REFUSED:
            print(f"refused: {name}: {REFUSED[name]}")
    print(f"{len(skipped)} not run (--list says why), {len(failed) - len(unexpected)} refused")
    print(f"{passed} passed, {len(unexpected)} failed")
    return 1 if unexpected or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
