"""Pool() with its default number of workers, for each way to start one."""

import multiprocessing

from counts import tell


def square(number: int) -> int:
    """What the workers do."""
    return number * number


if __name__ == "__main__":
    workers = {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool() as pool:
            print(sum(pool.map(square, range(1000), chunksize=10)))
            workers[method] = len(multiprocessing.active_children())
            pool.close()
            pool.join()
    tell({"multiprocessing.cpu_count": multiprocessing.cpu_count()}, workers)
