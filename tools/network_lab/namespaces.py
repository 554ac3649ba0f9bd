"""Processes in Linux namespaces of their own. What runs there ends with its process 1, and that ends
with the process that started it."""
import ctypes
import os
import signal

from network_lab.failure import Failure

libc = ctypes.CDLL(None, use_errno=True)

# linux/sched.h
NEW_MOUNTS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
SET_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000  # linux/mount.h


def unshare(flags, what):
    if libc.unshare(flags) != 0:
        raise Failure(f"{what} cannot be made: {os.strerror(ctypes.get_errno())}; run netlab as root, or "
                      "allow user namespaces (sysctl user.max_user_namespaces, "
                      "kernel.unprivileged_userns_clone)")


def mount(source, target, kind, flags=0):
    if libc.mount(*(text.encode() for text in (source, target, kind)), flags, None) != 0:
        raise Failure(f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def set_host_name(name):
    """/proc/sys/kernel/hostname may be written by the machine's root alone."""
    if libc.sethostname(name.encode(), len(name)) != 0:
        raise Failure(f"the host cannot be called {name}: {os.strerror(ctypes.get_errno())}")


def make_mounts_private():
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def become_root():
    """In a user namespace, for those who are not root."""
    user, group = os.getuid(), os.getgid()
    unshare(NEW_USER, "a user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def fork_dying_with_parent():
    """As os.fork; the child is killed when this process ends. Not across user namespaces."""
    pid = os.fork()
    if pid == 0:
        libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    return pid


def start_init(flags, main):
    """Runs main() as process 1 of new namespaces, and then ends it; its pid as seen from here. A
    helper process stands between."""
    read, write = os.pipe()
    helper = fork_dying_with_parent()
    if helper == 0:
        try:
            os.close(read)
            unshare(flags, "the namespaces of a host")
            init = fork_dying_with_parent()
            if init == 0:
                os.close(write)
                main()
            else:
                os.write(write, str(init).encode())
                os.close(write)
                os.waitpid(init, 0)
        except Exception as error:  # nobody else would tell
            os.write(2, f"netlab: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        pid = file.read()
    if not pid:
        raise Failure("a host could not be started")
    return int(pid)
