#!/usr/bin/env python3
"""Redistributes the tensors of //bench:redistribute_bench with PyTorch's DTensor over Gloo.

  pytorch_redistribute.py RANKS [--json FILE]

Prints a line per pair and size: the median time, of the slowest rank. Needs PyPI's torch.
"""
import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SIZES = {"64k": (64, 256), "4m": (1024, 1024), "64m": (4096, 4096)}
PAIRS = {"shard_to_replicate": (Shard(0), Replicate()), "shard_to_shard": (Shard(0), Shard(1)),
         "partial_to_replicate": (Partial(), Replicate()), "partial_to_shard": (Partial(), Shard(0))}


def make(full, mesh, placement):
    if isinstance(placement, Partial):
        return DTensor.from_local(full.clone(), mesh, [placement], run_check=False)
    return distribute_tensor(full, mesh, [placement])


def once(x, mesh, placement):
    """One redistribute until its values are there."""
    local = x.redistribute(mesh, [placement]).to_local()
    if hasattr(local, "wait"):
        local = local.wait()
    return local.reshape(-1)[0].item() if local.is_contiguous() else local[0, 0].item()


def run(rank, ranks, store, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    rows = []
    for size, shape in SIZES.items():
        full = torch.ones(*shape)
        for pair, (source, target) in PAIRS.items():
            x = make(full, mesh, source)
            times = []
            for i in range(3 + (15 if size == "64m" else 51)):
                dist.barrier()
                begin = time.perf_counter()
                once(x, mesh, target)
                if i >= 3:
                    times.append(time.perf_counter() - begin)
            slowest = torch.tensor([statistics.median(times)])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            rows.append({"name": f"{pair}/{size}", "us": slowest.item() * 1e6})
            if rank == 0:
                print(f"{source} -> {target}, {full.numel() * 4} bytes, {ranks} ranks: {rows[-1]['us']:.0f} us", flush=True)
    if rank == 0 and out:
        pathlib.Path(out).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ranks", type=int)
    p.add_argument("--json")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(run, args=(a.ranks, os.path.join(directory, "store"), a.json), nprocs=a.ranks)
