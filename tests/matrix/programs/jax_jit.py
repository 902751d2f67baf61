"""JAX alone: a compiled function, and the gradient of one."""

import jax
import jax.numpy as jnp
from counts import tell

matrix = (jnp.arange(256 * 256) % 3).reshape(256, 256).astype(jnp.float32)
print(int(jax.jit(lambda m: jnp.maximum(m @ m.T - 5, 0).sum())(matrix)))
print(f"{float(jax.jit(jax.grad(lambda x: jnp.tanh(matrix[:4] * x).sum()))(0.5)):.3f}")
print(jax.random.randint(jax.random.key(1), (4,), 0, 1000).tolist())
tell()
