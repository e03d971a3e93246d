#!/usr/bin/env python3
"""The collectives of PyTorch's process group over Gloo, f32, between processes of this machine: the peer of `dtensor comm-bench`.

  pytorch_comm.py RANKS BYTES,...

"bytes" are those of the larger buffer. Prints the medians of rank 0 as one line of JSON. Needs PyPI's torch.
"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def calls(rank, ranks, count):
    """Name and call; what does not divide stays."""
    x, y = torch.ones(count), torch.zeros(count)
    each = count // ranks
    parts_in, parts_out = x[: each * ranks], y[: each * ranks]
    mine_in, mine_out = x[:each], y[:each]
    pieces_in, pieces_out = list(parts_in.chunk(ranks)), list(parts_out.chunk(ranks))

    def exchange():
        legs = [dist.P2POp(dist.isend, x, (rank + 1) % ranks), dist.P2POp(dist.irecv, y, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(legs):
            work.wait()

    yield "all_reduce", lambda: dist.all_reduce(y)
    yield "broadcast", lambda: dist.broadcast(y, 0)
    yield "reduce", lambda: dist.reduce(y, 0)
    yield "exchange", exchange
    if each == 0:
        return
    yield "all_gather", lambda: dist.all_gather_into_tensor(parts_out, mine_in)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(mine_out, parts_in)
    yield "all_to_all", lambda: dist.all_to_all_single(parts_out, parts_in)
    yield "gather", lambda: dist.gather(mine_in, pieces_out if rank == 0 else None, 0)
    yield "scatter", lambda: dist.scatter(mine_out, pieces_in if rank == 0 else None, 0)


def median_us(call, size):
    times = 7 if size > 16 << 20 else 51 if size > 1 << 18 else 501
    taken = []
    for i in range(times + 3):
        begin = time.perf_counter()
        call()
        if i >= 3:
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e6


def run(rank, ranks, store, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    rows = [{"op": "barrier", "bytes": 0, "median_us": median_us(dist.barrier, 0)}]
    for size in sizes:
        for op, call in calls(rank, ranks, max(1, size // 4)):
            try:
                rows.append({"op": op, "bytes": size, "median_us": median_us(call, size)})
            except RuntimeError as e:  # this version's Gloo has it not
                if rank == 0:
                    print(f"{op}: {e}", file=sys.stderr)
    dist.barrier()
    if rank == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(run, args=(world, os.path.join(directory, "store"), [int(n) for n in sys.argv[2].split(",")]), nprocs=world)
