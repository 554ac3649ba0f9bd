"""Runs a function on every rank of a job: one forked process each, within a limit."""

import multiprocessing
import time
import traceback

_processes = multiprocessing.get_context("fork")


class RankFailed(AssertionError):
    """What a rank raised, as text."""


def _run(pipe, main, rank):
    try:
        said = ("returned", main(rank))
    except BaseException:
        said = ("raised", traceback.format_exc())
    pipe.send(said)


class Job:
    """`size` processes that run main(rank)."""

    def __init__(self, size, main, limit_s):
        self._pipes, self.processes = [], []
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s
        for rank in range(size):
            ours, theirs = _processes.Pipe(duplex=False)
            process = _processes.Process(target=_run, args=(theirs, main, rank), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def outcome(self, rank):
        """("returned", value), ("raised", text) or ("died", exit code)."""
        if not self._pipes[rank].poll(max(0, self._deadline - time.monotonic())):
            self.end()
            raise RankFailed(f"rank {rank} was still running after {self._limit_s} s")
        try:
            return self._pipes[rank].recv()
        except EOFError:
            self.processes[rank].join(self._limit_s)
            return ("died", self.processes[rank].exitcode)

    def outcomes(self):
        return [self.outcome(rank) for rank in range(len(self.processes))]

    def exit_codes(self, limit_s):
        """Of processes that end by themselves, all within the limit; None where one does not."""
        deadline = time.monotonic() + limit_s
        for process in self.processes:
            process.join(max(0, deadline - time.monotonic()))
        return [process.exitcode for process in self.processes]

    def end(self):
        """Kills what still runs."""
        for process in self.processes:
            process.kill()
            process.join()


def returned(outcomes):
    """The values; raises RankFailed where a rank did not return one."""
    failed = [f"rank {rank} {how}: {what}"
              for rank, (how, what) in enumerate(outcomes) if how != "returned"]
    if failed:
        raise RankFailed("\n".join(failed))
    return [value for _, value in outcomes]
