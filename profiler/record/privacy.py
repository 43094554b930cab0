"""Decides what a run folder holds of the environment and the command line.

It can then be shared. Variables are recorded only if _ENVIRONMENT names them. Of variables and
arguments only values that are plainly harmless are kept (masks.py), with names of options and keys,
and paths below the working directory; everything else becomes MASK. A list of what is secret can
never be complete; a gap in a list of what is harmless costs a reader a value here and there.
"""

import json
import os
import re
from collections.abc import Mapping

from feedline.profiler import masks
from feedline.profiler.masks import MASK, WORDS, is_name, is_plain, words_of

_SETTINGS = """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE
    TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE
    SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_NNODES
    SLURM_NTASKS_PER_NODE SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_RESTART_COUNT
    SLURM_ARRAY_TASK_ID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE
    OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_WAIT_POLICY OMP_DYNAMIC OMP_SCHEDULE KMP_AFFINITY KMP_BLOCKTIME GOMP_CPU_AFFINITY
    MKL_NUM_THREADS MKL_DYNAMIC OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS BLIS_NUM_THREADS
    MALLOC_ARENA_MAX MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ MALLOC_MMAP_MAX_ GLIBC_TUNABLES
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING CUBLAS_WORKSPACE_CONFIG
    NVIDIA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
    NCCL_DEBUG NCCL_ALGO NCCL_PROTO NCCL_NTHREADS NCCL_BUFFSIZE NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MAX_CTAS
    NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_NET NCCL_NET_GDR_LEVEL NCCL_CROSS_NIC NCCL_SOCKET_IFNAME NCCL_SOCKET_NTHREADS
    NCCL_NSOCKS_PERTHREAD NCCL_IB_DISABLE NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_IB_QPS_PER_CONNECTION NCCL_NVLS_ENABLE
    NCCL_COLLNET_ENABLE NCCL_LAUNCH_MODE NCCL_CUMEM_ENABLE
    TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_ENABLE_TIMING TORCH_NCCL_TRACE_BUFFER_SIZE
    TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_HIGH_PRIORITY TORCH_DISTRIBUTED_DEBUG TORCH_LOGS TORCH_COMPILE_DISABLE
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHDYNAMO_DISABLE TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_FREEZING
    PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK
    PYTHONHASHSEED PYTHONOPTIMIZE PYTHONUNBUFFERED PYTHONMALLOC PYTHONDEVMODE PYTHONSAFEPATH PYTHON_GIL PYTHON_JIT
"""

#: The environment variables that a run records: ranks, thread and device settings.
_ENVIRONMENT = frozenset(_SETTINGS.split())

#: A name that ends in one of these has values that are secret, or somebody's, even where they are
#: plain numbers or words.
_PRIVATE = re.compile(
    r"(?!tokens).*(?:key|token|secret|password|passwd|pwd)s?|(?:pass|passphrase|passcode|pw|pin|otp|pat|cred|credential|auth|basic|bearer|login"
    r"|user|username|account|email|mail|phone|owner|licen[cs]e|webhook|cookie|signature|sig)s?"
)
_OPTION = re.compile(r"(--?)([A-Za-z][\w.-]*)(?:(=)(.*))?", re.DOTALL)
_MASKED = re.compile(r"-[A-Za-z]\*\*\*")  # -pVALUE, masked before
_PAIR = re.compile(r"([+~]{0,2})([\w./@-]+)=(.+)", re.DOTALL)
_LIST = re.compile(r"([,;&\s]+)")
#: A name before the value that it is given, which is not masked yet: ``token=``, ``{"pin": ``.
_NAMED = re.compile(r"""(?<![\w./@-])([\w./@-]+)[\s"')\]}]*[=:](?!\s*["']?\*\*\*)""")
_SCHEME = re.compile(r"[a-z][a-z0-9+]{0,9}://")
_LONGEST, _MOST_PAIRS = 10_000, 100


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the set variables of _ENVIRONMENT, sorted by name.

    Values that are not plainly harmless are masked.
    """
    return {
        name: environ[name] if _is_harmless(environ[name]) else MASK
        for name in sorted(_ENVIRONMENT)
        if name in environ
    }


def recorded_argv(argv: list[str], way: str) -> list[str]:
    """Return a command line as ``--record-argv`` says: all, masked, or only the name of the script.

    A program may put anything into sys.argv, such as a Path: the result is text.
    """
    words = [str(word) for word in argv]
    if way == "none":
        return [masks.token(os.path.basename(word)) for word in words[:1]]
    return words if way == "all" else mask_argv(words)


def mask_argv(argv: list[str]) -> list[str]:
    """Mask every value of a command line that is not plainly harmless.

    The program comes first, and the result is as long as ``argv``. Masking it again where none of
    its files are changes nothing but paths.
    """
    masked = [_program(word) for word in argv[:1]]
    private = False
    for argument in argv[1:]:
        option = _OPTION.fullmatch(argument)
        if option:
            masked.append(_mask_option(*option.groups(default="")))
            private = not option[3] and _is_private(option[2])
        elif _MASKED.fullmatch(argument):
            masked.append(argument)
            private = False
        else:
            masked.append(MASK if private else _mask_value(argument))
    return masked


def _mask_value(value: str) -> str:
    """Return a value if it is plainly harmless, a path, or MASK.

    Of JSON and of settings such as ``lr=0.1`` the harmless parts stay.
    """
    if _is_harmless(value):
        return value
    if len(value) > _LONGEST or value.count("=") > _MOST_PAIRS:
        return MASK
    if value[0] in "[{":
        try:
            return json.dumps(_mask_json(json.loads(value)), separators=(",", ":"))
        except (ValueError, RecursionError):
            pass
    if pair := _PAIR.fullmatch(value):
        return f"{pair[1]}{_mask_pair(pair[2], pair[3])}"
    parts = _LIST.split(value)
    if any(map(_PAIR.fullmatch, parts[::2])):
        return _mask_list(parts)
    if scheme := _SCHEME.match(value):
        return value if value == "env://" else f"{scheme[0]}{MASK}"
    return _mask_path(value)


def _program(word: str) -> str:
    """Return a script below the working directory with its folders, any other by its own name.

    That is what a person knows the run by.
    """
    known = not os.path.isabs(word) or not masks.path(word).startswith((MASK, "~"))
    return masks.token(masks.path(word) if known and "/" in word else os.path.basename(word))


def _mask_option(dashes: str, name: str, equals: str, value: str) -> str:
    # -pVALUE, -Dname=VALUE
    if dashes == "-" and len(name) > 2 and not all(word in WORDS for word in words_of(name)):
        return f"-{name[0]}{_mask_value(name[1:] + equals + value)}"
    return (
        dashes + _mask_pair(name, value) if equals else dashes + (name if is_name(name) else MASK)
    )


def _mask_pair(name: str, value: str) -> str:
    shown = name if is_name(name) else MASK
    return f"{shown}={MASK if value and _is_private(name) else _mask_value(value)}"


def _mask_list(parts: list[str]) -> str:
    """Mask a list with pairs in it: its parts, and what is between them.

    After a private name, values are masked up to the next one, as those after an option are.
    """
    pairs = [_PAIR.fullmatch(part) for part in parts]
    if _names_private("".join(part for part, pair in zip(parts, pairs) if not pair)):
        return MASK  # with blanks around its =, for example
    masked: list[str] = []
    private = False
    for number, (part, pair) in enumerate(zip(parts, pairs)):
        if pair:
            private = _is_private(pair[2])
            masked.append(_mask_value(part))
        elif number % 2 or not part:
            masked.append(part)
        else:
            masked.append(MASK if private or not is_plain(part) else part)
    return "".join(masked)


def _mask_json(value: object, private: bool = False) -> object:
    if isinstance(value, dict):
        return {
            key if is_name(key) else MASK: _mask_json(item, _is_private(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mask_json(item, private) for item in value]
    if private:
        return MASK
    return _mask_value(value) if isinstance(value, str) else value if is_plain(str(value)) else MASK


def _mask_path(value: str) -> str:
    shown = masks.path(value)
    if (
        os.path.isabs(value)
        and shown.startswith((MASK, "~"))
        or _is_harmless(shown)
        or _is_there(value)
    ):
        return shown
    return MASK + masks.ending(value)


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a null byte, before Python 3.12
        return False


def _is_harmless(value: str) -> bool:
    return is_plain(value) and not _names_private(value)


def _names_private(value: str) -> bool:
    """Return whether a private name is in a text, with a value that is not masked."""
    return any(map(_is_private, _NAMED.findall(value)))


def _is_private(name: str) -> bool:
    return any(_PRIVATE.fullmatch(word) for word in words_of(name)[-1:])
