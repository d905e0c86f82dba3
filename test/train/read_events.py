"""read_events.py FOLDER METRICS: TensorBoard's reader must find in FOLDER what each line of METRICS has, and no more."""
import json
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator

TAGS = {
    "loss": "train/loss",
    "lr": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "loss_scale": "train/loss_scale",
    "epoch": "train/epoch",
    "eval_loss": "eval/loss",
    "seconds": "speed/step_seconds",
    "tokens_per_s": "speed/tokens_per_s",
    "mfu": "speed/mfu",
    "comm_share": "share/communication",
    "bubble": "share/bubble",
    "tensor_share": "share/tensor",
    "exchange_share": "share/exchange",
    "update_share": "share/update",
    "memory": "memory/peak_bytes",
}


def as_float(value):
    return struct.unpack("f", struct.pack("f", value))[0]


folder, metrics = sys.argv[1:]
reader = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0})
reader.Reload()
found = {tag: {e.step: e.value for e in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}
expected = {}
steps = []
with open(metrics) as lines:
    for line in lines:
        told = json.loads(line)
        steps.append(told["step"])
        for key, tag in TAGS.items():
            if key in told:
                expected.setdefault(tag, {})[told["step"]] = as_float(told[key])
assert steps == list(range(1, len(steps) + 1)), steps
assert set(found) == set(expected), (sorted(found), sorted(expected))
for tag in expected:
    assert found[tag].keys() == expected[tag].keys(), (tag, found[tag].keys(), expected[tag].keys())
    for step, value in expected[tag].items():
        other = found[tag][step]
        # the line is rounded to the digits that are printed
        assert abs(other - value) <= 1e-5 * abs(value), (tag, step, other, value)
print(f"TensorBoard reads {len(expected)} scalars of {len(steps)} steps")
