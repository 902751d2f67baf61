"""A lazy query of polars, on both of its engines."""

import polars
from counts import tell

frame = polars.LazyFrame({"key": [number % 7 for number in range(100_000)], "value": range(100_000)})
query = frame.filter(polars.col("value") % 3 == 0).group_by("key").agg(polars.col("value").sum()).sort("key")
print(query.collect().rows())
print(query.collect(engine="streaming").rows())
tell(made={"polars threads": polars.thread_pool_size()})
