"""A barrier over a file that the ranks of several hosts share; who waits sleeps."""
import ctypes
import mmap

PROCESS_SHARED = 1  # bits/pthread: PTHREAD_PROCESS_SHARED
PAGE_BYTES, NUMBER_BYTES = 4096, 8  # the rest is more than a pthread_barrier_t


class SharedBarrier:
    """`number.value`: an integer that the ranks share; one writes it before a barrier, all read it
    behind."""
    def __init__(self, path, rank, ranks, meet):
        """`meet`: returns when all ranks have called it."""
        self._libc = ctypes.CDLL(None)
        if rank == 0:
            path.write_bytes(bytes(PAGE_BYTES))
        meet()
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), PAGE_BYTES)
        self.number = ctypes.c_int64.from_buffer(self._memory)
        self._barrier = (ctypes.c_char * (PAGE_BYTES - NUMBER_BYTES)).from_buffer(self._memory,
                                                                                  NUMBER_BYTES)
        if rank == 0:
            attributes = ctypes.create_string_buffer(64)
            self._call("pthread_barrierattr_init", attributes)
            self._call("pthread_barrierattr_setpshared", attributes, PROCESS_SHARED)
            self._call("pthread_barrier_init", self._barrier, attributes, ctypes.c_uint(ranks))
        meet()

    def _call(self, name, *arguments):
        status = getattr(self._libc, name)(*arguments)
        if status > 0:
            raise OSError(status, name)

    def wait(self):
        self._libc.pthread_barrier_wait(self._barrier)
