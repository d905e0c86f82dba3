"""One rank of test_torch.sh: torch.distributed over the backend "weft", against sums of its own."""
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, sys.argv[1])
import weft_torch  # noqa: E402,F401 # registers the backend

dist.init_process_group("weft")
rank, size = dist.get_rank(), dist.get_world_size()


def inputs(count, dtype, seed):
    """What every rank has, as all of them can compute."""
    return [
        torch.randint(0, 9, (count,), generator=torch.Generator().manual_seed(seed * 100 + k)).to(dtype)
        for k in range(size)
    ]


def same(got, expected, what):
    assert torch.equal(got.double(), expected.double()), f"{what}: {got} is not {expected}"


def collectives(dtype, count):
    every = inputs(count, dtype, count)
    mine, wide = every[rank], torch.stack(every).double()
    for op, reduced in [
        (dist.ReduceOp.SUM, wide.sum(0)),
        (dist.ReduceOp.MAX, wide.amax(0)),
        (dist.ReduceOp.MIN, wide.amin(0)),
        (dist.ReduceOp.PRODUCT, wide.prod(0)),
    ]:
        for waits in (True, False):
            x = mine.clone()
            work = dist.all_reduce(x, op=op, async_op=not waits)
            if work:
                work.wait()
            if op != dist.ReduceOp.PRODUCT or reduced.max() < 100:
                same(x, reduced, f"all_reduce {op} {dtype} {count}")
    out = torch.empty(size * count, dtype=dtype)
    dist.all_gather_into_tensor(out, mine)
    same(out, torch.cat(every), "all_gather_into_tensor")
    parts = [torch.empty(count, dtype=dtype) for _ in range(size)]
    dist.all_gather(parts, mine)
    same(torch.cat(parts), torch.cat(every), "all_gather")
    x = mine.clone()
    dist.broadcast(x, size - 1)
    same(x, every[size - 1], "broadcast")
    blocks, out = mine.repeat(size), torch.empty(count, dtype=dtype)
    dist.reduce_scatter_tensor(out, blocks)
    same(out, wide.sum(0), "reduce_scatter_tensor")
    dist.reduce_scatter(out, list(blocks.split(count)))
    same(out, wide.sum(0), "reduce_scatter")
    out = torch.empty(size * count, dtype=dtype)
    dist.all_to_all_single(out, blocks)
    same(out, torch.cat(every), "all_to_all_single")
    x = mine.clone()
    dist.reduce(x, 0)
    if rank == 0:
        same(x, wide.sum(0), "reduce")


def other_forms():
    x = torch.tensor(float(rank))
    dist.all_reduce(x)
    assert x == size * (size - 1) / 2
    x = torch.tensor([1 << rank])
    dist.all_reduce(x, op=dist.ReduceOp.BOR)
    assert x == (1 << size) - 1
    x = torch.tensor([rank == 0, False])
    dist.all_reduce(x)
    assert x.tolist() == [True, False]
    x = torch.full((3,), complex(rank, 1))
    dist.all_reduce(x)
    same(torch.view_as_real(x), torch.view_as_real(torch.full((3,), complex(size * (size - 1) / 2, size))), "complex")
    x = torch.arange(12.0).view(3, 4).t()  # not dense
    dist.all_reduce(x)
    same(x, size * torch.arange(12.0).view(3, 4).t(), "a transposed tensor")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    assert [o["rank"] for o in objects] == list(range(size))
    some = [list(range(100))] if rank == 0 else [None]
    dist.broadcast_object_list(some, 0)
    assert some[0][99] == 99
    out = torch.empty(3)
    dist.scatter(out, [torch.full((3,), float(k)) for k in range(size)] if rank == 0 else None, 0)
    same(out, torch.full((3,), float(rank)), "scatter")
    parts = [torch.empty(3) for _ in range(size)] if rank == 0 else None
    dist.gather(out, parts, 0)
    if rank == 0:
        same(torch.cat(parts), torch.arange(float(size)).repeat_interleave(3), "gather")
    outs = [torch.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((k + 1,), float(rank)) for k in range(size)])
    for k, out in enumerate(outs):
        same(out, torch.full((rank + 1,), float(k)), "all_to_all")
    dist.barrier()


def sub_groups():
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        x = torch.full((5,), float(rank))
        dist.all_reduce(x, group=group)
        same(x, torch.full((5,), float(size - 1)), "a sub-group")


def messages():
    to, source = (rank + 1) % size, (rank - 1) % size
    big, got = torch.full((1000000,), float(rank)), torch.empty(1000000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, big, to), dist.P2POp(dist.irecv, got, source)]):
        work.wait()
    same(got, torch.full_like(got, float(source)), "batch_isend_irecv")
    # By tag, and not in the order in which they were sent.
    if rank == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2)]
        [work.wait() for work in works]
    elif rank == 1:
        for tag in (2, 1):
            x = torch.zeros(1)
            dist.recv(x, 0, tag=tag)
            assert x.item() == tag


def raises(kind, fn, *arguments, **options):
    try:
        work = fn(*arguments, **options)
        if work is not None:
            work.wait()
    except kind as error:
        return str(error)
    raise AssertionError(f"{fn} raised nothing")


def misuse():
    """Refused before anything is written behind a tensor."""
    f32, f64 = torch.zeros(1000), torch.zeros(1000, dtype=torch.float64)
    raises(ValueError, dist.all_gather_into_tensor, torch.zeros(1000 * size), f64)
    raises(ValueError, dist.reduce_scatter_tensor, f32, torch.zeros(1000 * size, dtype=torch.float64))
    raises(ValueError, dist.reduce_scatter, f32, [torch.zeros(3000)] * size)
    raises(ValueError, dist.all_reduce, torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.PRODUCT)
    if size > 1:
        rows = torch.zeros(size, 3)
        raises(ValueError, dist.all_to_all_single, rows, rows.clone(), [size] * size, [1] * size)
        raises(ValueError, dist.all_to_all_single, torch.zeros(2 * size + 1), torch.zeros(2 * size + 1))


def errors():
    """Also of calls that nobody waits for at once: the exception comes with the wait."""
    group = dist.new_group(list(range(size)))
    said = raises(dist.DistBackendError, dist.all_reduce, torch.ones(3 + rank), group=group, async_op=True)
    assert "ranks made different calls: call 1 is allreduce of" in said, said
    if rank == 0:
        dist.isend(torch.zeros(10), 1, tag=77)  # small: it may be gone before the other side is seen
    elif rank == 1:
        said = raises(dist.DistBackendError, dist.irecv, torch.zeros(20), 0, tag=77)
        assert "40 u8" in said and "80 u8" in said, said
    dist.destroy_process_group(dist.new_group(list(range(size))))


def threads():
    """Calls that wait and calls that do not, from two threads: one at a time is inside."""
    import threading

    def waits():
        for _ in range(30):
            x = torch.ones(5)
            dist.all_reduce(x)
            same(x, torch.full((5,), float(size)), "a thread that waits")

    def queues():
        for _ in range(30):
            x = torch.ones(5)
            dist.all_reduce(x, async_op=True).wait()
            same(x, torch.full((5,), float(size)), "a thread that queues")

    both = [threading.Thread(target=fn) for fn in (waits, queues)]
    [thread.start() for thread in both]
    [thread.join() for thread in both]


def train():
    """DDP: the same losses as one process has with all the data."""
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(24, 32, generator=generator), torch.randn(24, 8, generator=generator)

    def make():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

    alone, model = make(), torch.nn.parallel.DistributedDataParallel(make(), bucket_cap_mb=0.01)
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (alone, model)]
    for _ in range(5):
        losses = []
        for m, step, batch in ((alone, steps[0], slice(None)), (model, steps[1], slice(rank, None, size))):
            step.zero_grad()
            loss = ((m(x[batch]) - y[batch]) ** 2).mean()
            loss.backward()
            step.step()
            losses.append(loss.detach())
        mean = losses[1].clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        assert abs(mean - losses[0]) < 1e-5, f"{mean} is not {losses[0]}"


for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
    for count in (1, 7, 30001):
        collectives(dtype, count)
other_forms()
misuse()
threads()
if size > 1:
    sub_groups()
    messages()
    errors()
train()
dist.destroy_process_group()
print("right")
