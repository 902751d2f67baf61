"""A parallel loop of numba."""

import numba
import numpy as np
from counts import tell


@numba.njit(parallel=True)
def work(numbers: np.ndarray) -> int:
    """A sum of whole numbers, exact in any order."""
    total = 0
    for index in numba.prange(len(numbers)):
        total += numbers[index] * numbers[index] % 7
    return total


print(work(np.arange(1_000_000)))
tell(made={"numba threads": numba.get_num_threads()})
