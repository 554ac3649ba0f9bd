"""One virtual machine: its QEMU process, and the sockets that lead into it.

- Processor: QEMU's, with AVX unless `--no-avx`: emulated, its additions take three times as long as SSE's.
- Cache: `~/.cache/ropewalk/rdma-vm` (or XDG_CACHE_HOME) keeps the kernel's package and the initramfs:
  static busybox, modules and the script `init`, named by a hash of these. Remove the folder to get a newer
  kernel.
- Files: QEMU shows `/` over 9p, read-only. An overlay puts a tmpfs on top, so every path can be written;
  the current folder and `--writable` ones are 9p shares of their own, mounted over it. So programs built
  here run there.
- Ports: the script `node` is process 1. The command's two outputs and a control channel ("up", "go", "exit
  3", "off") are virtio ports that end in sockets of rdma-vm. QEMU dies with it.
- Network: with one node a veth pair per adapter; Soft-RoCE turns packets to its own address round before
  they reach it, so delay and loss need two nodes. Their adapters are joined by socket pairs between the
  QEMUs.
- KVM is used only after a boot with it succeeded once (remembered until the host reboots): some hosts offer
  `/dev/kvm`, and machines hang. In software the machine is slow: it shows what is right, not how fast.
"""
import contextlib
import os
import pathlib
import secrets
import shlex
import shutil
import socket
import subprocess

from rdma_vm import cache
from rdma_vm.failure import say

NODE_SCRIPT = pathlib.Path(__file__).resolve().parent / "node"
PORTS = ("control", "out", "err")
JOB_KEY = secrets.token_hex(32)  # of the ranks that the nodes start, where the user has none


def write_run_folder(folder, options, node):
    """What the scripts `init` and `node` read in the machine."""
    addresses = [f"10.99.0.{number + 1}" for number in range(options.nodes)]
    environment = {"ROPEWALK_JOB_KEY": JOB_KEY} | dict(os.environ) | {
        "RDMA_VM_NODE": str(node), "RDMA_VM_NODES": str(options.nodes),
        "RDMA_VM_ADDRESS": addresses[node], "RDMA_VM_ADDRESSES": ",".join(addresses)}
    variables = [f"{name}={value}" for name, value in environment.items()]
    files = {
        "settings": f"node={node} nodes={options.nodes} ranks={options.ranks} "
                    f"adapters={options.adapters} mtu_bytes={options.mtu_bytes} "
                    f"netem={shlex.quote(options.netem)}\n",
        "writable": "".join(f"{path}\n" for path in options.writable),
        "command": f"#!/bin/sh\ncd {shlex.quote(options.folder)} || exit 125\n"
                   f'exec env -i {shlex.join(variables)} "$@" {shlex.join(options.command)}\n',
    }
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, errors="surrogateescape")
    (folder / "command").chmod(0o755)
    shutil.copy(NODE_SCRIPT, folder / "node")
    shutil.copy(cache.busybox(), folder / "busybox")


class Machine:
    """Owns the process and the host's ends of the sockets; `links` are its ends of the network."""

    def __init__(self, image, accel, options, node, folder, links):
        self.node = node
        self.folder = folder
        write_run_folder(folder, options, node)
        self.sockets, far = {}, {}
        for name in PORTS:
            self.sockets[name], far[name] = socket.socketpair()
        inherited = [*far.values(), *links]
        command = [*self._base(image, accel, options), *self._shares(options.writable),
                   *self._ports(far), *self._network(links)]
        if options.verbose:
            say(shlex.join(command))
        # The machine must not outlive this process, nor take part in the terminal's Ctrl-C.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL,
            stdout=(folder / "qemu.log").open("wb"), stderr=subprocess.STDOUT,
            pass_fds=[one.fileno() for one in inherited], start_new_session=True)
        for one in inherited:
            one.close()

    def _base(self, image, accel, options):
        processor = "max,la57=off"
        if accel == "tcg" and not options.avx:
            # What builds upon AVX goes with it: programs look for it alone.
            processor += ",avx=off,avx2=off,fma=off,f16c=off"
        return [cache.find_tool("qemu-system-x86_64"), "-nodefaults", "-display", "none",
                "-machine", "q35", "-accel", "tcg,thread=multi" if accel == "tcg" else accel,
                "-cpu", processor, "-smp", str(options.cpus), "-m", options.memory, "-no-reboot",
                "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
                "-append", "quiet console=ttyS0 panic=-1 mitigations=off "
                "tsc=reliable clocksource=tsc",
                "-serial", f"file:{self.folder / 'console'}"]

    @staticmethod
    def _escaped(path):
        return str(path).replace(",", ",,")

    def _shares(self, writable):
        shares = [("host", "/", ",readonly=on"), ("run", self.folder, ",readonly=on"),
                  *((f"writable{number}", path, "") for number, path in enumerate(writable))]
        for tag, path, more in shares:
            yield "-virtfs"
            yield (f"local,path={self._escaped(path)},mount_tag={tag},security_model=none,"
                   f"multidevs=remap{more}")

    @staticmethod
    def _ports(far):
        yield from ("-device", "virtio-serial-pci")
        for name, end in far.items():
            yield from ("-chardev", f"socket,id={name},fd={end.fileno()}",
                        "-device", f"virtserialport,chardev={name},name={name}")

    def _network(self, links):
        for number, link in enumerate(links):
            mac = f"52:54:00:99:{number:02x}:{self.node + 1:02x}"
            yield from ("-netdev", f"socket,id=link{number},fd={link.fileno()}",
                        "-device", f"virtio-net-pci,netdev=link{number},mac={mac},romfile=")

    def last_words(self):
        """What QEMU and the machine's console said, shortened: for an error."""
        texts = []
        with contextlib.suppress(subprocess.TimeoutExpired):
            texts.append(f"QEMU ended with status {self.process.wait(timeout=1)}")
        for name in ("qemu.log", "console"):
            path = self.folder / name
            lines = path.read_text(errors="replace").split("\n") if path.exists() else []
            texts += [line.rstrip() for line in lines if line.strip()][-15:]
        return "\n  ".join(texts + ["more --memory, or another --accel, may help; --verbose shows how "
                                     "it was started"])

    def end(self):
        self.process.kill()
        self.process.wait()
        for one in self.sockets.values():
            one.close()
