"""Libraries whose communication does not pass torch's dispatcher.

They are named, so that it is not mistaken for computation.
"""

from collections.abc import Callable

from feedline.profiler import message, ranks
from feedline.profiler.message import Message, ReportHook

COLLECTIVES_HOOK = "collectives"  # of the hook
_UNSEEN_LIBRARIES = {
    "horovod.torch": ("Horovod", "it has queues and threads of its own"),
    "byteps.torch": ("BytePS", "it has queues and threads of its own"),
    "mpi4py.MPI": ("mpi4py", "it calls MPI itself"),
    "cupy.cuda.nccl": ("CuPy", "it calls NCCL itself"),
    "deepspeed.ops.comm": ("DeepSpeed's own kernels", "they use shared memory of their own"),
    "nvshmem": ("NVSHMEM", "ranks write into each other's memory"),
}
#: Lightning imports mpi4py only to ask whether MPI started the program, and CuPy its wrapper of
#: NCCL because it is there.
_MEANINGLESS_ALONE = ("mpi4py.MPI", "cupy.cuda.nccl")


def name_when_imported(
    when_imported: Callable[[str, Callable[[], None]], None], report: ReportHook
) -> None:
    """Report each of them when it is imported, if that means that it communicates."""

    def reporter(name: str, why: str) -> Callable[[], None]:
        said = f"not recorded, {why}: its time counts toward the stage in which it occurs, if any"
        return lambda: report(
            f"communication by {name}", False, Message(said, message.OTHER_LIBRARY)
        )

    alone = ranks.place().world_size == 1
    for module, (name, why) in _UNSEEN_LIBRARIES.items():
        if not (alone and module in _MEANINGLESS_ALONE):
            when_imported(module, reporter(name, why))
