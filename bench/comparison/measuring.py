"""Runs the jobs: contenders take turns, in rounds."""
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from comparison.contenders import environment

JOB_TIMEOUT_S = 300


class JobFailed(Exception):
    pass


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_job(words, variables):
    """Standard output of a job. Ends all its processes when it takes too long or is interrupted."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=variables,
                          start_new_session=True) as job:
        try:
            output, errors = job.communicate(timeout=JOB_TIMEOUT_S)
        except BaseException as error:
            os.killpg(job.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise JobFailed(f"not done after {JOB_TIMEOUT_S} s") from error
            raise
    if job.returncode != 0:
        raise JobFailed(f"exit status {job.returncode}: {errors.strip()[-2000:]}")
    for line in errors.splitlines():
        if line.startswith("kill_ranks: "):  # of jobs that it has made once more
            say(f"  {line}")
    return output


def run_contender(case, contender, build, under):
    """The results of one job: a dictionary a size."""
    # In memory where there is such a folder: a disk's write-back would disturb. The hosts of
    # tools/netlab have each their own /dev/shm, and get this folder in memory by an option.
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not case.shape else None
    with tempfile.TemporaryDirectory(prefix="compare-", dir=parent) as folder:
        segment = pathlib.Path(folder) / "segment"
        output = run_job([*under, *contender.command(build, case, segment)],
                         environment(case))
    results = list(contender.read(output))
    if not results:
        raise JobFailed(f"printed no result: {output[-2000:]}")
    return results


def turns(cases, rounds):
    """(round, case, contender): every contender runs every case once a round, in an order that
    rotates from round to round."""
    for number in range(rounds):
        for case in cases:
            shift = number % len(case.contenders)
            for contender in case.contenders[shift:] + case.contenders[:shift]:
                yield number, case, contender


def run_rounds(cases, rounds, build, under):
    """Returns (measurements, failures); what there is, when interrupted."""
    measurements, failures = [], []
    begin = time.monotonic()
    for number, case, contender in turns(cases, rounds):
        say(f"{time.monotonic() - begin:.0f} s, round {number + 1} of {rounds}: {case.name}: {contender.key}")
        try:
            results = run_contender(case, contender, build, under)
        except (JobFailed, KeyboardInterrupt) as error:
            why = str(error) or "interrupted"
            say(f"  failed: {why}")
            failures.append({"round": number, "case": case.name, "contender": contender.key,
                             "why": why})
            if isinstance(error, KeyboardInterrupt):
                break
            continue
        measurements += [{"round": number, "group": case.group, "name": contender.name,
                          "transport": case.transport, **result} for result in results]
    return measurements, failures


def summarize(measurements):
    """One entry for each group, name and size: the median over rounds of the fastest variant."""
    times, entries = {}, {}
    for one in measurements:
        times.setdefault((one["group"], one["name"], one["bytes"], one["variant"]), []).append(one)
    for (group, name, size, variant), runs in times.items():
        entry = {"group": group, "name": name, "bytes": size, "variant": variant,
                 "algorithm": runs[-1].get("algorithm", ""),
                 "median_us": statistics.median(run["median_us"] for run in runs),
                 "by_round": [[run["round"], run["median_us"]] for run in runs],
                 "min_us": min(run["min_us"] for run in runs),
                 "max_us": max(run["p99_us"] for run in runs),
                 "wrong": sum(run["wrong"] for run in runs)}
        best = entries.get((group, name, size))
        if best is None or entry["median_us"] < best["median_us"]:
            entries[group, name, size] = entry
    return list(entries.values())
