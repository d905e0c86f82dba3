#!/usr/bin/env python3
"""Write test/train/fixtures/package.safetensors and a sharded set beside it with the `safetensors` package.
Element i of each tensor is (37 i mod 101 - 50) / 8, which every type holds exactly. Needs: pip install safetensors numpy ml_dtypes."""
import json
import os

import ml_dtypes
import numpy
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__)) + "/fixtures/"


def tensor(dtype, *shape):
    values = ((37 * numpy.arange(int(numpy.prod(shape)))) % 101 - 50) / 8
    values = values * 8 if dtype is numpy.int64 else values > 0 if dtype is bool else values
    return values.reshape(shape).astype(dtype)


def write(name, tensors, metadata=None):
    save_file(tensors, HERE + name, metadata)


write("package.safetensors", {
    "wte.weight": tensor(numpy.float32, 7, 5), "h.0.ln.weight": tensor(ml_dtypes.bfloat16, 11), "h.0.mask": tensor(bool, 3, 1),
    "half": tensor(numpy.float16, 2, 3, 4), "double": tensor(numpy.float64, 6), "scalar": tensor(numpy.float32), "none": tensor(numpy.float32, 0, 4),
    "ids": tensor(numpy.int64, 9), "odd \u00e9\"\\ name": tensor(ml_dtypes.bfloat16, 3)}, {"format": "pt", "by": "the package"})
write("sharded-1-of-2.safetensors", {"a": tensor(numpy.float32, 4), "b": tensor(numpy.float16, 5)}, {"format": "pt"})
write("sharded-2-of-2.safetensors", {"c": tensor(numpy.float32, 2, 2)}, {"format": "pt"})
with open(HERE + "sharded.index.json", "w") as index:
    json.dump({"metadata": {"total_size": 42}, "weight_map": {
        "a": "sharded-1-of-2.safetensors", "b": "sharded-1-of-2.safetensors", "c": "sharded-2-of-2.safetensors"}}, index)
