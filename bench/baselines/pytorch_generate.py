"""Greedy generation by transformers on two threads. Prints one JSON object: tokens_per_s, the median of three.

  python pytorch_generate.py MODEL f32|bf16 NEW_TOKENS      MODEL in Hugging Face form
"""
import json
import statistics
import sys
import time

import torch
from transformers import LlamaForCausalLM

PROMPT = [504, 3575, 282, 4649, 314]


def main():
    directory, dtype, new = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(2)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    model = LlamaForCausalLM.from_pretrained(directory, dtype=kind).eval()
    ids = torch.tensor([[i % model.config.vocab_size for i in PROMPT]])

    def run(count):
        begin = time.perf_counter()
        model.generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        return time.perf_counter() - begin

    with torch.no_grad():
        run(8)
        # As ours: the first token, which the prompt gives, is not in the time.
        rates = [(new - 1) / (run(new) - run(1)) for _ in range(3)]
    print(json.dumps({"tokens_per_s": statistics.median(rates)}))


if __name__ == "__main__":
    main()
