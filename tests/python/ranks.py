"""Runs a function on every rank of a job: one process each, on loopback, within a limit."""

import socket

import processes
import ropewalk

LIMIT_S = 60


class Job(processes.Job):
    """`size` ranks that run `body(comm, *arguments)`; `transport` and more go to Communicator."""

    def __init__(self, size, body, *arguments, transport="shm", **options):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            given = dict(size=size, coordinator="127.0.0.1:%d" % listener.getsockname()[1],
                         transport=transport, timeout=LIMIT_S / 2, **options)

            def main(rank):
                listens = dict(coordinator_fd=listener.fileno()) if rank == 0 else {}
                with ropewalk.Communicator(rank=rank, **listens, **given) as comm:
                    return body(comm, *arguments)

            super().__init__(size, main, LIMIT_S)


def run_ranks(size, body, *arguments, **options):
    """What `body` returned on each rank; raises RankFailed where one did not return."""
    job = Job(size, body, *arguments, **options)
    try:
        return processes.returned(job.outcomes())
    finally:
        job.end()
