#!/usr/bin/env python3
"""The ops of //bench:dispatch_bench with PyTorch's DTensor, over Gloo on two ranks.

  pytorch_dispatch.py [--json FILE]

Prints for each the median of nine in microseconds: of the op, and what it is over the same op on plain tensors. Needs
PyPI's torch.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def median_us(f, calls):
    for _ in range(calls // 10):
        f()
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(times)


def backward(x, y):
    x.grad = None
    (x * y).sum().backward()


def measure(mesh):
    whole = [torch.randn(8, 8) for _ in range(3)]
    x, y = (distribute_tensor(t, mesh, [Shard(0)]) for t in whole[:2])
    w = distribute_tensor(whole[2], mesh, [Replicate()])
    px, py, pw = (t.to_local() for t in (x, y, w))
    ops = {
        "add": (lambda a: a + y, lambda a: a + py),
        "mm": (lambda a: a @ w, lambda a: a @ pw),
        "relu": (torch.relu, torch.relu),
        "view": (lambda a: a.view(8, 2, 4), lambda a: a.view(-1, 2, 4)),
    }
    rows = []
    for name, (op, plain) in ops.items():
        for mode in ("cached", "recorded"):
            wants = mode == "recorded"
            a, b = x.detach().requires_grad_(wants), px.detach().requires_grad_(wants)
            with torch.set_grad_enabled(wants):
                us, plain_us = median_us(lambda: op(a), 2000), median_us(lambda: plain(b), 2000)
            rows.append({"name": f"dispatch/{name}/{mode}", "us": us, "over_us": us - plain_us})
    a, b = x.detach().requires_grad_(), px.detach().requires_grad_()
    us, plain_us = median_us(lambda: backward(a, y), 500), median_us(lambda: backward(b, py), 500)
    rows.append({"name": "dispatch/backward", "us": us, "over_us": us - plain_us})
    return rows


def run(rank, store, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rows = measure(init_device_mesh("cpu", (2,), mesh_dim_names=("d",)))
    if rank == 0:
        for row in rows:
            print(f"{row['name']:<28} {row['us']:8.2f} us, {row['over_us']:8.2f} over the plain op", flush=True)
        if out:
            with open(out, "w") as f:
                json.dump(rows, f, indent=1)
    dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json")
    a = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(f"{folder}/store", a.json), nprocs=2)


if __name__ == "__main__":
    main()
