"""Runs a measure on fresh ranks: one process and one torch thread each, one CPU while there are."""
import os
import socket
import sys

LIMIT_S = 300


def _rank(pipe, backend, rank, ranks, port, measure, arguments, environment):
    os.environ.update(environment, OMP_NUM_THREADS="1")
    cpus = sorted(os.sched_getaffinity(0))
    if ranks <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=ranks)
    found = measure(rank, *arguments)
    if rank == 0:
        pipe.send(found)
    dist.destroy_process_group()


def turn(backend, ranks, measure, *arguments, **environment):
    """What `measure(rank, *arguments)` gives on rank 0 of `ranks` ranks over `backend`."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ours, theirs = context.Pipe(duplex=False)
    started = [context.Process(target=_rank, args=(theirs, backend, rank, ranks, port, measure,
                                                   arguments, environment))
               for rank in range(ranks)]
    for process in started:
        process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT_S):
            sys.exit(f"{backend}: no result after {LIMIT_S} s")
        return ours.recv()
    except EOFError:
        sys.exit(f"{backend}: a rank failed; see above")
    finally:
        for process in started:
            process.join(10)
            process.kill()
