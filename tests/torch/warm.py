"""Runs programs in processes that have PyTorch loaded, which takes seconds of a CPU otherwise.

They are forked from one that has loaded it and waits for orders. All else is as if they had been
started: arguments, environment, folder, open files, signals, and an end of Python's own.

    subprocess.run([*warm.python(), "program.py", "an argument"])
"""

import contextlib
import fcntl
import functools
import gc
import json
import os
import select
import signal
import socket
import sys
import types

FILES_MAX = 100


def python(freezes=False):
    """A command to be used as the interpreter is. Where it freezes what is loaded, that is not taken apart
    at the end, which takes a second."""
    return [sys.executable, "-ES", __file__, "freeze" if freezes else "run", start()]


@functools.cache
def start():
    """The address to which orders go."""
    import atexit
    import shutil
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp(prefix="ropewalk-torch-")
    address = os.path.join(folder, "orders")
    server = subprocess.Popen([sys.executable, __file__, "serve", address], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1",
                                   "TORCH_CPP_LOG_LEVEL": "ERROR"})
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.communicate)  # it ends when its input does
    assert server.stdout.readline() == "ready\n"
    return address


def inherited_files():
    """Python opens none that others inherit."""
    files = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            if os.get_inheritable(int(name)):
                files.append(int(name))
    return files


def order(how, address, argv):
    """Has a program run, and ends as it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        said = {"how": how, "argv": argv, "environment": dict(os.environ),
                "folder": os.getcwd(), "files": inherited_files()}
        socket.send_fds(server, [json.dumps(said).encode()], said["files"])
        code = int(server.recv(100))
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL's cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(address):
    """Returns in processes that are to run a program; with the order, and the files that came with it."""
    sys.modules["triton"] = None  # it is for GPUs, and cries where it is frozen
    import torch
    import torch._dynamo  # noqa: F401 - DDP's and the optimizers' first step loads it

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    print("ready", flush=True)
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            with connection:
                said, files, _, _ = socket.recv_fds(connection, 1 << 20, FILES_MAX)
                pid = os.fork()
                if pid != 0:
                    keep(pid, connection)
            return json.loads(said), files
        connection.close()
    sys.exit()


def keep(pid, connection):
    """Tells how the program ends. Where nobody waits for that any more, ends it, and what it started."""
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(order, files):
    os.setsid()
    # By way of numbers that are none of those wanted.
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, FILES_MAX) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(high, order["files"]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = order["argv"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    if sys.argv[0] == "-c":
        text = sys.argv.pop(1)
    else:
        program.__file__ = sys.argv[0]
        with open(sys.argv[0], encoding="utf-8") as file:
            text = file.read()
    sys.modules["torch"].seed()  # as every start does: else all draw the same numbers
    if order["how"] == "freeze":
        gc.freeze()
    exec(compile(text, sys.argv[0], "exec"), program.__dict__)


if __name__ == "__main__":
    how, address, *argv = sys.argv[1:]
    if how != "serve":
        order(how, address, argv)
    run(*serve(address))
