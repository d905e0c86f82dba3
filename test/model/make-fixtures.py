#!/usr/bin/python3
"""Make test/model/fixtures/*.bin: what PyTorch computes for small GPT-2 and LLaMA models.

    test/model/make-fixtures.py            (Debian's python3-torch; PyTorch 1.13 made those here)
    test/model/make-fixtures.py --check    compare the modules below with transformers' instead

Plain modules with Hugging Face's names, in float64, so that the reference has no rounding of its own:
what differs is ours. Weights are stored as float32 and so are the same on both sides.

A file is a sequence of tensors: name length, name, type ('f' float32, 'i' int32), dimensions, sizes
(all int32, little endian), elements. They are
    config          the fields of weft_model_config_t, as in CONFIG below, and batch, seq
    tokens          steps x batch x (seq + 1): inputs, and targets one further
    weight.NAME     at the start
    logits, loss    of the first batch, with the weights at the start
    grad.NAME       of that loss (mean over tokens)
    losses, norms   of STEPS steps of AdamW with clipping: loss and gradient norm before each step
    final.NAME      weights after them
"""
import math
import struct
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 20
OPTIMIZER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-5)  # keys' biases have no gradient but rounding, which a small eps would blow up
DECAY = 0.1
CLIP = 0.5

CONFIG = ["llama", "layers", "width", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context", "tied"]
CASES = {
    "gpt2": dict(llama=0, layers=2, width=12, heads=3, kv_heads=3, head_dim=4, ffn=48, vocab=37, context=16,
                 tied=1, batch=3, seq=11),
    "gpt2-long": dict(llama=0, layers=1, width=10, heads=2, kv_heads=2, head_dim=5, ffn=23, vocab=29,
                      context=72, tied=0, batch=1, seq=70),
    "llama-gqa": dict(llama=1, layers=2, width=16, heads=4, kv_heads=2, head_dim=4, ffn=21, vocab=33,
                      context=16, tied=0, batch=2, seq=13),
    "llama-wide": dict(llama=1, layers=1, width=14, heads=2, kv_heads=1, head_dim=6, ffn=19, vocab=31,
                       context=80, tied=1, batch=1, seq=67),
}
THETA, EPS = 10000.0, 1e-5


class Conv1D(nn.Module):  # GPT-2's linear layer: the weight is in x out
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class RMSNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


def attend(q, k, v):  # batch x heads x time x dim
    t = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


def rotate(x):  # pairs are i and i + dim / 2
    t, d = x.shape[-2:]
    angle = torch.arange(t)[:, None] * THETA ** (-torch.arange(0, d, 2).to(x) / d)[None, :]
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    half = torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1)
    return x * cos + half * sin


def heads(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n = c["heads"]
        self.ln_1 = nn.LayerNorm(c["width"], eps=EPS)
        self.attn = nn.Module()
        self.attn.c_attn = Conv1D(c["width"], 3 * c["width"])
        self.attn.c_proj = Conv1D(c["width"], c["width"])
        self.ln_2 = nn.LayerNorm(c["width"], eps=EPS)
        self.mlp = nn.Module()
        self.mlp.c_fc = Conv1D(c["width"], c["ffn"])
        self.mlp.c_proj = Conv1D(c["ffn"], c["width"])

    def forward(self, x):
        q, k, v = (heads(y, self.n) for y in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.attn.c_proj(attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.transformer = t = nn.Module()
        t.wte = nn.Embedding(c["vocab"], c["width"])
        t.wpe = nn.Embedding(c["context"], c["width"])
        t.h = nn.ModuleList(GPT2Block(c) for _ in range(c["layers"]))
        t.ln_f = nn.LayerNorm(c["width"], eps=EPS)
        self.lm_head = nn.Linear(c["width"], c["vocab"], bias=False)
        if c["tied"]:
            self.lm_head.weight = t.wte.weight

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.kv = c["heads"], c["kv_heads"]
        wide, narrow = self.n * c["head_dim"], self.kv * c["head_dim"]
        self.input_layernorm = RMSNorm(c["width"])
        self.self_attn = nn.Module()
        self.self_attn.q_proj = nn.Linear(c["width"], wide, bias=False)
        self.self_attn.k_proj = nn.Linear(c["width"], narrow, bias=False)
        self.self_attn.v_proj = nn.Linear(c["width"], narrow, bias=False)
        self.self_attn.o_proj = nn.Linear(wide, c["width"], bias=False)
        self.post_attention_layernorm = RMSNorm(c["width"])
        self.mlp = nn.Module()
        self.mlp.gate_proj = nn.Linear(c["width"], c["ffn"], bias=False)
        self.mlp.up_proj = nn.Linear(c["width"], c["ffn"], bias=False)
        self.mlp.down_proj = nn.Linear(c["ffn"], c["width"], bias=False)

    def forward(self, x):
        h, a = self.input_layernorm(x), self.self_attn
        q, k = rotate(heads(a.q_proj(h), self.n)), rotate(heads(a.k_proj(h), self.kv))
        v = heads(a.v_proj(h), self.kv)
        k, v = (y.repeat_interleave(self.n // self.kv, 1) for y in (k, v))
        x = x + a.o_proj(attend(q, k, v).transpose(1, 2).flatten(2))
        h, m = self.post_attention_layernorm(x), self.mlp
        return x + m.down_proj(F.silu(m.gate_proj(h)) * m.up_proj(h))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = m = nn.Module()
        m.embed_tokens = nn.Embedding(c["vocab"], c["width"])
        m.layers = nn.ModuleList(LlamaBlock(c) for _ in range(c["layers"]))
        m.norm = RMSNorm(c["width"])
        self.lm_head = nn.Linear(c["width"], c["vocab"], bias=False)
        if c["tied"]:
            self.lm_head.weight = m.embed_tokens.weight

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x)
        return self.lm_head(self.model.norm(x))


def make(c, seed):
    """A module with random weights that are exact in float32."""
    torch.manual_seed(seed)
    model = (Llama if c["llama"] else GPT2)(c).double()
    for name, p in model.named_parameters():
        norm = p.dim() == 1 and name.endswith("weight")
        p.data = (torch.randn(p.shape) * 0.2 + (1.0 if norm else 0.0)).float().double()
    return model


def loss_of(model, batch):
    logits = model(batch[:, :-1])
    return logits, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def write(out, name, tensor):
    tensor = torch.as_tensor(tensor)
    whole = not tensor.is_floating_point()
    data = tensor.detach().to(torch.int32 if whole else torch.float32).contiguous().numpy()
    out.write(struct.pack("<i", len(name)) + name.encode() + (b"i" if whole else b"f"))
    out.write(struct.pack(f"<{data.ndim + 1}i", data.ndim, *data.shape))
    out.write(data.tobytes())


def train(out, model, tokens):
    """STEPS of AdamW: one group with decay (matrices), one without (vectors)."""
    groups = [dict(params=[p for p in model.parameters() if p.dim() == 2], weight_decay=DECAY),
              dict(params=[p for p in model.parameters() if p.dim() != 2], weight_decay=0.0)]
    adamw = torch.optim.AdamW(groups, **OPTIMIZER)
    losses, norms = [], []
    for batch in tokens:
        adamw.zero_grad()
        loss = loss_of(model, batch)[1]
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(float(loss))
        adamw.step()
    write(out, "losses", torch.tensor(losses))
    write(out, "norms", torch.tensor(norms))


def fixture(path, c, seed):
    model = make(c, seed)
    tokens = torch.randint(0, c["vocab"], (STEPS, c["batch"], c["seq"] + 1))
    with open(path, "wb") as out:
        write(out, "config", torch.tensor([c[k] for k in CONFIG + ["batch", "seq"]]))
        write(out, "tokens", tokens)
        for name, p in model.named_parameters():
            write(out, "weight." + name, p)
        logits, loss = loss_of(model, tokens[0])
        loss.backward()
        write(out, "logits", logits)
        write(out, "loss", loss.reshape(1))
        for name, p in model.named_parameters():
            write(out, "grad." + name, p.grad)
        train(out, model, tokens)
        for name, p in model.named_parameters():
            write(out, "final." + name, p)
    print(f"{path}: {path.stat().st_size} bytes, loss {float(loss):.4f}")


def check(name, c, seed):
    """The same weights in transformers' own model must give the same logits."""
    import transformers as hf
    if c["llama"]:
        if c["head_dim"] * c["heads"] != c["width"]:
            return print(f"{name}: skipped, old versions of transformers have no head_dim")
        theirs = hf.LlamaForCausalLM(hf.LlamaConfig(
            vocab_size=c["vocab"], hidden_size=c["width"], intermediate_size=c["ffn"],
            num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
            max_position_embeddings=c["context"], rms_norm_eps=EPS, rope_theta=THETA,
            tie_word_embeddings=bool(c["tied"])))
    else:
        theirs = hf.GPT2LMHeadModel(hf.GPT2Config(
            vocab_size=c["vocab"], n_embd=c["width"], n_inner=c["ffn"], n_layer=c["layers"],
            n_head=c["heads"], n_positions=c["context"], layer_norm_epsilon=EPS, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=bool(c["tied"])))
    ours = make(c, seed).float()  # some versions of theirs cannot do more
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected and all("rotary" in m or ".attn.bias" in m or "masked" in m for m in missing), missing
    tokens = torch.randint(0, c["vocab"], (c["batch"], c["seq"]))
    apart = float((ours(tokens) - theirs.eval()(tokens).logits).abs().max())
    print(f"{name}: largest difference to transformers {hf.__version__}: {apart:.2e}")
    assert apart < 1e-5


if __name__ == "__main__":
    folder = Path(__file__).parent / "fixtures"
    folder.mkdir(exist_ok=True)
    for number, (case, config) in enumerate(CASES.items()):
        if "--check" in sys.argv:
            check(case, config, 100 + number)
        else:
            fixture(folder / f"{case}.bin", config, 100 + number)
