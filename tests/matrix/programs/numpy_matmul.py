"""A product of matrices of whole numbers, which is exact in any order."""

import numpy as np
from counts import tell
from threadpoolctl import threadpool_info

matrix = (np.arange(700 * 700) % 11).reshape(700, 700).astype("float64")
product = matrix @ matrix
print(int(product.sum()), int(product[3, 5]))
tell(made={"BLAS threads": max(library["num_threads"] for library in threadpool_info())})
