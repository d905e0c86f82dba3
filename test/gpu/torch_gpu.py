"""One rank of test_torch.sh: PyTorch's own nccl backend, which is Weft's library here, with all ranks on one GPU.

    torch_gpu.py [PYTHON]   # PYTHON: the folder of weft_torch.py, to try this file on CPU tensors where there is no GPU

Results are compared with sums of its own, and losses with those of one process that has all the data. A wrong result
is reported and the rank goes on, so that no other rank waits for it; an exception ends the job.
"""
import datetime
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

gpu = len(sys.argv) == 1
device = torch.device("cuda", 0) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
else:
    sys.path.insert(0, sys.argv[1])
    import weft_torch  # noqa: F401 # registers the backend
dist.init_process_group("nccl" if gpu else "weft", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_float32_matmul_precision("highest")
wrong = []


def check(good, what):
    if not good:
        wrong.append(what)
        print(f"WRONG: rank {rank}: {what}", flush=True)


def same(got, expected, what):
    got, expected = got.detach().double().cpu(), torch.as_tensor(expected).double().cpu()
    check(torch.equal(got, expected), f"{what}: {got.flatten()[:4].tolist()} is not {expected.flatten()[:4].tolist()}")


def close(got, expected, what, bound=1e-4):
    got, expected = float(got), float(expected)
    check(abs(got - expected) <= bound * max(1, abs(expected)), f"{what}: {got} is not {expected}")


# ---- collectives ----------------------------------------------------------------------------------------


def inputs(count, dtype, seed):
    """What every rank has, as all of them can compute: small whole numbers, so that sums are exact."""
    return [
        torch.randint(0, 5, (count,), generator=torch.Generator().manual_seed(seed * 100 + k)).to(dtype)
        for k in range(size)
    ]


def collectives():
    types = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8]
    for dtype in types:
        for count in (1, 7, 30001, 1 << 20):
            what = f"{dtype} {count}"
            every = inputs(count, dtype, count)
            mine, wide = every[rank].to(device), torch.stack(every).double()
            ops = [(dist.ReduceOp.SUM, wide.sum(0)), (dist.ReduceOp.MAX, wide.amax(0)), (dist.ReduceOp.MIN, wide.amin(0))]
            if dtype.is_floating_point and gpu and size in (1, 2, 4, 8):
                ops.append((dist.ReduceOp.AVG, wide.mean(0).to(dtype)))
            for op, expected in ops:
                x = mine.clone()
                dist.all_reduce(x, op=op)
                same(x, expected, f"all_reduce {op} {what}")
            out = torch.empty(size * count, dtype=dtype, device=device)
            dist.all_gather_into_tensor(out, mine)
            same(out, torch.cat(every), f"all_gather_into_tensor {what}")
            parts = [torch.empty(count, dtype=dtype, device=device) for _ in range(size)]
            dist.all_gather(parts, mine)
            same(torch.cat(parts), torch.cat(every), f"all_gather {what}")
            x = mine.clone()
            dist.broadcast(x, size - 1)
            same(x, every[size - 1], f"broadcast {what}")
            x = mine.clone()
            dist.reduce(x, 0)
            if rank == 0:
                same(x, wide.sum(0), f"reduce {what}")
            out = torch.empty(count, dtype=dtype, device=device)
            dist.reduce_scatter_tensor(out, mine.repeat(size))
            same(out, wide.sum(0), f"reduce_scatter_tensor {what}")
            out = torch.empty(size * count, dtype=dtype, device=device)
            dist.all_to_all_single(out, mine.repeat(size))
            same(out, torch.cat(every), f"all_to_all_single {what}")


def full(count, value):
    return torch.full((count,), float(value), device=device)


def other_forms():
    outs = [torch.empty(rank + 1, device=device) for _ in range(size)]
    dist.all_to_all(outs, [full(k + 1, rank) for k in range(size)])
    for k, out in enumerate(outs):
        same(out, torch.full((rank + 1,), float(k)), "all_to_all")
    out = torch.empty(3, device=device)
    dist.scatter(out, [full(3, k) for k in range(size)] if rank == 0 else None, 0)
    same(out, torch.full((3,), float(rank)), "scatter")
    parts = [torch.empty(3, device=device) for _ in range(size)] if rank == 0 else None
    dist.gather(out, parts, 0)
    if rank == 0:
        same(torch.cat(parts), torch.arange(float(size)).repeat_interleave(3), "gather")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    check([o["rank"] for o in objects] == list(range(size)), "all_gather_object")
    some = [list(range(100))] if rank == 0 else [None]
    dist.broadcast_object_list(some, 0)
    check(some[0][99] == 99, "broadcast_object_list")
    xs = [full(1000, rank + k) for k in range(20)]
    work = [dist.all_reduce(x, async_op=True) for x in xs]
    [w.wait() for w in work]
    for k, x in enumerate(xs):
        same(x, torch.full((1000,), float(size * (size - 1) / 2 + size * k)), "asynchronous all_reduce")
    dist.barrier()


def messages():
    to, source = (rank + 1) % size, (rank - 1) % size
    for count in (1, 1000000):
        got = torch.empty(count, device=device)
        pair = [dist.P2POp(dist.isend, full(count, rank), to), dist.P2POp(dist.irecv, got, source)]
        [work.wait() for work in dist.batch_isend_irecv(pair)]
        same(got, torch.full((count,), float(source)), "batch_isend_irecv")
    if rank == 0:
        dist.send(full(5, 9), size - 1)
    elif rank == size - 1:
        got = torch.empty(5, device=device)
        dist.recv(got, 0)
        same(got, torch.full((5,), 9.0), "send and recv")


def sub_groups():
    ends, half = dist.new_group([0, size - 1]), dist.new_group(list(range(size // 2)))
    if rank in (0, size - 1):
        x = full(5, rank)
        dist.all_reduce(x, group=ends)
        same(x, torch.full((5,), float(size - 1)), "a group of two")
    if rank < size // 2:
        x = full(5, 1)
        dist.all_reduce(x, group=half)
        same(x, torch.full((5,), float(size // 2)), "a group of half")
    dist.barrier()


def changing_memory():
    """Memory that the allocator gives back to the driver and takes again: nothing may be remembered by its address."""
    for k in range(6):
        count = (1 << 22) + (k << 18)
        x = torch.full((count,), float(rank + k), device=device)
        dist.all_reduce(x)
        same(x[:: count // 50], torch.full((len(range(0, count, count // 50)),), float(size * (size - 1) / 2 + size * k)),
             f"all_reduce after memory was freed, turn {k}")
        del x
        torch.cuda.empty_cache()


def graphs():
    x, y = torch.zeros(1000, device=device), torch.zeros(1000, device=device)
    dist.all_reduce(torch.ones(1, device=device))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
        dist.all_reduce(y)
        y.mul_(2)
    for k in range(100):
        x.fill_(float(rank + k))
        graph.replay()
    torch.cuda.synchronize()
    same(y, torch.full((1000,), 2.0 * (size * (size - 1) / 2 + 99 * size)), "a graph, 100 replays")


# ---- training -------------------------------------------------------------------------------------------

WIDTH, BATCH = 32, 32


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def make():
    torch.manual_seed(1)
    return nn.Sequential(*[Mlp() for _ in range(4)]).to(device)


generator = torch.Generator().manual_seed(7)
X = torch.randn(BATCH, WIDTH, generator=generator).to(device)
Y = torch.randn(BATCH, WIDTH, generator=generator).to(device)
MINE = slice(rank, None, size)


def losses(model, part, steps=6):
    """Of `steps` steps, each the mean over all ranks."""
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.2), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(X[part]) - Y[part]) ** 2).mean()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach().clone())
    seen = torch.stack(seen)
    if part is MINE:
        dist.all_reduce(seen)
        seen /= size
    return seen.tolist()


def compare(what, model, part=MINE):
    for step, (one, many) in enumerate(zip(alone, losses(model, part))):
        close(many, one, f"{what}: loss of step {step}")


def ddp():
    ids = [0] if gpu else None
    wrap = nn.parallel.DistributedDataParallel
    compare("DDP", wrap(make(), device_ids=ids, bucket_cap_mb=0.01))
    compare("DDP, static graph", wrap(make(), device_ids=ids, static_graph=True))
    compare("DDP, bucket views", wrap(make(), device_ids=ids, gradient_as_bucket_view=True, bucket_cap_mb=0.01))


def ddp_compiled():
    compare("DDP, compiled", torch.compile(nn.parallel.DistributedDataParallel(make(), device_ids=[0])))


def fsdp():
    from torch.distributed.fsdp import fully_shard

    model = make()
    for part in model:
        fully_shard(part)
    fully_shard(model)
    compare("FSDP2", model)


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device.type, (size,))
    model = make()
    for part in model:
        parallelize_module(part, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    compare("tensor parallel", model, slice(None))


def pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    model, per = make(), 4 // size
    mine = nn.Sequential(*list(model)[rank * per : (rank + 1) * per])
    stage = PipelineStage(mine, rank, size, device)
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, y: ((out - y) ** 2).mean())
    optimizer, seen = torch.optim.SGD(mine.parameters(), lr=0.2), []
    for _ in range(6):
        optimizer.zero_grad()
        parts = []
        if rank == 0:
            schedule.step(X, **({"target": Y, "losses": parts} if size == 1 else {}))
        elif rank == size - 1:
            schedule.step(target=Y, losses=parts)
        else:
            schedule.step()
        optimizer.step()
        if rank == size - 1:
            seen.append(sum(float(x) for x in parts) / len(parts))
    for step, loss in enumerate(seen):
        close(loss, alone[step], f"pipeline: loss of step {step}")


def run(case):
    begin = time.monotonic()
    case()
    if gpu:
        torch.cuda.synchronize()
    if rank == 0:
        print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


alone = losses(make(), slice(None))
for case in [collectives, other_forms, messages, sub_groups, ddp, fsdp, tensor_parallel]:
    if case not in (messages, sub_groups) or size > 1:
        run(case)
if 1 < size <= 4:
    run(pipeline)
if gpu:
    run(changing_memory)
    run(graphs)
    run(ddp_compiled)
dist.destroy_process_group()
print("wrong" if wrong else "right", flush=True)
sys.exit(1 if wrong else 0)
