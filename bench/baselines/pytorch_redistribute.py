#!/usr/bin/env python3
"""Redistributes the tensors of //bench:redistribute_bench with PyTorch's DTensor over Gloo.

  pytorch_redistribute.py RANKS

Prints a line per pair and size: the median time, of the slowest rank. Needs PyPI's torch.
"""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SIZES = [(64, 256), (1024, 1024), (4096, 4096)]
PAIRS = [(Shard(0), Replicate()), (Shard(0), Shard(1)), (Partial(), Replicate()), (Partial(), Shard(0))]


def make(full, mesh, placement):
    if isinstance(placement, Partial):
        return DTensor.from_local(full.clone(), mesh, [placement], run_check=False)
    return distribute_tensor(full, mesh, [placement])


def once(x, mesh, placement):
    """One redistribute until its values are there."""
    local = x.redistribute(mesh, [placement]).to_local()
    if hasattr(local, "wait"):
        local = local.wait()
    return local.view(-1)[0].item()


def run(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    for rows, columns in SIZES:
        full = torch.ones(rows, columns)
        for source, target in PAIRS:
            x = make(full, mesh, source)
            times = []
            for i in range(3 + 15):
                dist.barrier()
                begin = time.perf_counter()
                once(x, mesh, target)
                if i >= 3:
                    times.append(time.perf_counter() - begin)
            slowest = torch.tensor([statistics.median(times)])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if rank == 0:
                print(f"{source} -> {target}, {full.numel() * 4} bytes, {ranks} ranks: "
                      f"{slowest.item() * 1e6:.0f} us", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(run, args=(world, os.path.join(directory, "store")), nprocs=world)
