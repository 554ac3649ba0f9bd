"""Runs a server and a client of another's benchmark on this machine, each bound to a CPU of its own."""
import json
import os
import pathlib
import subprocess
import time

START_S_MAX, RUN_S_MAX = 20, 60
LISTENING = "0A"  # in /proc/net/tcp


def is_listening(port):
    lines = [line for name in ("tcp", "tcp6")
             for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(words[1].endswith(f":{port:04X}") and words[3] == LISTENING
               for words in map(str.split, lines))


def start(cpu, words, **more):
    return subprocess.Popen(["taskset", "-c", str(cpu), *words], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def run_pair(words, address, port):
    """What the client prints; raises RuntimeError with what both said."""
    cpus = sorted(os.sched_getaffinity(0))
    words = [*words, "-p", str(port)]
    with start(cpus[0], words) as server:
        try:
            deadline = time.monotonic() + START_S_MAX
            while not is_listening(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server does not listen")
                time.sleep(0.02)
            with start(cpus[-1], [*words, address]) as client:
                try:
                    output, _ = client.communicate(timeout=RUN_S_MAX)
                except BaseException:
                    client.kill()
                    raise
            if client.returncode != 0:
                raise RuntimeError(output[-1000:])
            server.wait(timeout=START_S_MAX)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            server.kill()
            raise RuntimeError(f"{' '.join(words)}: {error}; the server: "
                               f"{server.communicate()[0][-1000:]}") from error
    return output


def print_times(variant, size, messages, times, checked=False):
    """As the programs of bench/peers print what they measured; `times`: (min, median, p99)."""
    least, median, p99 = times
    print(json.dumps({"variant": variant, "bytes": size, "iterations": int(messages),
                      "min_us": least, "median_us": median, "p99_us": p99, "checked": checked,
                      "wrong": 0}), flush=True)
