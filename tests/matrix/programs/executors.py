"""The executors of concurrent.futures with their default number of workers."""

import hashlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from counts import tell


def digest(number: int) -> str:
    """What the workers do; hashlib lets other threads run."""
    return hashlib.sha256(bytes(100_000) + bytes([number])).hexdigest()


if __name__ == "__main__":
    workers = {}
    for name, executor in (("threads of a pool", ThreadPoolExecutor), ("processes", ProcessPoolExecutor)):
        with executor() as pool:
            print(hashlib.sha256("".join(pool.map(digest, range(200))).encode()).hexdigest())
            workers[name] = pool._max_workers
    tell(made=workers)
