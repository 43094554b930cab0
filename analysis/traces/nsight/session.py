"""What a file says of its recording: when, where, on which devices, as which rank."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from feedline.analysis.traces.nsight.database import Database
from feedline.analysis.traces.nsight.ids import THREADS

META = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # since schema 3, and before it
_ENVIRONMENT = "TARGET_INFO_SYSTEM_ENV"
CAPTURE = "META_DATA_CAPTURE"
_THREADS_NAMED = "ThreadNames"

#: (rank, number of ranks) as launchers pass them on: torchrun, Open MPI, PMIx, MPICH and Cray, Slurm.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
#: Which of several machines, from torchrun and Slurm.
_NODES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_WANTED = {*_NODES, *(name for pair in _LAUNCHERS for name in pair)}
_NODE_ARGUMENT = re.compile(r"--node[-_]rank=(\d{1,6})")
_SET = re.compile(r'(?:^|[\0;\n])([A-Z_]+)="?(\d{1,9})"?(?=$|[\0;\n])')
_MPI_RANK = re.compile(r"MPI Rank (\d{1,9})")  # what Nsight Systems names the main thread of an MPI program


@dataclass(frozen=True)
class Session:
    """One recording.

    Attributes:
        maker: product and version.
        schema: of the export, e.g. "3.25.0"; "unknown".
        origin_ns: Unix time that times of events count from; 0: unknown, or events hold Unix time themselves.
        environment: what launchers pass on, and nothing else: an environment holds secrets.
        node: number of the machine among those of a job; 0: it is the only one, or the file does not say.
        threads: globalTid -> name.
        devices: number -> name.
    """

    maker: str
    schema: str
    origin_ns: int
    environment: Mapping[str, int]
    node: int
    threads: Mapping[int, str]
    devices: Mapping[int, str]


def session(database: Database) -> Session:
    """Read whatever is there of it."""
    meta: dict[str, str] = {}
    for table in META:
        meta.update((str(name), str(value)) for name, value in database.rows(table, ("name", "value")))
    environment = _environment(database)
    return Session(
        f"{meta.get('EXPORT_PRODUCT_NAME', 'Nsight Systems')} {meta.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        meta.get("EXPORT_SCHEMA_VERSION", "unknown"),
        _origin(database, meta),
        environment,
        _node(database, environment),
        _threads(database),
        {number: str(name) for number, name in database.rows("TARGET_INFO_GPU", ("id", "name")) if isinstance(number, int) and name},
    )


def _origin(database: Database, meta: Mapping[str, str]) -> int:
    """Events count from the start of the session, unless the export was told ``--ts-normalize`` or ``--ts-shift``."""
    if meta.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    shift = meta.get("EXPORT_PARAM_TIME_SHIFT", "0")
    moved = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    for (began,) in database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        if isinstance(began, int) and 0 < began < 1 << 62:
            return began - moved
    return 0


def _environment(database: Database) -> dict[str, int]:
    texts = [
        f"{variable}" for (variable,) in database.rows(CAPTURE, ("value",), "WHERE name LIKE 'PROCESS_%:ENVIRONMENT_VARIABLE'")
    ] if database.has(CAPTURE, "name", "value") else []  # fmt: skip
    if database.has(_ENVIRONMENT, "name", "value"):
        texts += [str(value) for (value,) in database.rows(_ENVIRONMENT, ("value",), "WHERE name = 'DeviceEnvironment'")]
    found: dict[str, int] = {}
    for text in texts:
        for name, value in _SET.findall(text):
            if name in _WANTED:
                found.setdefault(name, int(value))
    return found


def _node(database: Database, environment: Mapping[str, int]) -> int:
    """From what nsys was told to start: torchrun --node_rank=1, in one argument or in two; else from the environment."""
    if database.has(CAPTURE, "name", "value"):
        said = [str(value) for (value,) in database.rows(CAPTURE, ("value",), "WHERE name LIKE 'PROCESS_%:ARGUMENT_%'")]
        for argument, following in zip(said, [*said[1:], ""]):
            match = _NODE_ARGUMENT.fullmatch(argument) or _NODE_ARGUMENT.fullmatch(f"{argument}={following}")
            if match:
                return int(match[1])
    return next((environment[name] for name in _NODES if name in environment), 0)


def _threads(database: Database) -> dict[int, str]:
    numbered = [(tid, name) for name, tid in database.rows(_THREADS_NAMED, ("nameId", "globalTid"))]
    texts = database.strings(name for _, name in numbered if isinstance(name, int))
    return {tid: texts[name] for tid, name in numbered if isinstance(tid, int) and isinstance(name, int) and name in texts}


def rank_of(
    process: int, alone: bool, told: tuple[int, int] | None, known: Session, named: Mapping[int, str]
) -> tuple[int | None, int | None]:
    """(rank, number of ranks) of a process, None where the file does not say.

    Looked for in what NCCL said of the largest communicator, in names of threads ("MPI Rank 3"), and in the environment of the recording
    where it started a single process that used a device: of several it says nothing that tells them apart.

    Args:
        alone: no other process used a device.
        told: by NCCL.
        named: globalTid -> name given through NVTX.
    """
    if told is not None:
        return told
    given = _launched(known.environment)
    for names in (named, known.threads):
        for tid, name in names.items():
            match = _MPI_RANK.fullmatch(name)
            if match and tid - tid % THREADS == process:
                return int(match[1]), given[1] if given[0] is not None and int(match[1]) < (given[1] or 0) else None
    return given if alone else (None, None)


def _launched(environment: Mapping[str, int]) -> tuple[int | None, int | None]:
    for rank, size in _LAUNCHERS:
        if rank in environment:
            world = environment.get(size)
            return (environment[rank], world) if world is None or environment[rank] < world else (None, None)
    return None, None
