#!/usr/bin/env python3
"""PyTorch as the peer of `weft train`: the same GPT-2, data parallel with DDP over Gloo.

    torch_ddp.py --ranks 4 --layers 6 --width 384 --heads 6 --vocab 257 --length 256 --batch 64 --steps 6

Starts its own ranks, each bound to its share of the cores with as many threads, as weft does.
Prints one JSON object: seconds of every step (the slowest rank's), and the losses. Whole steps
are timed: forward, backward with the exchange of gradients, clipping, AdamW. The tokens are
random; PyTorch's fastest forms are used: scaled_dot_product_attention where it is there, foreach
AdamW, gradients as views into DDP's buckets.
"""
import argparse
import contextlib
import json
import os
import sys
import time


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("ranks", 1), ("layers", 6), ("width", 384), ("heads", 6), ("vocab", 257),
                        ("length", 256), ("batch", 64), ("steps", 6), ("port", 29511),
                        ("micro", 0)):
        parser.add_argument("--" + name, type=int, default=value,
                            help="sequences a rank computes at once; 0: all of its part"
                            if name == "micro" else None)
    parser.add_argument("--no-overlap", action="store_true",
                        help="sum gradients after backward, tensor by tensor, without DDP")
    return parser.parse_args()


def cores_of(rank, ranks):
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // ranks
    return cores[rank * share:(rank + 1) * share] if share else [cores[rank % len(cores)]]


def make_model(o, torch):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
            self.qkv = nn.Linear(o.width, 3 * o.width)
            self.proj = nn.Linear(o.width, o.width)
            self.up, self.down = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)

        def attend(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, o.heads, c // o.heads).transpose(1, 2)
                       for y in self.qkv(x).split(c, dim=2))
            if hasattr(F, "scaled_dot_product_attention"):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(-2, -1) * (c // o.heads) ** -0.5
                mask = torch.ones(t, t, dtype=torch.bool).tril()
                y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
            return self.proj(y.transpose(1, 2).reshape(b, t, c))

        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(o.vocab, o.width)
            self.positions = nn.Embedding(o.length, o.width)
            self.blocks = nn.ModuleList(Block() for _ in range(o.layers))
            self.norm = nn.LayerNorm(o.width)
            nn.init.normal_(self.tokens.weight, std=0.02)
            nn.init.normal_(self.positions.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.view(-1, o.vocab), targets.view(-1))

    return Model()


def train(rank, o):
    cores = cores_of(rank, o.ranks)
    os.sched_setaffinity(0, cores)
    os.environ.update(OMP_NUM_THREADS=str(len(cores)), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(o.port))
    import torch
    import torch.distributed as dist
    torch.set_num_threads(len(cores))
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=o.ranks)
    model = make_model(o, torch)
    step_model = model
    if not o.no_overlap and o.ranks > 1:
        step_model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, foreach=True)
    tokens = torch.randint(o.vocab, (o.batch // o.ranks, o.length + 1),
                           generator=torch.Generator().manual_seed(rank))
    seconds, losses = [], []
    parts = tokens.split(o.micro or len(tokens))
    for _ in range(o.steps):
        dist.barrier()
        start = time.perf_counter()
        for i, part in enumerate(parts):  # gradients are exchanged with the last part
            alone = step_model is not model and i + 1 < len(parts)
            with step_model.no_sync() if alone else contextlib.nullcontext():
                loss = step_model(part[:, :-1].contiguous(), part[:, 1:].contiguous())
                (loss * (len(part) / len(tokens))).backward()
        if o.no_overlap and o.ranks > 1:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= o.ranks
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "threads": len(cores), "seconds": seconds,
                          "losses": losses}), flush=True)
    dist.destroy_process_group()


def main():
    o = options()
    if o.batch % o.ranks != 0:
        sys.exit("torch_ddp.py: --batch must be a multiple of --ranks")
    # Processes of our own instead of torch.multiprocessing: torch is imported after binding, so
    # that its thread pools have the size of the share.
    children = []
    for rank in range(1, o.ranks):
        child = os.fork()
        if child == 0:
            train(rank, o)
            os._exit(0)
        children.append(child)
    train(0, o)
    if any(os.waitpid(child, 0)[1] != 0 for child in children):
        sys.exit("torch_ddp.py: a rank failed")


if __name__ == "__main__":
    main()
