"""Threads that allocate and free at the same time, on whichever allocator the process has."""

import ctypes
import threading

from counts import tell

sums = [0] * 16


def work(index: int) -> None:
    """Blocks of many sizes, kept for a while: malloc's own, since those above 512 bytes are not Python's."""
    kept = []
    for step in range(3000):
        kept.append(bytearray(600 + step % 50 * 1000))
        sums[index] += len(kept[-1])
        if len(kept) > 20:
            del kept[:10]


threads = [threading.Thread(target=work, args=(index,)) for index in range(len(sums))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(sums))

arenas = {}
try:
    count, size = ctypes.c_uint(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_uint))
    ctypes.CDLL(None).mallctl(b"opt.narenas", ctypes.byref(count), ctypes.byref(size), None, ctypes.c_size_t(0))
    arenas = {"arenas of jemalloc": count.value}
except AttributeError:
    print("no jemalloc")
tell(made=arenas)
