"""What each process of a test runs: programs.py NAME FILE; it leaves FILE.RANK.npz."""

import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank, size = int(os.environ["ROPEWALK_RANK"]), int(os.environ["ROPEWALK_SIZE"])
jax.config.update("jax_enable_x64", True)
jax.distributed.initialize(num_processes=size, process_id=rank)
mesh = Mesh(np.array(jax.devices()), ("ranks",))
by_rank, everywhere = PartitionSpec("ranks"), PartitionSpec()


def own_part(array):
    return np.asarray(array.addressable_shards[0].data)


def on_mesh(function, x, out_specs=by_rank):
    """`function` of each rank's own x; this rank's results."""
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, by_rank), x)
    mapped = jax.shard_map(function, mesh=mesh, in_specs=by_rank, out_specs=out_specs)
    return jax.tree.map(own_part, jax.jit(mapped)(whole))


def collectives():
    """Of each element type, and of lengths that fit into one message and that do not."""
    def all_of(x):
        whole = jnp.tile(x, size)
        found = dict(
            psum=jax.lax.psum(x, "ranks"),
            all_gather=jax.lax.all_gather(x, "ranks", tiled=True),
            psum_scatter=jax.lax.psum_scatter(whole, "ranks", tiled=True),
            ppermute=jax.lax.ppermute(x, "ranks", [(k, (k + 1) % size) for k in range(size)]),
            some=jax.lax.ppermute(x, "ranks", [(0, size - 1)]),
            all_to_all=jax.lax.all_to_all(whole.reshape(size, -1), "ranks", 0, 0).ravel())
        if not jnp.issubdtype(x.dtype, jnp.complexfloating):
            found.update(pmax=jax.lax.pmax(x, "ranks"), pmin=jax.lax.pmin(x, "ranks"))
        return found

    results = {}
    draw = np.random.default_rng(rank)
    for dtype in (np.float32, np.float64, np.int8, np.uint64, np.complex64, jnp.bfloat16):
        for count in (1, 300_000) if dtype == np.float32 else (1000,):
            x = (draw.integers(0, 20, count) + (1j if dtype == np.complex64 else 0)).astype(dtype)
            for name, found in on_mesh(all_of, x).items():
                results[f"{name} {np.dtype(dtype).name} {count}"] = found.astype(
                    np.float32 if dtype == jnp.bfloat16 else found.dtype)
    return results


def part_of_the_ranks():
    """Sums over pairs: communicators of some of the ranks."""
    pairs = Mesh(np.array(jax.devices()).reshape(size // 2, 2), ("pair", "member"))
    whole = jax.make_array_from_process_local_data(
        NamedSharding(pairs, PartitionSpec(("pair", "member"))), np.arange(100.0) + rank)
    mapped = jax.shard_map(lambda x: jax.lax.psum(x, "member"), mesh=pairs,
                           in_specs=PartitionSpec(("pair", "member")), out_specs=PartitionSpec("pair"))
    return {"pairs": own_part(jax.jit(mapped)(whole))}


def training():
    """Steps of a small network, its batch sharded over the ranks; gradients are summed by XLA."""
    draw = np.random.default_rng(7)
    weights = [draw.normal(size=shape, scale=0.3).astype(np.float32) for shape in [(64, 256), (256, 256), (256, 10)]]
    weights = jax.device_put(weights, NamedSharding(mesh, everywhere))
    draw = np.random.default_rng(rank)
    x = draw.normal(size=(32, 64)).astype(np.float32)
    y = np.eye(10, dtype=np.float32)[draw.integers(0, 10, 32)]
    x, y = (jax.make_array_from_process_local_data(NamedSharding(mesh, by_rank), part) for part in (x, y))

    def loss_of(weights, x, y):
        for w in weights[:-1]:
            x = jax.nn.relu(x @ w)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ weights[-1]) * y, axis=1))

    @jax.jit
    def step(weights, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return loss, [w - 0.1 * g for w, g in zip(weights, gradients)]

    losses = []
    for _ in range(10):
        loss, weights = step(weights, x, y)
        losses.append(float(own_part(loss)))
    return {"losses": np.array(losses), "weights": own_part(weights[0])}


def lost_rank():
    """One is killed between sums; the others tell what they hear."""
    step = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=by_rank, out_specs=everywhere))
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, by_rank), np.ones(1000, np.float32))
    for number in range(100_000):
        if rank == 2 and number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            jax.block_until_ready(step(x))
        except jax.errors.JaxRuntimeError as error:
            print("told:", error, flush=True)
            os._exit(0)


if __name__ == "__main__":
    np.savez(f"{sys.argv[2]}.{rank}.npz", **globals()[sys.argv[1]]())
