"""ropewalk.lightgbm with the real LightGBM."""

import json
import signal
import socket

import numpy as np

from scripts import run_script

RANKS = 4
PRELUDE = """
import json
import lightgbm

# Rows of every rank; each has its own kind of them, so that trees of one rank alone would differ.
draw = np.random.default_rng(rank)
features = draw.normal(loc=rank, size=(3000, 12))
labels = features[:, 0] * np.sin(features[:, 1]) + features[:, 2:4].sum(axis=1) + draw.normal(size=3000)
parameters = dict(objective="regression", num_leaves=31, num_threads=1, seed=3, force_row_wise=True, verbose=-1)

def train(given, rounds=12, **options):
    data = lightgbm.Dataset(features, labels)
    return lightgbm.train({**parameters, **given}, data, rounds, **options)
"""


def run(size, script, **options):
    return run_script(size, PRELUDE + script, OMP_NUM_THREADS="1", **options)


def trees_of(booster):
    """What splits where in each tree, and what it predicts: two arrays."""
    splits, values = [], []

    def walk(node):
        if "leaf_value" in node:
            values.append(node["leaf_value"])
        else:
            splits.append((node["split_feature"], node["threshold"], node["internal_count"]))
            walk(node["left_child"])
            walk(node["right_child"])

    for tree in booster["tree_info"]:
        walk(tree["tree_structure"])
    return np.array(splits), np.array(values)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test_trains_as_over_its_own_sockets(tmp_path):
    ports = free_ports(RANKS)
    over_sockets = f"""
machines = ",".join(f"127.0.0.1:{{port}}" for port in {ports})
booster = train(dict(tree_learner="data", num_machines=size, machines=machines,
                     local_listen_port={ports}[rank], time_out=1))
open(f"{tmp_path}/sockets{{rank}}", "w").write(json.dumps(booster.dump_model()))
"""
    over_ropewalk = f"""
import ropewalk.lightgbm
with join() as comm, ropewalk.lightgbm.use(comm) as network:
    booster = train(network.parameters)
open(f"{tmp_path}/ropewalk{{rank}}", "w").write(json.dumps(booster.dump_model()))
"""
    for script in (over_sockets, over_ropewalk):
        for ended in run(RANKS, script):
            assert ended.status == 0, ended.output
    want_splits, want_values = trees_of(json.loads((tmp_path / "sockets0").read_text()))
    assert len(want_splits) > 12 * 20
    for rank in range(RANKS):
        splits, values = trees_of(json.loads((tmp_path / f"ropewalk{rank}").read_text()))
        np.testing.assert_array_equal(splits, want_splits)
        np.testing.assert_allclose(values, want_values, rtol=1e-9, atol=1e-12)


def test_a_lost_rank_is_an_exception_that_names_it():
    ends = run(RANKS, """
import ropewalk.lightgbm
def maybe_die(environment):
    if rank == 2 and environment.iteration == 3:
        os.kill(os.getpid(), signal.SIGKILL)
comm = join()
try:
    with ropewalk.lightgbm.use(comm) as network:
        train(network.parameters, 100_000, callbacks=[maybe_die])
except lightgbm.basic.LightGBMError as error:
    print("told:", error)
    try:
        comm.barrier()
    except ropewalk.PeerLostError:
        print("and lost")
""")
    for rank, ended in enumerate(ends):
        if rank == 2:
            assert ended.status == -signal.SIGKILL
        else:
            assert "told: " in ended.output and "rank 2" in ended.output and "and lost" in ended.output, ended.output


def test_one_network_a_thread():
    ends = run(2, """
import pytest
import ropewalk.lightgbm
comm = join()
network = ropewalk.lightgbm.use(comm)
with pytest.raises(ropewalk.InvalidArgumentError, match="has a network already"):
    ropewalk.lightgbm.use(comm)
refused = []
def elsewhere():
    try:
        network.close()
    except ropewalk.InvalidArgumentError as error:
        refused.append(str(error))
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
assert "on the thread that trains" in refused[0]
network.close()
network.close()
assert train({}, 2).num_trees() == 2  # alone
with ropewalk.lightgbm.use(comm) as network:
    booster = train(network.parameters, 2)
    comm.close()
    with pytest.raises(lightgbm.basic.LightGBMError, match="it is closed"):
        train(network.parameters, 2)
assert booster.num_trees() == 2
""")
    for ended in ends:
        assert ended.status == 0, ended.output
