"""What a run folder may hold of the environment and the command line, so that it can be shared.

Variables are recorded only if ENVIRONMENT names them. Arguments are all recorded, with the values of those that look like keys replaced by
MASK: by the argument's name (``--api-key X``), by the shape of the value (``ghp_...``), or as part of a URL. In doubt a value is masked.

detect-secrets (1.5, Apache-2.0) was weighed and is not used: with requests and PyYAML it takes 0.15 s to import, half of what feedline may
cost at start; it judges values and code, not names of arguments; and its entropy check reports ``--tokenizer gpt2`` and digests in paths.
"""

import os
import re
from collections.abc import Mapping

MASK = "***"

_SETTINGS = """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE
    TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE
    SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_NNODES
    SLURM_NTASKS_PER_NODE SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_RESTART_COUNT
    SLURM_ARRAY_TASK_ID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE
    OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_WAIT_POLICY OMP_DYNAMIC OMP_SCHEDULE KMP_AFFINITY KMP_BLOCKTIME GOMP_CPU_AFFINITY
    MKL_NUM_THREADS MKL_DYNAMIC OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS BLIS_NUM_THREADS MALLOC_ARENA_MAX
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

#: The environment variables that a run records: ranks, thread and device settings. None of them holds a secret, a user, a host or a path.
ENVIRONMENT = frozenset(_SETTINGS.split())

#: Words that make an argument's name secret wherever they stand, unless the name ends in one of _ABOUT.
_SECRET = frozenset(
    """password passwords passwd passphrase passcode secret secrets secretkey credential credentials apikey apikeys accesskey authtoken
    accesstoken authorization bearer webhook webhooks cookie""".split()
)
#: A name that ends like this tells about a secret, and is none: --password-file, --secret-name.
_ABOUT = frozenset("file path dir folder name type kind env variable field column length len size policy version provider arn".split())
#: "key" and "keys" are secret after one of these, or alone; --key-frames, --image-key and --label-key are not.
_KEY_OF = frozenset(
    """api access secret private auth encryption signing shared session master account storage service license aws s3 gcs azure wandb
    openai anthropic hf huggingface comet neptune""".split()
)
#: "token" is secret, but for these of language models; "tokens" after one of _KEY_OF only.
_TOKEN_OF_TEXT = frozenset(
    """pad eos bos unk sep cls mask special additional start end stop begin next image video audio vision text new prompt per max min
    num""".split()
)
_PASS_OF = frozenset("db database user mysql postgres pg redis mongo smtp ssh ftp http proxy".split())
_NEGATION = frozenset({"no", "without", "skip", "disable", "ignore"})

#: Tokens known by their prefix alone: GitHub, GitLab, AWS, Slack, SendGrid and JWT as in detect-secrets 1.5, the others as seen in use.
#: Lengths are lower bounds on purpose, and still long enough for ordinary names (``sk-learn``, ``global-batch``) to pass.
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,}                             # GitHub
    | gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[\w-]{20,}                     # GitLab
    | hf_[A-Za-z0-9]{20,}                                                         # Hugging Face
    | sk-[A-Za-z0-9]{20,} | sk-(?:proj|svcacct|admin|ant|or-v1)-[\w-]{16,}        # OpenAI, Anthropic, OpenRouter
    | [sr]k_(?:live|test)_[A-Za-z0-9]{16,}                                        # Stripe
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])                             # AWS
    | eyJ[\w-]{8,999}\.[\w-]{8,}(?:\.[\w-]*)?                                     # JSON Web Token
    | xox[a-z]-[\w-]{10,} | xapp-[\w-]{10,}                                       # Slack
    | AIza[\w-]{35} | ya29\.[\w-]{16,}                                            # Google
    | nvapi-[\w-]{20,} | wandb_v\d_\w{20,} | r8_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{30,}   # NVIDIA, W&B, Replicate, Groq
    | npm_[A-Za-z0-9]{30,} | pypi-A[\w-]{40,} | SG\.[\w-]{16,64}\.[\w-]{16,}       # npm, PyPI, SendGrid
    )""",
    re.VERBOSE,
)
_BEARER = re.compile(r"""\b(bearer\s+(?=\S{6})|authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',]+""", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
_HOOK = re.compile(r"(hooks\.slack\.com/\w+/|discord(?:app)?\.com/api/webhooks/)\S+")

# In what follows lengths are bounded, for a long argument would else be read in time that grows with its square.

#: user:password@ or token@ of a URL. A password may hold a slash; what looks like a port followed by a path is none.
_USERINFO = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,20}://)(?!git@)(?:[^\s/?#:@]{0,256}:(?!\d{1,5}/)[^\s@]{0,256}@(?:[^\s/?#@]{0,256}@)*|[^\s/?#]{1,256}@)",
    re.IGNORECASE,
)
#: ``name=``, ``name:`` or ``--name `` inside a longer text: a query string, JSON, a list of settings, code, a command line.
_INNER_NAME = re.compile(r"""(?<![\w.-])([\w.-]+)(?:(["']?\s{0,8}(?:%3D|[:=])\s{0,8})|(?<=\w)\s{1,8}(?!-))""")
_INNER_VALUE = re.compile(r""""[^"]*"|'[^']*'|[^\s,;&"'{}\[\]()]+""")
_NEXT_VALUE = re.compile(r""""[^"]*"|'[^']*'|\S+""")
_PAIR_NAME = re.compile(r"[\w./@\[\]+~-]*\w\s*")
_BARE_OPTION = re.compile(r"-[\w.-]+")
_OPTION = re.compile(r"--[A-Za-z]|-[A-Za-z]\Z|--\Z")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of ENVIRONMENT that are set, sorted by name; a value that looks like a key is masked all the same."""
    return {name: mask_text(environ[name]) for name in sorted(ENVIRONMENT) if name in environ}


def mask_argv(argv: list[str]) -> list[str]:
    """A command line with MASK in place of what looks like a key. As long as ``argv``; masking it again changes nothing.

    After an option with a secret name (``--token``) the next argument is masked, after a plural one (``--api-keys``) all up to the next
    option, whatever they look like.
    """
    masked: list[str] = []
    hide, hide_more = False, False
    for argument in argv:
        if hide and not _is_option(argument):
            masked.append(MASK)
            hide = hide_more
            continue
        masked.append(_mask_argument(argument))
        hide = bool(_BARE_OPTION.fullmatch(argument)) and is_secret_name(argument)
        hide_more = argument.endswith("s") and not argument.endswith("pass")
    return masked


def mask_text(text: str) -> str:
    """Any text with MASK in place of known tokens, passwords in URLs, and values that follow a secret name."""
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    text = _HOOK.sub(rf"\1{MASK}", text)
    text = _PRIVATE_KEY.sub(rf"\1{MASK}\2", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _mask_pairs(text)
    return _SHAPES.sub(MASK, text)


def is_secret_name(name: str) -> bool:
    """Whether a value of this name (``--api-key``, ``WANDB_API_KEY``, ``auth.token``, ``awsSecretKey``) is to be masked."""
    words = [word.lower() for word in _WORD.findall(name.rstrip("0123456789"))]
    if not words or words[0] in _NEGATION:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if _SECRET.intersection(words) and last not in _ABOUT:
        return True
    if last in ("key", "keys"):
        return before in _KEY_OF or words == ["key"]
    if last in ("token", "jwt"):
        return not _TOKEN_OF_TEXT.intersection(words)
    if last == "tokens":
        return before in _KEY_OF
    if last == "pass":
        return before in _PASS_OF or words == ["pass"]
    if last == "pwd":
        return not name.endswith("PWD") or before in _PASS_OF
    return words == ["auth"] or words[-3:] == ["access", "key", "id"] or words[-2:] in (["basic", "auth"], ["connection", "string"])


def _mask_argument(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if value and _PAIR_NAME.fullmatch(name) and _is_secret_in_pair(name):
        return f"{name}{equals}{MASK}"
    return mask_text(argument)


def _mask_pairs(text: str) -> str:
    done, at = [], 0
    while found := _INNER_NAME.search(text, at):
        done.append(text[at : found.end()])
        at = found.end()
        name, in_pair = found[1], found[2] is not None
        secret = _is_secret_in_pair(name) if in_pair else name.startswith("-") and is_secret_name(name)
        value = (_INNER_VALUE if in_pair else _NEXT_VALUE).match(text, at) if secret else None
        if value:
            quote = value[0][0] if value[0][0] in "\"'" else ""
            done.append(f"{quote}{MASK}{quote}")
            at = value.end()
    return "".join(done) + text[at:]


def _is_secret_in_pair(name: str) -> bool:
    """Signatures are secret in a query string (``sig=``, ``X-Amz-Signature=``), not as an option (``--signature serving``)."""
    words = _WORD.findall(name)
    return is_secret_name(name) or (bool(words) and words[-1].lower() in ("sig", "signature"))


def _is_option(argument: str) -> bool:
    return bool(_OPTION.match(argument))
