"""Libraries whose communication does not pass torch's dispatcher. They are named, so that it is not mistaken for computation."""

from collections.abc import Callable

from feedline.profiler import reasons
from feedline.profiler.message import Message

NAME = "collectives"  # of the hook
UNSEEN = {
    "horovod.torch": ("Horovod", "it has queues and threads of its own"),
    "byteps.torch": ("BytePS", "it has queues and threads of its own"),
    "mpi4py.MPI": ("mpi4py", "it calls MPI itself"),
    "cupy.cuda.nccl": ("CuPy", "it calls NCCL itself"),
    "deepspeed.ops.comm": ("DeepSpeed's own kernels", "they use shared memory of their own"),
    "nvshmem": ("NVSHMEM", "ranks write into each other's memory"),
}


def attach(when_imported: Callable[[str, Callable[[], None]], None], tell: Callable[[str, bool, str], None]) -> None:
    """Report each of them when it is imported."""

    def told(name: str, why: str) -> Callable[[], None]:
        said = f"not recorded, {why}: its time counts toward the stage in which it occurs, if any"
        return lambda: tell(f"communication by {name}", False, Message(said, reasons.OTHER_LIBRARY))

    for module, (name, why) in UNSEEN.items():
        when_imported(module, told(name, why))
