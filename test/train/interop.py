"""Compare Weft's checkpoints with Hugging Face's packages, in both directions: interop.py PROGRAM WEFT FOLDER."""
import subprocess
import sys

import safetensors.torch
import torch
import transformers

program, weft, folder = sys.argv[1:4]


def run(*words):
    return subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def wanted(t, shape):
    count = torch.Size(shape).numel()
    return (((37 * torch.arange(count) + t) % 101 - 50) / 256).reshape(shape)


def theirs_from_ours():
    run("write", folder + "/run")
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder + "/run/latest", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    state = model.state_dict()
    names = [line.split()[0] for line in open(__file__.replace("interop.py", "interop.c")) if line.startswith('    {"')]
    names = ["transformer." + name.strip('{",') for name in names]
    assert len(names) == 16
    for t, name in enumerate(names):
        assert torch.equal(state[name], wanted(t, state[name].shape)), name
    assert torch.isfinite(model(torch.tensor([[1, 2, 256]])).logits).all()
    moments = safetensors.torch.load_file(folder + "/run/latest/optimizer.safetensors")
    for t, name in enumerate(names):
        assert torch.equal(moments["exp_avg." + name], wanted(t, state[name].shape)), name
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/run/latest/tokenizer.json")
    text = "a \u00e9\n<|endoftext|>\x00"
    assert tokenizer(text)["input_ids"] == list("a \u00e9\n".encode()) + [256, 0]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def ours_from_theirs(name, model, **options):
    model.save_pretrained(f"{folder}/{name}", safe_serialization=True, **options)
    state = model.state_dict()
    lines = run("read", f"{folder}/{name}").splitlines()
    assert lines
    for line in lines:
        key, dtype, rest = line.split(" ", 2)
        shape, total = rest.rsplit(" ", 1)
        tensor = state[key]
        assert shape == str(list(tensor.shape)), line
        assert dtype == {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[tensor.dtype], line
        values = tensor.double().flatten()
        weights = torch.arange(values.numel()) % 7 + 1
        assert abs(float((values * weights).sum()) - float(total)) <= 1e-6 * float((values.abs() * weights).sum()), line
    return len(lines)


def same_text(path, *options):
    """What the model of a folder writes when it always takes the likeliest byte, by both."""
    prompt, count = b"int main(", 20
    model = transformers.AutoModelForCausalLM.from_pretrained(path).float().eval()
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    written = subprocess.run([weft, "generate", "--device", "cpu", "--from", path, "--prompt", prompt.decode(), "--tokens", str(count),
                              "--temperature", "0", *options], check=True, stdout=subprocess.PIPE).stdout
    assert 256 not in tokens, tokens
    assert written.rstrip(b"\n") == bytes(tokens).rstrip(b"\n"), (path, written, bytes(tokens))


def trained(model, precision):
    """A run of weft train that transformers goes on from."""
    run_folder = f"{folder}/{model}-{precision}"
    subprocess.run([weft, "train", "--device", "cpu", "-n", "2", "--model", model, "--data", __file__, "--length", "64", "--batch", "8",
                    "--steps", "30", "--lr", "3e-3", "--precision", precision, "--out", run_folder], check=True, stdout=subprocess.DEVNULL)
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(run_folder + "/latest", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    if precision == "fp32":  # nearly equal logits of rounded weights may change places
        same_text(run_folder + "/latest")
    text = open(__file__, "rb").read()[:64]
    loss = float(loaded.float()(torch.tensor([list(text)]), labels=torch.tensor([list(text)])).loss)
    assert 1 < loss < 4, (model, precision, loss)  # 5.5 before training
    return round(loss, 2)


theirs_from_ours()
print("trained by weft, loss by transformers:", {(m, p): trained(m, p) for m in ("tiny", "llama-tiny") for p in ("fp32", "bf16", "fp16")})
torch.manual_seed(1)
gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_head=2, n_layer=2, vocab_size=300, n_positions=32))
llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=101))
print("gpt2", ours_from_theirs("gpt2", gpt2), "llama", ours_from_theirs("llama", llama),
      "sharded", ours_from_theirs("sharded", llama, max_shard_size="20KB"),
      "bf16", ours_from_theirs("bf16", llama.bfloat16()), "fp16", ours_from_theirs("fp16", gpt2.half()))
small = {"gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(
             n_embd=32, n_head=2, n_layer=2, vocab_size=256, n_positions=64, bos_token_id=0, eos_token_id=0)),
         "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(
             hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256))}
for name, model in small.items():
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)  # far from equal logits, and from 0
    model.save_pretrained(f"{folder}/{name}-small", safe_serialization=True)
    same_text(f"{folder}/{name}-small", "--tokenizer", "bytes")
