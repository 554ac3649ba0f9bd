#!/usr/bin/python3
"""Uses libropewalk.so by ctypes, with what libclang says of ropewalk.h: binding.py LIBRARY SCENARIO

Debian's Python, which has libclang's bindings (python3-clang-14).
"""
import ctypes
import math
import os
import pathlib
import re
import sys
import threading

sys.dont_write_bytecode = True
from header import HEADER, Header  # noqa: E402
from members import missing  # noqa: E402

HANDLES = ["rw_comm", "rw_work", "rw_plan", "rw_rendezvous", "rw_stop", "rw_state_sync", "rw_sgd", "rw_ea", "rw_async_ea",
           "rw_elastic_ea", "rw_partial"]
# Arguments that may be NULL. The others that are pointers may not.
OPTIONAL = {"options", "common", "report", "sum", "context", ("rw_comm_agree", "ranks"), ("rw_comm_agree", "count")}


class Job:
    """A job of one, and one object of each kind."""

    def __init__(self, header):
        self.header = header
        self.value = (ctypes.c_float * 1)(3)
        data = ctypes.addressof(self.value)
        self.call = header.new("rw_call", type=header.values["RW_FLOAT32"], count=1)
        setattr(self.call, "in", data)
        self.call.out = data
        self.tensor = header.structures["rw_tensor"](data=data, count=1)
        self.buffer = header.structures["rw_named_buffer"](name=b"x", data=data, bytes=4)
        self.done = None

    def made(self, function, *arguments):
        handle = ctypes.c_void_p()
        self.ok(getattr(self.header, function)(*arguments, ctypes.byref(handle)))
        return handle

    def ok(self, status):
        assert status == 0, self.header.rw_last_error()

    def one_of_each(self):
        comm, float32 = self.made("rw_comm_create", None), self.header.values["RW_FLOAT32"]
        own = self.made("rw_comm_create", None)
        return dict(zip(HANDLES, [
            comm, self.made("rw_start", comm, self.call), self.made("rw_plan_create", comm, self.call),
            self.made("rw_rendezvous_create", None, True), self.made("rw_stop_create"),
            self.made("rw_state_sync_start", comm, self.buffer, 1, 0, 0, 0), self.made("rw_sgd_create", comm, float32),
            self.made("rw_ea_create", comm, float32, 1, 0.5), self.made("rw_async_ea_create", comm, float32, 1, .5, None),
            self.made("rw_elastic_ea_create", own, float32, 1, 0.5, self.tensor, 1, 0, False),
            self.made("rw_partial_create", comm, 1, float32)]))

    def argument(self, name, clang_type, handles):
        """Something that is right by itself."""
        kind = clang_type.spelling
        if kind in handles:
            return handles[kind]
        ctype = self.header.type_of(clang_type)
        if kind == "const rw_call *":
            return self.call
        if issubclass(ctype, ctypes._Pointer):
            pointed = ctype._type_
            made = pointed()
            if hasattr(made, "size"):
                made.size = ctypes.sizeof(made)
            return ctypes.pointer(made)
        if name in ("count", "ranks"):
            return 1
        if ctype is ctypes.c_char_p:
            return b"text"
        if ctype is ctypes.c_void_p:
            return ctypes.addressof(self.value)
        if issubclass(ctype, ctypes._CFuncPtr):
            return ctype(lambda *_: 1)
        return ctype()


def bad_handles(header):
    """Every function, with each handle wrong in every way."""
    job = Job(header)
    handles, freed = job.one_of_each(), job.one_of_each()
    for kind in reversed(HANDLES):
        job.ok(getattr(header, f"{kind}_free")(freed[kind]))
    checks = 0
    for name, arguments in header.functions.items():
        for at, (_, clang_type) in enumerate(arguments):
            kind = clang_type.spelling
            if kind not in HANDLES:
                continue
            other = next(one for one in HANDLES if one != kind)
            wrong = {None: f"the {kind} is NULL", freed[kind].value: f"the {kind} was freed before",
                     0x1234: f"0x1234 is no {kind} of this library", ctypes.addressof(job.value): f"is no {kind}",
                     handles[other].value: f"a {other} is given where a {kind} is needed"}
            for value, text in wrong.items():
                if value is None and name.endswith("_free"):
                    job.ok(getattr(header, name)(None))
                    continue
                given = [job.argument(*one, handles) for one in arguments]
                given[at] = value
                status, said = getattr(header, name)(*given), header.rw_last_error().decode()
                assert status == header.values["RW_INVALID_ARGUMENT"], (name, text, status, said)
                assert said.startswith(f"{name}: ") and text in said, (name, text, said)
                checks += 1
    assert checks > 300, checks


def null_pointers(header):
    """Every function, with each pointer NULL."""
    job = Job(header)
    handles, checks = job.one_of_each(), 0
    for name, arguments in header.functions.items():
        for at, (argument, clang_type) in enumerate(arguments):
            ctype = header.type_of(clang_type)
            is_pointer = issubclass(ctype, (ctypes._Pointer, ctypes._CFuncPtr, ctypes.c_void_p, ctypes.c_char_p))
            if not is_pointer or clang_type.spelling in HANDLES or name.endswith("_free"):
                continue
            given = [job.argument(*one, handles) for one in arguments]
            given[at] = None if not issubclass(ctype, ctypes._CFuncPtr) else ctype()
            status = getattr(header, name)(*given)
            if argument not in OPTIONAL and (name, argument) not in OPTIONAL:
                assert status == header.values["RW_INVALID_ARGUMENT"], (name, argument, header.rw_last_error())
            checks += 1
    assert checks > 100, checks


def bad_values(header):
    job = Job(header)
    comm = job.made("rw_comm_create", None)
    data = ctypes.addressof(job.value)

    def refused(status, text):
        said = header.rw_last_error().decode()
        assert status == header.values["RW_INVALID_ARGUMENT"] and text in said, (status, said)

    for wrong in [99, -1]:
        refused(header.rw_all_reduce(comm, data, data, 1, wrong, 0), f"no rw_type {wrong}")
        refused(header.rw_sgd_create(comm, wrong, ctypes.byref(ctypes.c_void_p())), f"no rw_type {wrong}")
        job.call.collective = wrong
        refused(header.rw_run(comm, job.call, 0), f"no rw_collective {wrong}")
        job.call.collective = 0
    refused(header.rw_all_reduce(comm, data, data, 1, 0, -1), "no rw_op -1")
    refused(header.rw_all_reduce(comm, data, data, 1, 0, header.values["RW_USER"]), "use rw_run")
    refused(header.rw_run(comm, job.call, -5), "-5 ns")
    refused(header.rw_broadcast(comm, data, 1, 0, 7), "root 7 is out of range")
    refused(header.rw_sgd_create(comm, header.values["RW_INT32"], ctypes.byref(ctypes.c_void_p())), "int32")
    refused(header.rw_mem_free(data), "is no memory")
    job.call.algorithm = b"square"
    refused(header.rw_run(comm, job.call, 0), "no algorithm square")
    assert header.rw_status_name(99) == b"unknown"


def structures(header):
    """Of programs that were compiled with an earlier or a later header."""
    job, values = Job(header), header.values
    options = header.new("rw_options")
    later = ctypes.create_string_buffer(ctypes.sizeof(options) + 24)
    pointer = ctypes.cast(later, ctypes.POINTER(header.structures["rw_options"]))
    pointer[0].size = len(later)
    out = ctypes.c_void_p()
    job.ok(header.rw_comm_create(pointer, ctypes.byref(out)))
    later[len(later) - 1] = 1
    assert header.rw_comm_create(pointer, ctypes.byref(out)) == values["RW_INVALID_ARGUMENT"]
    assert b"does not know" in header.rw_last_error() and not out
    options.quorum_min = -7  # refused, unless `size` says that it is not there
    assert header.rw_comm_create(options, ctypes.byref(out)) != values["RW_OK"]
    options.size = header.structures["rw_options"].quorum_min.offset
    job.ok(header.rw_comm_create(options, ctypes.byref(out)))
    for size in [0, 1, 1 << 40]:
        options.size = size
        assert header.rw_comm_create(options, ctypes.byref(out)) == values["RW_INVALID_ARGUMENT"]
        assert b"set it to sizeof" in header.rw_last_error()

    failure = header.new("rw_failure", rank=5, peer=5)
    failure.size = header.structures["rw_failure"].peer.offset  # no multiple of anything
    job.ok(header.rw_last_failure(failure))
    assert failure.status == values["RW_INVALID_ARGUMENT"] and failure.rank == -1 and failure.peer == 5


def threads(header):
    """Each has its own last error."""
    said = []

    def other():
        said.append(header.rw_last_error())
        header.rw_work_free(1)
        said.append(header.rw_last_error())

    header.rw_comm_free(1)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert said[0] == b"" and said[1].startswith(b"rw_work_free: "), said
    assert header.rw_last_error().startswith(b"rw_comm_free: ")


def forked(header):
    """A child is told that the objects are its parent's, may free them, and the parent goes on."""
    job = Job(header)
    handles = job.one_of_each()
    child = os.fork()
    if child == 0:
        wrong = header.rw_barrier(handles["rw_comm"]) != header.values["RW_INVALID_ARGUMENT"]
        wrong |= b"was forked from" not in header.rw_last_error()
        wrong |= any(getattr(header, f"{kind}_free")(handles[kind]) for kind in HANDLES)
        wrong |= any(header.rw_comm_create(None, ctypes.byref(ctypes.c_void_p())) for _ in range(2))
        os._exit(wrong)
    assert os.waitpid(child, 0)[1] == 0
    job.ok(header.rw_run(handles["rw_comm"], job.call, 0))
    for kind in reversed(HANDLES):
        job.ok(getattr(header, f"{kind}_free")(handles[kind]))


def names(header):
    """Enumerators have the numbers of C++'s."""
    folder = HEADER.parent
    types, status = (folder.joinpath(name).read_text() for name in ("types.h", "status.h"))

    def rows(macro, row):
        body = re.search(rf"#define {macro}\(.*\).*\n((?:.*\\\n)*.*\n)", types)[1]
        return re.findall(row, body, re.M)

    wanted = {"rw_type": rows("ROPEWALK_DATA_TYPES", r"(?:FLOATING|INTEGER)\((\w+),"),
              "rw_op": rows("ROPEWALK_REDUCE_KINDS", r"^ +X\((\w+)\)"),
              "rw_collective": rows("ROPEWALK_COLLECTIVES", r"^ +X\((\w+)\)"),
              "rw_status": re.findall(r"^  (\w+),", re.search(r"enum class ErrorCode \{(.*?)\}", status, re.S)[1], re.M)}
    for enumeration, words in wanted.items():
        told = [f"RW_{word.upper()}" for word in words]
        assert header.enumerations[enumeration] == {word: i for i, word in enumerate(told)}, (enumeration, told)


def members(header):
    """All that C++ has."""
    known = {name: {field for field, _ in made._fields_} for name, made in header.structures.items()}
    assert missing(header.functions, known) == []
    # And what is not there is found.
    del header.functions["rw_run_beside"]
    known["rw_epoch"].remove("keeps_connections")
    assert missing(header.functions, known) == ["Communicator::run_beside", "Epoch::keeps_connections"]


def ranks(header):
    """Several ranks; a reduction that is Python's."""
    job, rank, size = Job(header), ctypes.c_int(), ctypes.c_int()
    comm = job.made("rw_comm_create", header.new("rw_options", timeout_ns=20_000_000_000))
    job.ok(header.rw_comm_rank(comm, ctypes.byref(rank)))
    job.ok(header.rw_comm_size(comm, ctypes.byref(size)))
    vector = ctypes.c_double * 1000
    memory = job.made("rw_mem_alloc", comm, ctypes.sizeof(vector))
    values = vector.from_address(memory.value)
    values[:] = [rank.value + i for i in range(1000)]
    job.ok(header.rw_all_reduce(comm, memory, memory, 1000, header.values["RW_FLOAT64"], header.values["RW_SUM"]))
    added = size.value * (size.value - 1) // 2
    assert list(values) == [added + size.value * i for i in range(1000)]

    def multiply(inout, given, count, _type, _context):
        numbers, others = ((ctypes.c_double * count).from_address(one) for one in (inout, given))
        for i in range(count):
            numbers[i] *= others[i]

    job.call = header.new("rw_call", type=header.values["RW_FLOAT64"], op=header.values["RW_USER"], count=2,
                          out=memory.value, function=dict(header.structures["rw_call"]._fields_)["function"](multiply))
    setattr(job.call, "in", memory.value)
    values[0], values[1] = rank.value + 1, 2
    job.ok(header.rw_run(comm, job.call, 0))
    assert list(values[:2]) == [math.factorial(size.value), 2 ** size.value], values[:2]
    job.ok(header.rw_mem_free(memory))
    job.ok(header.rw_comm_free(comm))
    print(f"rank {rank.value} of {size.value} passed")


SCENARIOS = [bad_handles, null_pointers, bad_values, structures, threads, forked, names, members]

if __name__ == "__main__":
    ctypes_header = Header(ctypes.CDLL(str(pathlib.Path(sys.argv[1]).resolve())))
    chosen = {one.__name__: one for one in SCENARIOS + [ranks]}
    for scenario in sys.argv[2:] or [one.__name__ for one in SCENARIOS]:
        chosen[scenario](ctypes_header)
        if scenario != "ranks":
            print(scenario, "passed", flush=True)
