#!/usr/bin/env python3
"""Trains the same Llama on the same rows with PyTorch: the peer of //examples/llama:train.

  pytorch_train.py CONFIG.json TEXT BATCH SEQ STEPS single|ddp|fsdp|tp [--ranks N] [--threads N] [--bf16]

--bf16: parameters stay f32; single by autocast, fsdp by its policy. Prints one JSON line: the median tokens/s of the steps after the second, the largest rank's peak memory, the losses.
Needs PyPI's torch and transformers.
"""
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def build(a, config):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**config, attn_implementation="sdpa", use_cache=False)
    return LlamaForCausalLM(config).train()


def parallelize(a, model):
    from torch.distributed.device_mesh import init_device_mesh

    if a.mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (a.ranks,))
    if a.mode == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        options = {}
        if a.bf16:
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, **options)
    if a.mode == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        colwise = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"]
        for layer in model.model.layers:
            plan = {name: ColwiseParallel() for name in colwise}
            plan.update({"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()})
            parallelize_module(layer, mesh, plan)
    return model


def rank_main(rank, a, config, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(a.ranks))
    torch.set_num_threads(a.threads)
    model = build(a, config)
    if a.ranks > 1:
        dist.init_process_group("gloo")
        model = parallelize(a, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    text = open(a.text, "rb").read()
    share = a.ranks if a.mode in ("ddp", "fsdp") and a.ranks > 1 else 1
    rows = a.batch // share
    first = rank * rows if share > 1 else 0
    seconds, losses = [], []
    for step in range(a.steps):
        began = time.perf_counter()
        ids = [[text[((step * a.batch + first + b) * a.seq + t) % len(text)] for t in range(a.seq + 1)] for b in range(rows)]
        ids = torch.tensor(ids)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.bf16 and a.mode == "single"):
            logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        if a.mode != "tp":  # it does not clip DTensors and plain tensors in one call
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        speed = a.batch * a.seq / statistics.median(seconds[2:])
        print(json.dumps({"tokens_per_s": speed, "peak_rss_bytes": rss, "losses": losses}), flush=True)
    if a.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("text")
    p.add_argument("batch", type=int)
    p.add_argument("seq", type=int)
    p.add_argument("steps", type=int)
    p.add_argument("mode", choices=["single", "ddp", "fsdp", "tp"])
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--bf16", action="store_true")
    a = p.parse_args()
    config = json.load(open(a.config))
    if a.ranks == 1:
        rank_main(0, a, config, 0)
        return
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(rank_main, args=(a, config, port), nprocs=a.ranks)


if __name__ == "__main__":
    main()
