"""A run: makes the cluster, starts the launcher on head, and ends both.

All of it lives in namespaces below one process 1, "head", so that nothing is left when this program
ends, however it ends.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from network_lab import namespaces, network
from network_lab.failure import STATUS_LAB, STATUS_TIMEOUT, Failure, say

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONTROL_GROUPS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")  # versions 1 and 2
GRACE_S = 10  # from SIGTERM to SIGKILL


def find_tools():
    for tool in ("ip", "tc", "nsenter", "mount"):
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            raise Failure(f"{tool} is missing; install it: apt-get install iproute2 util-linux")


def be_host(name):
    """Process 1 of a host: takes in processes whose parents have ended, until it is killed."""
    namespaces.make_mounts_private()
    namespaces.mount("proc", "/proc", "proc")
    namespaces.mount("tmpfs", "/dev/shm", "tmpfs")
    namespaces.set_host_name(name)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass


def start_hosts(shape):
    flags = (namespaces.NEW_NETWORK | namespaces.NEW_UTS | namespaces.NEW_IPC | namespaces.NEW_PIDS |
             namespaces.NEW_MOUNTS)
    return {host.name: namespaces.start_init(flags, lambda name=host.name: be_host(name))
            for host in shape.hosts}


def write_folder(folder, shape, pids, addresses):
    """What the command and `ssh` find in NETLAB_FOLDER."""
    for name, pid in pids.items():
        (folder / f"{name}.pid").write_text(f"{pid}\n")
        head = network.address_of(0, network.HEAD_ADDRESS)
        (folder / f"{name}.addresses").write_text(f"{head} {' '.join(addresses[name])}\n")
    (folder / "shape.json").write_text(shape.as_json() + "\n")
    (folder / "bin").mkdir()
    shutil.copy(pathlib.Path(__file__).with_name("ssh"), folder / "bin/ssh")


def name_hosts(folder, pids, addresses):
    """The same /etc/hosts on head and every host."""
    lines = ["127.0.0.1 localhost", f"{network.address_of(0, network.HEAD_ADDRESS)} head",
             *(f"{own[0]} {name}" for name, own in addresses.items())]
    file = folder / "hosts"
    file.write_text("\n".join(lines) + "\n")
    namespaces.mount(str(file), "/etc/hosts", "", namespaces.MS_BIND)
    for pid in pids.values():
        network.call("nsenter", "--target", pid, "--mount", "--", "mount", "--bind", file, "/etc/hosts")
    namespaces.set_host_name("head")


def command_of(options, hosts):
    """The words that start the job."""
    if not options.launcher:
        return options.command
    program, *words = options.launcher
    name = pathlib.Path(program).name
    built = ROOT / "build/tools/ropewalk"
    if program == "ropewalk" and built.exists():
        program = str(built)
    if name.startswith(("mpirun", "mpiexec")):
        return [program, *words, "--host", hosts, *options.command]
    return [program, *words, "--hosts", hosts, "--", *options.command]


def wait_for(process, deadline):
    """Its exit status; takes in orphans, since this is process 1."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == process.pid:
                    code = os.waitstatus_to_exitcode(status)
                    process.returncode = code
                    return code if code >= 0 else 128 - code
                if pid == 0:
                    break
        if time.monotonic() > deadline:
            raise Failure("the run took longer than --timeout and was ended", STATUS_TIMEOUT)
        signal.sigtimedwait({signal.SIGCHLD}, 0.2)


def end(process):
    """Gives the launcher time to end its ranks."""
    process.terminate()
    with contextlib.suppress(Failure):
        wait_for(process, time.monotonic() + GRACE_S)


def be_head(options, folder):
    """The exit status of the job."""
    namespaces.mount("proc", "/proc", "proc")
    if options.memory:
        namespaces.mount("tmpfs", options.memory, "tmpfs")
    pids = start_hosts(options.shape)
    addresses = network.make(options.shape, pids)
    write_folder(folder, options.shape, pids, addresses)
    name_hosts(folder, pids, addresses)
    hosts = ",".join(f"{host.name}:{host.ranks}" for host in options.shape.hosts)
    words = command_of(options, hosts)
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "NETLAB_FOLDER": str(folder),
        "NETLAB_HOSTS": hosts, "NETLAB_SHAPE": str(folder / "shape.json")}
    environment.setdefault("ROPEWALK_NETWORK", environment["NETLAB_SHAPE"])
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        process = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise Failure(f"{words[0]}: {error.strerror}", 127) from error
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return wait_for(process, time.monotonic() + options.timeout_s)
    except Failure:
        end(process)
        raise


def start_head(options, folder):
    """In the child that becomes process 1 of everything."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal's Ctrl-C reaches the launcher itself
    try:
        namespaces.make_mounts_private()
        status = be_head(options, folder)
    except Failure as failure:
        say(failure)
        status = failure.status
    except BaseException as error:  # nobody would see it
        say(f"{type(error).__name__}: {error}")
        status = STATUS_LAB
    os._exit(status)


def run(options):
    find_tools()
    with tempfile.TemporaryDirectory(prefix="netlab-") as name:
        return run_in(options, pathlib.Path(name))


def run_in(options, folder):
    child = os.fork()  # the namespaces are its own: this one has to remove the folder
    if child == 0:
        supervise(options, folder)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    remove_control_groups()  # of earlier runs, too, that were killed
    return status


def remove_control_groups():
    """Those that no process is in."""
    for folder in CONTROL_GROUPS:
        for group in pathlib.Path(folder).glob("netlab-*"):
            with contextlib.suppress(OSError):
                group.rmdir()


def share_cores():
    """In a control group: elsewhere the kernel schedules each session as a unit (sched(7),
    autogroup), so that a rank that yields yields nothing to those of other hosts."""
    for folder in CONTROL_GROUPS:
        group = pathlib.Path(folder, f"netlab-{os.getpid()}")
        if os.access(f"{folder}/cgroup.procs", os.W_OK):
            with contextlib.suppress(OSError):
                group.mkdir()
                (group / "cgroup.procs").write_text("0")
            return


def supervise(options, folder):
    """Starts head, whose namespaces it makes, and hands signals on to it."""
    namespaces.libc.prctl(namespaces.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    status = STATUS_LAB
    share_cores()
    try:
        if os.geteuid() != 0:
            namespaces.become_root()
        namespaces.unshare(namespaces.NEW_NETWORK | namespaces.NEW_PIDS | namespaces.NEW_MOUNTS |
                           namespaces.NEW_UTS, "the namespaces of the cluster")
        head = namespaces.fork_dying_with_parent()
        if head == 0:
            start_head(options, folder)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: os.kill(head, signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(head, 0)[1])
        status = code if code >= 0 else 128 - code
    except Failure as failure:
        say(failure)
        status = failure.status
    finally:
        os._exit(status)
