"""A run: starts the machines, lets them begin together, passes their output on, ends them."""
import contextlib
import os
import pathlib
import selectors
import signal
import socket
import tempfile
import time

from rdma_vm.failure import STATUS_TIMEOUT, Failure, say
from rdma_vm.machine import Machine

HANG_S = 45  # now and then an emulated kernel hangs as it boots: it is booted once more
BOOT_S_MAX = 120  # in software, on a busy machine; 5 s is usual
OFF_S_MAX = 10
CHUNK_BYTES = 65536
OUTPUTS = {"out": 1, "err": 2}


class Printer:
    """Writes one stream of a node to a descriptor of this process; several nodes' in whole lines."""

    def __init__(self, descriptor, prefix):
        self.descriptor, self.prefix, self.rest = descriptor, prefix, b""

    def write(self, data):
        if self.prefix:
            *lines, self.rest = (self.rest + data).split(b"\n")
            data = b"".join(self.prefix + line + b"\n" for line in lines)
        while data:
            data = data[os.write(self.descriptor, data):]

    def finish(self):
        if self.rest:
            self.write(b"\n")


class DidNotComeUp(Failure):
    pass


class Run:
    def __init__(self, machines, options, begin):
        self.machines, self.options, self.begin = machines, options, begin
        self.selector = selectors.DefaultSelector()
        self.control = {machine.node: b"" for machine in machines}
        self.up, self.statuses = set(), {}
        self.printers = {}
        for machine in machines:
            prefix = b"[node%d] " % machine.node if options.nodes > 1 else b""
            for name, end in machine.sockets.items():
                self.selector.register(end, selectors.EVENT_READ, (machine, name))
                if name in OUTPUTS:
                    self.printers[machine.node, name] = Printer(OUTPUTS[name], prefix)

    def turn(self, deadline):
        """Handles what has come, or waits for it; false once the deadline is over."""
        wait_s = deadline - time.monotonic()
        for key, _ in self.selector.select(max(wait_s, 0)):
            machine, name = key.data
            try:
                data = key.fileobj.recv(CHUNK_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                self.selector.unregister(key.fileobj)
                if name == "control":
                    self.lost(machine)
            elif name == "control":
                self.hear(machine, data)
            else:
                self.printers[machine.node, name].write(data)
        return wait_s > 0

    def hear(self, machine, data):
        *lines, self.control[machine.node] = (self.control[machine.node] + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"up":
                self.up.add(machine.node)
            elif word == b"exit":
                self.statuses[machine.node] = int(number)

    def lost(self, machine):
        if machine.node in self.statuses:
            return
        what = "ended under the command" if machine.node in self.up else "did not come up"
        raise Failure(f"the machine of node {machine.node} {what}:\n  {machine.last_words()}")

    def note(self, text):
        if self.options.verbose:
            say(f"{text} after {time.monotonic() - self.begin:.1f} s")

    def tell(self, word):
        for machine in self.machines:
            machine.sockets["control"].sendall(word + b"\n")

    def wait_for(self, nodes, deadline):
        """Turns until `nodes` has every node; false when the deadline came first."""
        while len(nodes) < len(self.machines):
            if not self.turn(deadline):
                return False
        return True

    def finish(self):
        """Turns the machines off and takes what output is left."""
        self.tell(b"off")
        deadline = time.monotonic() + OFF_S_MAX
        while self.selector.get_map() and self.turn(deadline):
            pass
        for printer in self.printers.values():
            printer.finish()

    def out_of_time(self):
        for printer in self.printers.values():
            printer.finish()
        raise Failure(f"the run took longer than {self.options.timeout_s:g} s (--timeout) and was "
                      "ended", STATUS_TIMEOUT)

    def status(self, boot_s_max):
        deadline = self.begin + self.options.timeout_s
        if not self.wait_for(self.up, min(deadline, time.monotonic() + boot_s_max)):
            if time.monotonic() >= deadline:
                self.out_of_time()
            slow = next(one for one in self.machines if one.node not in self.up)
            raise DidNotComeUp(f"the machine of node {slow.node} did not come up in {boot_s_max} s:\n"
                               f"  {slow.last_words()}")
        self.note("up")
        self.tell(b"go")
        if not self.wait_for(self.statuses, deadline):
            self.out_of_time()
        self.note("the command ended")
        self.finish()
        self.note("off")
        return max(self.statuses.values())


def links_of(nodes, adapters):
    """For each node its end of the cable of each adapter; a node alone has none."""
    if nodes == 1:
        return [[]]
    return list(map(list, zip(*(socket.socketpair() for _ in range(adapters)))))


def end_by_signal(number, _):
    raise SystemExit(128 + number)


def run(options, image, accel):
    """The exit status of the command; raises Failure where the machines, or the time, failed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    if options.verbose:
        say(f"accelerator {accel}")
    begin = time.monotonic()
    try:
        return boot_and_run(options, image, accel, begin, HANG_S)
    except DidNotComeUp as failure:
        say(f"{failure}\nbooting once more")
        return boot_and_run(options, image, accel, begin, BOOT_S_MAX)


def boot_and_run(options, image, accel, begin, boot_s_max):
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rdma-vm-")))
        machines = []
        for node, links in enumerate(links_of(options.nodes, options.adapters)):
            machines.append(Machine(image, accel, options, node, scratch / f"node{node}", links))
            stack.callback(machines[-1].end)
        try:
            return Run(machines, options, begin).status(boot_s_max)
        except BrokenPipeError:  # nobody reads the output any more
            return 128 + signal.SIGPIPE
