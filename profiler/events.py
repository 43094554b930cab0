"""The record format, and the stages that a record can belong to.

A record is 64 bytes, little-endian. Its last byte is its stage: records are written front to back,
so one that a killed process left half-written has stage 0, and readers ignore it.
"""

import enum
import struct

#: Name and format (of ``struct``) of each field. Without numpy, which a program under feedline
#: imports by itself, after it has set how many threads that may use; readers have RECORD_DTYPE
#: (store/record_columns.py).
RECORD_FIELDS = (
    ("start", "q"),  # ns, CLOCK_MONOTONIC: comparable between the processes of one host
    ("wall", "q"),  # ns
    ("cpu", "q"),  # ns of this thread's CPU time; -1: not measured
    ("runqueue", "q"),  # ns runnable but not running; -1: not measured
    ("nbytes", "q"),  # see the stage; readers have names for each (store/record_columns.py)
    # a batch key (epoch << 32 | batch in the epoch) unless the stage says otherwise
    ("number", "q"),
    ("extra", "q"),  # see the stage
    ("source", "H"),  # which loader, module, optimizer or named operation
    # scrambled number of the window of batches it belongs to (store/segment.py)
    ("window", "H"),
    ("flags", "H"),
    ("thread", "B"),  # 0: the first thread that wrote, normally the main one
    ("stage", "B"),
)
RECORD = struct.Struct("<" + "".join(kind for _, kind in RECORD_FIELDS))
assert RECORD.size == 64
UNMEASURED = -1


class Stage(enum.IntEnum):
    """What a record is about.

    The numbers are part of the run folder's schema: add new ones, never change existing ones.
    """

    # The making of a batch: in a worker, or in the main thread when there are none.
    FETCH = 1  #: one batch, samples and collate. extra: samples. Flags: FAILED, END
    #: a sample seen in detail. nbytes: samples in it (1, or a batch by __getitems__). extra: how
    #: many each stands for. Flags: FIRST
    SAMPLE = 2
    #: source: operation. nbytes: bytes read. extra: bytes of the chunks that hold them (0: unknown)
    READ = 3
    DECODE = 4  #: source: operation. extra: pixels decoded. nbytes: bytes of the result
    AUGMENT = 5  #: source: operation. extra: pixels of the result (0: unknown)
    COLLATE = 6  #: making a batch of samples. Flags: CUSTOM
    PICKLE = 7  #: a worker's feeder thread serialises a batch. nbytes: length of the pickle
    IDLE = 8  #: a worker waited for something to do
    #: No span: a batch's file traffic, times the batches that it stands for. wall: major faults.
    #: cpu: bytes from the disk. runqueue: process CPU ns. nbytes: bytes read. extra: reads. Flags:
    #: FIRST
    TRAFFIC = 9
    START = 10  #: a worker was born: from process start to its first instruction here. extra: pid
    #: No span: what collate made, times the batches that it stands for. nbytes: bytes in tensors
    #: and arrays. extra: samples. cpu: tensors. runqueue: the batches that it stands for. Flags:
    #: FLOAT32, SHARED, OBJECTS, CUSTOM
    BATCH = 11
    #: No span: the kernel's work for a batch, times the batches that it stands for. wall: minor
    #: page faults. cpu: CPU ns in the kernel. Flags: FIRST
    KERNEL = 12
    #: No span: marks of the first samples of a worker's batch of a stream, to compare workers by
    #: (taps/sample_marks.py): wall, cpu, runqueue, nbytes and extra hold one sample each; 0 or less:
    #: none
    MARKS = 13

    # The main process.
    #: one __next__ of a loader. nbytes: bytes in tensors and arrays. extra: samples. Flags: END,
    # FAILED, FIRST, those of BATCH
    NEXT = 20
    EPOCH = 21  #: a loader's iterator was made or reset. number: epoch. extra: workers
    SAMPLER = 22  #: drawing indices and sending them to a worker
    ARRIVE = 23  #: a batch came out of the result queue. extra: worker (-1: unknown)
    TRANSPORT = 24  #: receiving and unpickling a batch. nbytes: length of the pickle
    PIN = 25  #: copying a batch to pinned memory. nbytes: bytes
    COPY = 26  #: a tensor moved between devices. nbytes: bytes. Flags: PINNED, NON_BLOCKING
    FORWARD = 27  #: source: the outermost module. Flags: TRAINING, GRAD
    LOSS = 28  #: source: the loss module
    BACKWARD = 29
    OPTIMIZER = 30  #: one optimizer step. source: the optimizer
    USER = 31  #: feedline.stage(name). source: the name
    CHECKPOINT = 32  #: torch.save. nbytes: of the file; 0: unknown
    COMPILE = 33  #: torch.compile compiled a graph. extra: which. source: what made it
    #: A stretch between two calls of models, backward passes and updates, in which a function of
    #: the program made batches (taps/own_code). extra: how long it is. wall: what the function took
    #: of it. cpu: of that, not asleep, at most. runqueue: of it, in copies between devices. number:
    #: calls. source: the function, with file and line
    MADE = 34
    #: no span: from one update's end to another's, in which such functions were timed. extra:
    # calls that were seen
    LOOKED = 35
    #: zero_grad, unscale_ or clipping. source: which. Of zero_grad, where gradients came after the
    #: last update: extra: the optimizer's parameters (elements), number: that of the optimizer
    GRADIENTS = 36
    #: No span: the program's own code in a step, between models, backward passes and updates
    #: (taps/own_code/stretches.py). wall: ns, of all that stretches stand for which were looked at.
    #: extra: how many were. runqueue: ns of the step that looking cost. Flags: GRAD, unless they
    #: lie between forwards without gradients
    OWN_CODE = 37
    #: No span: one function in that code, with the start of its record. wall: ns, however deep it
    #: was called. cpu: ns of it as called by the training loop. source: the function, with file and
    #: line, or lines of the loop, whose wall is 0. Flags: as of that record
    CALLED = 38
    #: what a GPU did for a stage (taps/gpu_timer.py). extra: the stage. number: start of the
    # stage's own record
    GPU = 40
    #: no span: torch.profiler recorded, which slows steps. extra: how many steps it was to record
    PROFILED = 41
    #: The step whose operations were counted (taps/flops.py). nbytes: FLOP of its forwards. extra:
    #: of its backwards. number: Arithmetic
    FLOP = 42
    #: No span: squared norms of an update's gradient (taps/convergence). number: two float32, of a
    #: part's mean and of the whole's. source: how they were seen. nbytes: samples of the part. cpu:
    #: parts in the whole. runqueue: ranks. extra: updates made before. Flags: SHARD
    GRADIENT = 43
    #: No span: one number of the training. source: its name. number: a float64. nbytes: samples
    #: that this rank had seen. extra: updates
    VALUE = 44
    #: Steps that were only counted (taps/recording_schedule.py), from one update's end to
    #: another's. extra: how many. cpu: what recording one in full costs, ns of CPU, from the run so
    #: far
    REST = 45
    #: No span: what a loader handed over in the rest that begins with it. wall: batches. extra:
    #: samples. source: the loader
    TAKEN = 46
    #: No span: a rest was ended by something that is always told: the step under way is one of a
    #: kind
    WOKEN = 47
    #: From where the pass over a loader began that fed an optimizer's first update until that
    #: update (record/optimizer_tracker.py). source: its class. number: its own, as in OPTIMIZER.
    #: extra: of the first optimizer that belongs to the same training; written again, with END,
    #: when that is found later. nbytes: elements of its parameters. cpu: updates made before.
    #: runqueue: samples that this rank had trained on before. Flags: FIRST, there was such a pass;
    #: END
    BEGUN = 48
    #: No span: sums of a stage's records before ``start``, where a training of its own begins.
    #: source: the stage. number: records. cpu: sum of wall. nbytes, extra: sums of these. A second
    #: one, whose source is 256 more: sums of cpu and runqueue
    SUMS = 49

    #: No span: a thread that makes batches was blocked when it was looked at from outside
    #: (samplers/blocked_threads.py). number: its process. source: what it waited for. extra: ns
    #: that the look stands for
    LOOK = 55
    #: Garbage collections of Python: one of a millisecond or more, or shorter ones, whose times are
    #: summed (taps/garbage.py). cpu: objects collected. nbytes: 1, the program called gc.collect.
    #: number: generation. extra: collections; 0: at the end of the recording, cpu are the objects
    #: that gc.freeze has set aside. source: the line that called
    GARBAGE = 56

    #: No span: a look at which graphs of past steps are alive (taps/graphs.py). number: updates
    #: made before. nbytes: graphs that should be gone. extra: of them, alive. source: the line that
    #: calls the model
    KEPT = 57

    #: No span: a step of which it is known whose graphs were gone when its first backward began
    #: (taps/dropped_graphs.py). number: updates made before. nbytes: forwards. extra: of them, with
    #: a graph that was gone. wall: ns of these. runqueue: ns of all. source: the line that called
    #: the longest of these
    DROPPED = 58
    #: No span: a look at values (taps/contents.py). source: PADDING or DENORMAL. number: updates made
    #: before. nbytes: values that were looked at. extra: of them, such that cost time for nothing.
    #: cpu: of padding, all of it, also where the columns are needed
    CONTENTS = 59

    # What ranks do together (taps/collectives).
    #: start: enqueued. wall: until it was complete; -1: not yet, or unknown. source: operation.
    #: cpu, runqueue: ids of names, of its group and dtype. nbytes: full message. number: of it
    #: within the group. extra: ns from start until a GPU came to it. Flags: BUCKET
    COLLECTIVE = 50
    #: No span: ranks of a group, or a part of them. source: its name. cpu: id of the backend's
    #: name. nbytes: how many. number: the first. extra: from each to the next
    GROUP = 51
    #: No span: the clock against rank 0's. number: rank 0's minus this one, ns. extra: round trip,
    #: ns. source: the host, scrambled
    CLOCK = 52

    #: not a span: bytes 0..55 are UTF-8, number is unused, source is the id the name belongs to
    NAME = 60


# Python 3.11 looks members up through a property, at 0.2 us each; 3.12 puts them here by itself
for _stage in Stage:
    type.__setattr__(Stage, _stage.name, _stage)


#: What a look at values looks for: columns of a batch that are filled in every row, and numbers that
#: are nearly zero.
PADDING, DENORMAL = "padding", "denormal"


class Arithmetic(enum.IntEnum):
    """In what operations are computed.

    Numbers are part of the run folder's schema: add, never change.
    """

    UNKNOWN = 0
    FLOAT32 = 1
    TF32 = 2  #: of float32 operands, products with 10 bits of mantissa
    FLOAT16 = 3
    BFLOAT16 = 4
    FLOAT64 = 5  #: slower than all others: numbers are in the order in which they were added


class Flag:
    """Bits of a record's flags. Plain integers, because an `or` of enum members takes 0.7 us."""

    END = 1  #: NEXT: the loader had no more batches. FETCH: the dataset had no more samples
    #: EPOCH: first of its loader object. NEXT: first batch of an epoch. SAMPLE, TRAFFIC, KERNEL: of
    #: its process, or modules were imported
    FIRST = 2
    FLOAT32 = 4  #: most bytes of the batch are floating point
    SHARED = 8  #: the batch's tensors are in shared memory
    PINNED = 16
    NON_BLOCKING = 32
    TRAINING = 64  #: FORWARD: module.training
    GRAD = 128  #: FORWARD: gradients were enabled. Also of OWN_CODE, CALLED
    OBJECTS = 256  #: the batch holds arrays or large objects that are not tensors
    CUSTOM = 512  #: COLLATE: not torch's default_collate
    FAILED = 1024  #: what was measured raised
    BUCKET = 2048  #: COLLECTIVE: DistributedDataParallel's reducer began it, in C++
    WITH_LOSS = 8192  #: FORWARD: a number that can be learned from is among its results
    SHARD = 4096  #: GRADIENT: the whole's norm is of this rank's shard: it is the sum over ranks
    #: FORWARD: all that it got was in memory before, unchanged (taps/own_code/producers.py)
    RESIDENT = 16384
    #: FORWARD: of a module without parameters, such as a transform (told without a loader)
    BARE = 32768


def batch_key(epoch: int, batch: int) -> int:
    """Return a batch of a loader as one number: ``epoch << 32 | batch``."""
    return epoch << 32 | batch
