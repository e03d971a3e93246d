"""PyTorch's distributed checkpoint on two ranks: save, load, S(0)->S(1) load, small tensors. Prints one JSON object.

  python pytorch_dcp.py DIRECTORY      the tensors are those of bench/checkpoint_bench.cc
"""
import json
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

REPEATS = 3


def run(rank, ranks, directory, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    times = {}

    def measure(name, f, before=lambda: None):
        seconds = []
        for _ in range(REPEATS):
            dist.barrier()
            if rank == 0:
                before()
                os.sync()
            dist.barrier()
            start = time.perf_counter()
            f()
            dist.barrier()
            seconds.append(time.perf_counter() - start)
        times[name] = statistics.median(seconds)

    def synced(path):
        """What dcp.save leaves out: the files are on the disk."""
        for name in os.listdir(path):
            if name.startswith(f"__{rank}_") or (rank == 0 and name == ".metadata"):
                fd = os.open(os.path.join(path, name), os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)

    def save(tensors, path):
        dcp.save(tensors, checkpoint_id=path)
        synced(path)

    large = f"{directory}/large"
    small = f"{directory}/small"
    state = {f"layer{i}.w{j}": distribute_tensor(torch.full((1024, 1000 + j), 1.0 + j), mesh, [Shard(0)])
             for i in range(24) for j in range(6)}
    measure("save", lambda: save(state, large), lambda: shutil.rmtree(large, ignore_errors=True))
    measure("save_without_fsync", lambda: dcp.save(state, checkpoint_id=large),
            lambda: shutil.rmtree(large, ignore_errors=True))
    for name, placement in (("load", Shard(0)), ("reshard", Shard(1))):
        new = {k: distribute_tensor(torch.zeros(v.shape), mesh, [placement]) for k, v in state.items()}
        measure(name, lambda new=new: dcp.load(new, checkpoint_id=large))
        if new["layer0.w5"].to_local()[0, 7] != 6:
            raise SystemExit("loaded wrongly")
    tensors = {f"t{i}": distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)]) for i in range(5000)}
    measure("small_save", lambda: save(tensors, small), lambda: shutil.rmtree(small, ignore_errors=True))
    measure("small_load", lambda: dcp.load(tensors, checkpoint_id=small))
    if rank == 0:
        print(json.dumps(times), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    mp.spawn(run, args=(2, sys.argv[1], os.path.join(sys.argv[1], "store")), nprocs=2)
