"""PyTorch's collectives for CPU tensors, carried out by Weft.

    import weft_torch
    torch.distributed.init_process_group("weft")

Everything of torch.distributed then works as with "gloo", between the processes of one host: DDP, the
functional collectives, groups, messages. Ranks are started by `weft run`, torchrun or any launcher that sets
torchrun's variables. Nothing is built: libweft.so is loaded where it is found beside this file, in the
folders of the system, or where LIBWEFT says.

Calls that the caller waits for run in the calling thread. Others (async_op=True, DDP's) run on a stream of
Weft's, in the order in which they were made. Each pair of ranks has a communicator of its own for messages
of each tag, so that these wait for nothing but their partners.
"""
import atexit
import ctypes
import glob
import os
import threading
import weakref

import torch
import torch.distributed as dist
from torch.futures import Future

__all__ = ["WeftGroup"]

_STREAM_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int),
        ("algo", ctypes.c_char_p),
        ("concurrent_comms", ctypes.c_int),
    ]


def _find_library():
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("LIBWEFT")
    if named:
        return named
    # In a build tree, or installed to PREFIX/share/weft/python.
    for pattern in ("../build", "../../../lib", "../../../lib/*-linux-gnu", "../../../lib64"):
        for path in glob.glob(os.path.normpath(os.path.join(here, pattern, "libweft.so.0"))):
            return path
    return "libweft.so.0"


def _load():
    path = _find_library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"weft_torch: {error}; set LIBWEFT to the path of libweft.so") from None
    p, n, i = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for name, arguments in {
        "unique_id_create": [p],
        "unique_id_derive": [p, ctypes.c_uint64, p],
        "comm_init_rank": [p, i, _Id, i, p],
        "comm_destroy": [p],
        "comm_abort": [p],
        "allreduce": [p, p, n, i, i, p, p],
        "reduce": [p, p, n, i, i, i, p, p],
        "broadcast": [p, p, n, i, i, p, p],
        "reduce_scatter": [p, p, n, i, i, p, p],
        "allgather": [p, p, n, i, p, p],
        "gather": [p, p, n, i, i, p, p],
        "scatter": [p, p, n, i, i, p, p],
        "alltoall": [p, p, n, i, p, p],
        "alltoallv": [p, p, p, p, p, p, i, p, p],
        "barrier": [p, p],
        "send": [p, n, i, i, p, p],
        "recv": [p, n, i, i, p, p],
        "stream_create": [p],
        "stream_destroy": [p],
        "stream_synchronize": [p],
        "stream_call": [p, _STREAM_FN, p],
    }.items():
        function = getattr(library, "weft_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    library.weft_last_error.restype = ctypes.c_char_p
    return library


_weft = _load()


def _check(status):
    if status != 0:
        raise dist.DistBackendError(_weft.weft_last_error().decode(errors="replace"))


# As in weft/types.h.
_F64, _F32, _F16, _BF16, _I8, _U8, _I32, _U32, _I64, _U64 = range(10)
_TYPES = {
    torch.float64: _F64,
    torch.float32: _F32,
    torch.float16: _F16,
    torch.bfloat16: _BF16,
    torch.int8: _I8,
    torch.uint8: _U8,
    torch.int32: _I32,
    torch.int64: _I64,
}
_SUM, _PROD, _MIN, _MAX, _AVG = range(5)
_OPS = {
    dist.ReduceOp.SUM: _SUM,
    dist.ReduceOp.PRODUCT: _PROD,
    dist.ReduceOp.MIN: _MIN,
    dist.ReduceOp.MAX: _MAX,
    dist.ReduceOp.AVG: _AVG,
}
# What Weft has no operation for is gathered, and reduced by PyTorch.
_BITWISE = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}


def _op_of(op):
    """The operation as a value of ReduceOp.RedOpType."""
    return op.op if hasattr(op, "op") else op


def _expect_cpu(tensors):
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.is_sparse:
            raise ValueError(
                f'the backend "weft" takes dense tensors in CPU memory, not {tensor.layout} on {tensor.device}'
            )


def _expect_alike(what, reference, tensors, count=None):
    """All of the type of `reference`, with its number of elements, or `count`."""
    count = reference.numel() if count is None else count
    for tensor in tensors:
        if tensor.dtype != reference.dtype or tensor.numel() != count:
            raise ValueError(
                f"{what}: {tensor.numel()} elements of {tensor.dtype}, where {count} of {reference.dtype} are expected"
            )


def _real(tensor):
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bytes(tensor):
    """The tensor as bytes: what only moves."""
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


@torch.no_grad()
def _settle(target, result):
    if target.data_ptr() != result.data_ptr():
        typed = result if result.dtype == target.dtype else result.view(target.dtype)
        target.copy_(typed.view_as(target))


class _Work(dist.Work):
    """A call that may be under way. Who waits gets its exception, in Python and (by the future) in C++."""

    def __init__(self, future, result):
        super().__init__()
        self._future, self._result = future, result

    def wait(self, timeout=None):
        self._future.wait()
        return True

    def synchronize(self):
        self._future.wait()

    def is_completed(self):
        return self._future.done()

    def is_success(self):
        if not self._future.done():
            return False
        try:
            self._future.wait()
        except Exception:
            return False
        return True

    def exception(self):
        try:
            self._future.wait()
        except Exception as error:
            return error
        return None

    def get_future(self):
        # An exception that was set is a mere value for C++; one that `then` raises is not.
        return self._future.then(lambda done: done.wait())

    def result(self):
        self._future.wait()
        return self._result


class _Lane:
    """A communicator, and a stream on which its calls run in order."""

    def __init__(self, join):
        self.comm = ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        self._join = join
        self._lock = threading.Lock()
        self._pending = {}  # what the stream still calls, by number
        self._next = 1  # not 0, which ctypes hands over as None
        self._joining = False
        self._inside = threading.Lock()  # held by the thread that is in a call of the communicator
        self._idle = threading.Event()
        self._idle.set()
        self._callback = _STREAM_FN(self._call)

    def open_now(self):
        if not self.comm:
            self._joining = True
            self._join(self.comm)
            self._joining = False
        return self.comm

    def _open_stream(self):
        with self._lock:
            if not self.stream:
                _check(_weft.weft_stream_create(ctypes.byref(self.stream)))
            return self.stream

    def run_now(self, fn):
        """In this thread, after what is queued: one thread at a time is inside the communicator."""
        while self._pending:  # rare: a caller that does not wait for what it queued
            self._idle.wait()
        with self._inside:
            fn()

    def _call(self, number):
        fn, result, future = self._pending[number]
        try:
            with self._inside:
                fn()
            error = None
        except Exception as caught:  # it belongs to whoever waits
            error = caught
        # Before anybody who waits goes on: the communicator is free for the next call.
        with self._lock:
            del self._pending[number]
            if not self._pending:
                self._idle.set()
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def queue(self, fn, result):
        """Call fn() on the stream's thread; the _Work of that."""
        stream = self._open_stream()
        future = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._pending[number] = (fn, result, future)
            self._idle.clear()
        _check(_weft.weft_stream_call(stream, self._callback, number))
        return _Work(future, result)

    def close(self):
        """What is queued is awaited; after an abort that is soon. A thread that still joins is left alone."""
        if self._joining:
            return
        if self.stream:
            _weft.weft_stream_synchronize(self.stream)
            _weft.weft_stream_destroy(self.stream)
            self.stream = ctypes.c_void_p()
        if self.comm:
            _weft.weft_comm_destroy(self.comm)
            self.comm = ctypes.c_void_p()

    def abort(self):
        if self.comm:
            _weft.weft_comm_abort(self.comm)
            self.comm = ctypes.c_void_p()


def _done(result):
    future = Future()
    future.set_result(result)
    return _Work(future, result)


_groups = weakref.WeakSet()


@atexit.register
def _leave():
    """Threads of Weft's must not come back into an interpreter that is gone."""
    for group in list(_groups):
        group.abort()
    for group in list(_groups):
        group.shutdown()


class WeftGroup(dist.ProcessGroup):
    """A process group of PyTorch's over Weft."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout_ms = max(1, int(timeout.total_seconds() * 1000))
        if rank == 0:
            identity = _Id()
            _check(_weft.weft_unique_id_create(ctypes.byref(identity)))
            store.set("weft-id", bytes(bytearray(identity)).hex())
        else:
            identity = _Id.from_buffer_copy(bytes.fromhex(store.get("weft-id").decode()))
        self._id = identity
        self._lane = _Lane(lambda comm: self._join(comm, self._id, size, rank))
        self._lane.open_now()
        self._channels = {}
        self._lock = threading.Lock()
        self._name = ""
        _groups.add(self)

    def _join(self, comm, identity, size, rank):
        config = _Config(ctypes.sizeof(_Config), self._timeout_ms, None, -1)
        _check(_weft.weft_comm_init_rank(ctypes.byref(comm), size, identity, rank, ctypes.byref(config)))

    # ---- what PyTorch asks of a group -----------------------------------------------------------------

    def getBackendName(self):
        return "weft"

    def name(self):
        return "weft"

    @property
    def group_name(self):
        # PyTorch forgets it before it asks for it the last time.
        self._name = dist.distributed_c10d._world.pg_names.get(self, self._name)
        return self._name

    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, device):
        return self

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def getRank(self):
        return self._rank

    def getSize(self):
        return self._size

    def abort(self):
        for lane in [self._lane, *self._channels.values()]:
            lane.abort()

    def shutdown(self):
        for lane in [*self._channels.values(), self._lane]:
            lane.close()
        self._channels = {}

    def _run(self, fn, result, opts):
        """Carry out fn(comm), here if the caller waits for it anyway."""
        comm = self._lane.comm
        if opts is not None and getattr(opts, "asyncOp", True) is False:
            self._lane.run_now(lambda: fn(comm))
            return _done(result)
        return self._lane.queue(lambda: fn(comm), result)

    def _expect_all(self, parts):
        if len(parts) != self._size:
            raise ValueError(f"a list of {len(parts)} tensors, and {self._size} ranks")
        _expect_cpu(parts)

    # ---- reductions ---------------------------------------------------------------------------------

    def _reduction(self, tensor, op):
        """How a tensor is reduced: (operation, type) of Weft's, or what PyTorch does."""
        if op in _BITWISE:
            return None, _BITWISE[op]
        if tensor.dtype == torch.bool:
            return {_SUM: _MAX, _PROD: _MIN}.get(_OPS[op], _OPS[op]), _U8
        if op not in _OPS or tensor.dtype not in _TYPES:
            raise ValueError(f'the backend "weft" does not reduce {tensor.dtype} by {op}')
        return _OPS[op], _TYPES[tensor.dtype]

    def _reduce_bitwise(self, comm, tensor, fn):
        flat = _bytes(tensor)
        everyone = flat.new_empty(self._size * flat.numel())
        _check(_weft.weft_allgather(flat.data_ptr(), everyone.data_ptr(), flat.numel(), _U8, comm, None))
        parts = everyone.view(tensor.dtype).view(self._size, -1)
        result = parts[0]
        for part in parts[1:]:
            result = fn(result, part)
        return result.view_as(tensor)

    def _prepare(self, tensor, op):
        """(dense real tensor that Weft may overwrite, plain operation)."""
        plain = _op_of(op)
        if tensor.is_complex() and plain not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM):
            raise ValueError(f'the backend "weft" does not reduce {tensor.dtype} by {plain}')
        work = _real(tensor.resolve_conj())
        if work.dim() == 0 or not work.is_contiguous():
            work = work.contiguous()
        if plain == dist.ReduceOp.PREMUL_SUM:
            factor = op.__getstate__()[1]
            work = work * factor
            plain = dist.ReduceOp.SUM
        return work, plain

    def _allreduce_one(self, comm, tensor, op):
        work, plain = self._prepare(tensor, op)
        operation, kind = self._reduction(work, plain)
        if operation is None:
            tensor.copy_(self._reduce_bitwise(comm, work, kind))
            return
        at = work.data_ptr()
        _check(_weft.weft_allreduce(at, at, work.numel(), kind, operation, comm, None))
        _settle(_real(tensor), work)

    def allreduce(self, tensors, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        _expect_cpu(tensors)

        def run(comm):
            for tensor in tensors:
                self._allreduce_one(comm, tensor, op)

        return self._run(run, tensors, opts)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        _expect_cpu(tensors)

        def run(comm):
            for tensor in tensors:
                work, plain = self._prepare(tensor, opts.reduceOp)
                operation, kind = self._reduction(work, plain)
                if operation is None:
                    result = self._reduce_bitwise(comm, work, kind)
                    if self._rank == opts.rootRank:
                        tensor.copy_(result)
                    continue
                at = work.data_ptr()
                _check(_weft.weft_reduce(at, at, work.numel(), kind, operation, opts.rootRank, comm, None))
                if self._rank == opts.rootRank:
                    _settle(_real(tensor), work)

        return self._run(run, tensors, opts)

    def _scatter_sum(self, comm, output, source, op):
        """source holds one block per rank, dense; this rank's, reduced, goes to output."""
        work, plain = self._prepare(source, op)
        operation, kind = self._reduction(work, plain)
        if operation is None:
            whole = self._reduce_bitwise(comm, work, kind).view(self._size, -1)
            output.copy_(whole[self._rank].view_as(output))
            return
        result = _real(output)
        result = result if result.is_contiguous() else torch.empty_like(result, memory_format=torch.contiguous_format)
        count = work.numel() // self._size
        _check(_weft.weft_reduce_scatter(work.data_ptr(), result.data_ptr(), count, kind, operation, comm, None))
        _settle(_real(output), result)

    def _reduce_scatter_base(self, output, source, opts=None):
        _expect_cpu([output, source])
        _expect_alike("reduce_scatter", output, [source], output.numel() * self._size)
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        return self._run(lambda comm: self._scatter_sum(comm, output, source.contiguous(), op), [output], opts)

    def reduce_scatter(self, outputs, inputs, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for output, parts in zip(outputs, inputs):
            self._expect_all(parts)
            _expect_alike("reduce_scatter", output, parts)

        def run(comm):
            for output, parts in zip(outputs, inputs):
                self._scatter_sum(comm, output, torch.cat([part.reshape(-1) for part in parts]), op)

        return self._run(run, outputs, opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        for output, source in zip(outputs, inputs):
            _expect_alike("reduce_scatter", output, [source], output.numel() * self._size)

        def run(comm):
            for output, source in zip(outputs, inputs):
                self._scatter_sum(comm, output, source.contiguous(), op)

        return self._run(run, outputs, opts)

    # ---- moves --------------------------------------------------------------------------------------

    def broadcast(self, tensors, opts):
        _expect_cpu(tensors)

        def run(comm):
            for tensor in tensors:
                # By its type, where Weft has it, so that ranks which differ are told.
                flat, kind = _bytes(tensor), _TYPES.get(tensor.dtype, _U8)
                count = tensor.numel() if tensor.dtype in _TYPES else flat.numel()
                at = flat.data_ptr()
                _check(_weft.weft_broadcast(at, at, count, kind, opts.rootRank, comm, None))
                if self._rank != opts.rootRank:
                    _settle(tensor, flat)

        return self._run(run, tensors, opts)

    def _gather_all(self, comm, source):
        flat = _bytes(source)
        everyone = flat.new_empty(self._size * flat.numel())
        _check(_weft.weft_allgather(flat.data_ptr(), everyone.data_ptr(), flat.numel(), _U8, comm, None))
        return everyone.view(self._size, -1)

    def _allgather_base(self, output, source, opts=None):
        _expect_cpu([output, source])
        _expect_alike("all_gather", source, [output], source.numel() * self._size)

        def run(comm):
            if output.is_contiguous() and output.numel():
                flat, to = _bytes(source), _bytes(output)
                _check(_weft.weft_allgather(flat.data_ptr(), to.data_ptr(), flat.numel(), _U8, comm, None))
            elif output.numel():
                output.copy_(self._gather_all(comm, source).view(-1).view(output.dtype).view_as(output))

        return self._run(run, [output], opts)

    def allgather(self, outputs, inputs, opts=None):
        for parts, source in zip(outputs, inputs):
            self._expect_all(parts)
            _expect_alike("all_gather", source, parts)

        def run(comm):
            for parts, source in zip(outputs, inputs):
                rows = self._gather_all(comm, source)
                for part, row in zip(parts, rows):
                    if part.numel():
                        part.copy_(row.view(source.dtype).view_as(part))

        return self._run(run, outputs, opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, source in zip(outputs, inputs):
            _expect_alike("all_gather", source, [output], source.numel() * self._size)

        def run(comm):
            for output, source in zip(outputs, inputs):
                if output.numel():
                    output.copy_(self._gather_all(comm, source).view(-1).view(output.dtype).view_as(output))

        return self._run(run, outputs, opts)

    def gather(self, outputs, inputs, opts):
        if self._rank == opts.rootRank:
            for parts, source in zip(outputs, inputs):
                self._expect_all(parts)
                _expect_alike("gather", source, parts)

        def run(comm):
            for i, source in enumerate(inputs):
                flat = _bytes(source)
                root = self._rank == opts.rootRank
                everyone = flat.new_empty(self._size * flat.numel() if root else 0)
                _check(
                    _weft.weft_gather(
                        flat.data_ptr(), everyone.data_ptr(), flat.numel(), _U8, opts.rootRank, comm, None
                    )
                )
                if root and flat.numel():
                    for part, row in zip(outputs[i], everyone.view(self._size, -1)):
                        part.copy_(row.view(source.dtype).view_as(part))

        return self._run(run, outputs, opts)

    def scatter(self, outputs, inputs, opts):
        if self._rank == opts.rootRank:
            for output, parts in zip(outputs, inputs):
                self._expect_all(parts)
                _expect_alike("scatter", output, parts)

        def run(comm):
            for i, output in enumerate(outputs):
                mine = _bytes(output).clone()
                root = self._rank == opts.rootRank
                everyone = torch.cat([_bytes(part) for part in inputs[i]]) if root else mine.new_empty(0)
                _check(
                    _weft.weft_scatter(
                        everyone.data_ptr(), mine.data_ptr(), mine.numel(), _U8, opts.rootRank, comm, None
                    )
                )
                if mine.numel():
                    output.copy_(mine.view(output.dtype).view_as(output))

        return self._run(run, outputs, opts)

    def _exchange(self, comm, output, source, output_splits, input_splits):
        """Rows of `source` go to ranks by input_splits, and come by output_splits (empty: equal parts)."""
        item = source.element_size()

        def spread(tensor, splits):
            rows = tensor.shape[0] if tensor.dim() else 1
            row = (tensor.numel() // rows if rows else 0) * item
            splits = list(splits)
            if not splits:
                if rows % self._size:
                    raise ValueError(f"all_to_all: {rows} rows cannot be divided by {self._size} ranks")
                splits = [rows // self._size] * self._size
            if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
                raise ValueError(f"all_to_all: splits {splits} of {rows} rows for {self._size} ranks")
            counts = [split * row for split in splits]
            offsets = [sum(counts[:i]) for i in range(self._size)]
            array = ctypes.c_size_t * self._size
            return array(*counts), array(*offsets)

        flat, result = _bytes(source), _bytes(output)
        counts, offsets = spread(source, input_splits)
        out_counts, out_offsets = spread(output, output_splits)
        _check(
            _weft.weft_alltoallv(
                flat.data_ptr(), counts, offsets, result.data_ptr(), out_counts, out_offsets, _U8, comm, None
            )
        )
        if result.numel():
            _settle(output, result)

    def alltoall_base(self, output, source, output_splits, input_splits, opts=None):
        _expect_cpu([output, source])
        if output.dtype != source.dtype:
            raise ValueError(f"all_to_all: from {source.dtype} to {output.dtype}")
        return self._run(
            lambda comm: self._exchange(comm, output, source, output_splits, input_splits), [output], opts
        )

    def alltoall(self, outputs, inputs, opts=None):
        self._expect_all(outputs)
        self._expect_all(inputs)

        def run(comm):
            source = torch.cat([_bytes(part) for part in inputs])
            result = source.new_empty(sum(part.numel() * part.element_size() for part in outputs))
            self._exchange(
                comm,
                result,
                source,
                [part.numel() * part.element_size() for part in outputs],
                [part.numel() * part.element_size() for part in inputs],
            )
            for part, piece in zip(outputs, result.split([p.numel() * p.element_size() for p in outputs])):
                if part.numel():
                    part.copy_(piece.clone().view(part.dtype).view_as(part))

        return self._run(run, outputs, opts)

    def barrier(self, opts=None):
        return self._run(lambda comm: _check(_weft.weft_barrier(comm, None)), [], opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.barrier().wait()

    # ---- messages -----------------------------------------------------------------------------------

    def _channel(self, source, target, tag):
        """What carries messages of one tag from one rank to another; its communicator is joined by its thread."""
        key = (source, target, tag)
        with self._lock:
            lane = self._channels.get(key)
            if lane is None:
                number = (tag & 0xFFFFFFFF) << 32 | (source * self._size + target + 1)
                identity = _Id()
                _check(_weft.weft_unique_id_derive(ctypes.byref(self._id), number, ctypes.byref(identity)))
                me = 0 if source == self._rank else 1
                lane = self._channels[key] = _Lane(lambda comm: self._join(comm, identity, 2, me))
        return lane

    def send(self, tensors, target, tag=0):
        (tensor,) = tensors
        _expect_cpu(tensors)
        if target == self._rank:
            raise ValueError("send: to the rank itself")
        lane = self._channel(self._rank, target, tag)
        flat = _bytes(tensor)

        def run():
            _check(_weft.weft_send(flat.data_ptr(), flat.numel(), _U8, 1, lane.open_now(), None))

        return lane.queue(run, tensors)

    def recv(self, tensors, source, tag=0):
        (tensor,) = tensors
        _expect_cpu(tensors)
        if source == self._rank:
            raise ValueError("recv: from the rank itself")
        lane = self._channel(source, self._rank, tag)

        def run():
            flat = _bytes(tensor)
            _check(_weft.weft_recv(flat.data_ptr(), flat.numel(), _U8, 0, lane.open_now(), None))
            if flat.numel():
                _settle(tensor, flat)

        return lane.queue(run, tensors)

    def recv_anysource(self, tensors, tag=0):
        raise RuntimeError('the backend "weft" receives from a rank that is named, not from any')


# Names that later versions of PyTorch have for the same.
WeftGroup.all_gather_single = WeftGroup._allgather_base
WeftGroup.reduce_scatter_single = WeftGroup._reduce_scatter_base
WeftGroup.all_to_all_single = WeftGroup.alltoall_base
WeftGroup.all_gather_single_coalesced = WeftGroup.allgather_into_tensor_coalesced
WeftGroup.reduce_scatter_single_coalesced = WeftGroup.reduce_scatter_tensor_coalesced


def _create(store, rank, size, timeout):
    return WeftGroup(store, rank, size, timeout)


if "weft" not in dist.Backend.backend_list:
    dist.Backend.register_backend("weft", _create, devices=["cpu"])
