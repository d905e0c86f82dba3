#!/usr/bin/env python3
"""Write test/text/fixtures/tokenizer-*.json: small tokenizers of each kind that Weft reads, trained on Weft's own
sources, with texts and the tokens that the `tokenizers` package gives them. Needs: pip install tokenizers."""
import glob
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert), byte_level])


KINDS = {  # name: pre-tokenizer, ignore_merges
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), False),
    "llama3": (split(LLAMA3), True),
    "cl100k": (split(CL100K, "removed", True), False),
    "qwen2": (split(QWEN2), False),
}

SAMPLES = [
    "", " ", "  ", "\n", "a", "Hello, world!", "  two  spaces ", "it's I'LL we'Ve they'd can't 'S '\u017f 'tis", "x\n\n\ny \n z\r\n\r\n",
    "1 12 123 1234 12345.678", "\u0663\u0664\u0665\u0666 \u216b \u00bd", "na\u00efve \u00c5ngstr\u00f6m \u4f60\u597d\u4e16\u754c \u043f\u0440\u0438\u0432\u0435\u0442",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600\U0001f600", "a\u00a0b\u2003c\u3000d\u0085e", "<|endoftext|>", "one<|endoftext|>two <|pad|><|pad|>x",
    "<|endof<|endoftext|>", "<tool> <tool_call> <tool", "!!!\n\n...\n", "\t\tint main(void)\n\t{\n", "    return 0;\n}\n", "a" * 200, "ab" * 90 + " " * 70 + "z",
    "'re're 're", "\u0301\u0301a\u0301 b\u0301", "e\u0301'll", "\x00\x01\x7f", "=====" * 30, "\u2028\u2029 \u2028x", " 's", " \n 's",
]


def random_texts(count):
    rng = random.Random(5)
    pools = [lambda: rng.randrange(32, 127), lambda: rng.choice(b"  \n\r\t'.,"), lambda: rng.choice(b"strevmldSTREVMLD'"),
             lambda: rng.choice(b"0123456789"), lambda: rng.randrange(0x80, 0x800), lambda: rng.randrange(0x800, 0xD800),
             lambda: rng.randrange(0xE000, 0x10000), lambda: rng.randrange(0x10000, 0x32000),
             lambda: rng.choice([0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000, 0x17F, 0x212A])]
    for _ in range(count):
        weights = [rng.random() ** 3 for _ in pools]
        yield "".join(chr(rng.choices(pools, weights)[0]()) for _ in range(rng.randrange(1, 40)))


def train(name, pre, ignore_merges, texts):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"] if name == "gpt2" else []))
    if name != "gpt2":
        tokenizer.add_special_tokens(["<|endoftext|>", "<|pad|>"])
    tokenizer.add_tokens(["<tool>", "<tool_call>", AddedToken("fixed", normalized=False), "ab" * 40])
    return tokenizer


def main():
    root = os.path.join(HERE, "../..")
    texts = [open(f).read() for f in sorted(glob.glob(root + "/src/base/*.c") + glob.glob(root + "/docs/*.md"))]
    samples = SAMPLES + [t[:600] for t in texts[:6]] + list(random_texts(150))
    for name, (pre, ignore_merges) in KINDS.items():
        tokenizer = train(name, pre, ignore_merges, texts)
        document = json.loads(tokenizer.to_str())
        if name == "cl100k":  # the older way to write merges
            document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
        path = f"{HERE}/fixtures/tokenizer-{name}.json"
        with open(path, "w") as out:
            json.dump(document, out, ensure_ascii=name == "qwen2", separators=(",", ":"))
        tokenizer = Tokenizer.from_file(path)
        cases = []
        for text in samples:
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids} | ({"plain": plain} if plain != ids else {}))
        with open(f"{HERE}/fixtures/tokens-{name}.json", "w") as out:
            out.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]\n")


main()
