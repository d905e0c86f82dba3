#!/usr/bin/env python3
"""Whole training steps of GPT-2 in PyTorch, to compare build/test/gpu/step_bench with.

    torch_step.py [LAYERS WIDTH HEADS BATCH SEQ STEPS]

bf16 autocast over f32 weights, torch.compile, flash attention, fused AdamW, clipping; random tokens.
Prints the median step and tokens a second.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 50304  # 50257, padded as everybody does


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def main():
    layers, width, heads, batch, seq, steps = [12, 768, 12, 64, 1024, 10]
    if len(sys.argv) > 1:
        layers, width, heads, batch, seq, steps = (int(x) for x in sys.argv[1:7])
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(layers, width, heads, seq).cuda()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    compiled = torch.compile(model)
    tokens = torch.randint(0, 50257, (batch, seq + 1), device="cuda")
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(5):
        loss = step()
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    times.sort()
    median = times[len(times) // 2]
    print(
        f"torch {torch.__version__}, {layers} x {width}, B {batch}, T {seq}: {median * 1e3:.2f} ms a step "
        f"({times[0] * 1e3:.2f} to {times[-1] * 1e3:.2f}), {batch * seq / median / 1e3:.1f} thousand tokens/s; "
        f"loss {loss.item():.4f}"
    )


if __name__ == "__main__":
    main()
