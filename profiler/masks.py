"""Masks texts and paths before they are written.

Tokens, hosts, users and folders are replaced by MASK. This is the net for what feedline itself
says: why a hook could not be attached, which file could not be read. What the program was given
(its arguments, its environment) is held to a stricter rule in record/privacy.py.

Plainly harmless are numbers, and names made of words common in trainings; passwords and tokens are
not: ``resnet50``, ``AdamW``, ``vit_base_patch16_224``, ``0.9,0.999``, ``{'lr': 1e-3}``,
``max_split_size_mb:128`` are; ``bob``, ``hunter2``, ``a1B2c3D4`` and ``2024-01-15`` are not. A word
that is missing here costs a person ``***`` in a report; one that is here by mistake may cost a
secret: no names of people or places, no words of everyday language that people make passwords of.
"""

import os
import re
from functools import lru_cache
from pathlib import Path
from types import TracebackType

MASK = "***"
PYTHON, FEEDLINE = "python", "feedline"  # as libraries

#: Tokens known by their prefix alone: GitHub, GitLab, AWS, Slack, SendGrid and JWT as in
#: detect-secrets 1.5, the others as seen in use. Lengths are lower bounds on purpose, and still
#: long enough for ordinary names (``sk-learn``, ``global-batch``) to pass.
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
_PRIVATE_KEY = re.compile(r"""(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^"']*?(-----END|(?=["'])|\Z)""")
_BEARER = re.compile(
    r"""\b(bearer\s+(?=\S{6})|authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',]+""",
    re.IGNORECASE,
)
# its host and folders may be private too
_URL = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{0,20}://)[^\s'\"<>]+", re.IGNORECASE)
_PAIR = re.compile(
    r"""((?:pass(?:word|wd|phrase)?|pwd|secret|token|key|sig(?:nature)?|credentials?|auth|login|user(?:name)?)s?["']?\s{0,8}(?:=|:|%3D)\s{0,8}["']?)"""
    r"""[^\s"',;&}]+""",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"""(?<=['"])/[^'"\\\n]+(?=['"])|(?<![\w~.*/%-])(?!//\*{3})/+[^\s'":,;()<>|\\]+"""
)
_QUOTED = re.compile(r"""'([^'\n]{1,300})'|"([^"\n]{1,300})\"""")

_SYSTEM = ("/proc/", "/sys/", "/dev/")
#: Below it, groups are named after users, services, hosts and repositories; their files are not.
_GROUPS = "/sys/fs/cgroup/"
_GROUP_FILE = re.compile(r"(cgroup|cpu|cpuacct|io|memory)\.(?!slice|scope|service)[a-z_.]+")
_LIBRARY = re.compile(r".*?/((?:site|dist)-packages/.*|python3\.\d+/.*)")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(\w+)")
_ENDING = re.compile(r"(?:\.[a-z][a-z0-9]{0,10}){1,2}\Z", re.IGNORECASE)


def text(said: str) -> str:
    """Return a text with MASK in place of what may be private.

    That is known tokens, URLs except their scheme, values of secret names, and folders (as in
    ``path``).
    """
    said = _PRIVATE_KEY.sub(rf"\1{MASK}\2", said)
    said = _URL.sub(rf"\1{MASK}", said)
    said = _BEARER.sub(rf"\1{MASK}", said)
    said = _PAIR.sub(rf"\1{MASK}", said)
    said = _SHAPES.sub(MASK, said)
    for folder in filter(None, (_here(), _home())):  # also where blanks are in it
        said = re.sub(
            rf"{re.escape(folder)}/[^\s'\":,;()<>|\\]*", lambda match: path(match[0]), said
        )
    return _PATH.sub(lambda match: path(match[0]), said)


def token(text: str) -> str:
    """Return a text with MASK in place of known tokens only."""
    return _SHAPES.sub(MASK, text)


def file_name(path: str) -> str:
    """Return the last part of a path or an address, without an address's query: it may be signed."""
    if "://" in path:
        path = re.split("[?#]", path, maxsplit=1)[0]
    return path.rstrip("/").rsplit("/", 1)[-1]


def path(name: str | Path) -> str:
    """Return a path without the folders that identify a machine or user.

    Below the working directory it is relative to it; of one in an installed library, what is below
    ``site-packages``; ``/proc``, ``/sys`` and ``/dev`` stay, but for names of control groups. Of any other the last part stays where
    its words are plainly harmless, or else its ending: ``***/imagenet``, ``***.pt``, ``~`` in place
    of a home folder. Parts that look like a user or a token become MASK.
    """
    full = os.path.normpath(os.path.expanduser(str(name)))
    if not os.path.isabs(full) and not full.startswith(("..", "~")):
        return _parts(full)
    if full.startswith(_GROUPS):
        last = os.path.basename(full)
        return f"{_GROUPS}{MASK}/{last}" if _GROUP_FILE.fullmatch(last) else f"{_GROUPS}{MASK}"
    if full == "/" or f"{full}/".startswith(_SYSTEM):
        return full
    if library := _LIBRARY.match(full):
        return library[1]
    here, home = _here(), _home()
    if here and _is_below(full, here):
        return _parts(os.path.relpath(full, here))
    if home and full == home:
        return "~"
    start = "~/" if home and _is_below(full, home) else ""
    last = os.path.basename(full)
    return f"{start}{MASK}/{last}" if is_plain(last) else f"{start}{MASK}{ending(last)}"


def source(file: str) -> str:
    """Mask a file of Python code, as ``path``, but keep its own name.

    It is kept as below the working directory. Names of functions stay, too, and a line to change is
    of no use without its file.
    """
    shown, last = path(file), os.path.basename(file)
    stem, is_code = os.path.splitext(last)
    masked = os.path.basename(shown).startswith(MASK)
    if (
        not masked
        or is_code != ".py"
        or not (stem.isidentifier() and is_name(stem))
        or stem in _users()
        or token(last) != last
    ):
        return shown
    return f"{'~/' if shown.startswith('~/') else ''}{MASK}/{last}"


def place(run: Path) -> str:
    """Return where a run folder is, so that its owner recognises it.

    It is relative to the working directory, or has ``~`` for a home folder.
    """
    full, here, home = os.path.abspath(run), _here(), _home()
    if here and _is_below(full, here):
        return os.path.relpath(full, here)
    if home and _is_below(full, home):
        return "~/" + os.path.relpath(full, home)
    return f"{MASK}/{os.path.basename(full)}"


def ending(name: str) -> str:
    """Return the known extension of a file name, such as ``.yaml`` or ``.tar.gz``; else empty."""
    match = _ENDING.search(name)
    return (
        match[0] if match and all(is_plain(part) for part in match[0].strip(".").split(".")) else ""
    )


def error(raised: BaseException) -> str:
    """Return an exception as text.

    If the program's own code raised it, it is only its type, because its message can contain
    anything. In the others what stands in quotes stays where it looks like a name (``has no
    attribute 'fetch'``).
    """
    kind = type(raised).__name__
    if isinstance(raised, OSError) and raised.strerror:
        return f"{kind}: {raised.strerror}" + (
            f": {path(os.fsdecode(raised.filename))}"
            if isinstance(raised.filename, (str, bytes))
            else ""
        )
    if _is_of_the_program(raised.__traceback__):
        return f"{kind} (raised in the program's own code)"
    message = str(raised)
    return f"{kind}: {text(_QUOTED.sub(_quoted, message))}" if message else kind


def _quoted(match: re.Match[str]) -> str:
    inside = match[1] or match[2]
    kept = inside if is_plain(inside) or is_name(inside) or inside.startswith("/") else MASK
    return f"{match[0][0]}{kept}{match[0][0]}"


def library(file: str) -> str:
    """Return the installed library that a source file belongs to, such as ``torch``.

    It may be PYTHON or FEEDLINE, and is empty for the program's own files.
    """
    if file.startswith(_OURS):
        return FEEDLINE
    if match := _PACKAGE.match(file):
        return match[1]
    return PYTHON if file.startswith("<frozen") or _LIBRARY.match(file) else ""


def place_in_feedline(file: str) -> str:
    """Return where a source file of feedline is below its root, as it would be installed.

    Empty for other files.
    """
    if not file.startswith(_OURS):
        return ""
    root = max((root for root in _ROOTS if file.startswith(f"{root}/")), key=len)
    below = file[len(root) + 1 :]
    return below.removeprefix("feedline/")


def _is_of_the_program(trace: TracebackType | None) -> bool:
    """Return whether a frame of it is in no installed library, nor in feedline."""
    while trace is not None:
        if not library(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False


def _parts(relative: str) -> str:
    """Return a relative path with its parts that look like a user or a token masked."""
    users = _users()
    shown = []
    for part in relative.split("/"):
        harmless = is_name(part.strip(".")) or is_plain(part)
        shown.append(part if harmless and part not in users else MASK + ending(part))
    return "/".join(shown)


def _is_below(full: str, folder: str) -> bool:
    return full == folder or full.startswith(folder + "/")


def _here() -> str | None:
    """Return the working directory.

    None: names below it say more than it hides. It is the root, or a folder that home folders lie
    in.
    """
    try:
        here = os.getcwd()
    except OSError:
        return None
    home = _home()
    return None if here == "/" or home is not None and home.startswith(here + "/") else here


def _home() -> str | None:
    home = os.path.expanduser("~")
    return os.path.normpath(home) if os.path.isabs(home) and home != "/" else None


def _users() -> set[str]:
    home = _home()
    return {
        name
        for name in (
            os.environ.get("USER"),
            os.environ.get("LOGNAME"),
            home and os.path.basename(home),
        )
        if name
    }


_FEEDLINE_FOLDERS = ("profiler", "feedline", "analysis", "pipelines", "convergence", "cli")
#: As imported, and where links lead: Python names a source file by the path that it was found
#: under.
_ROOTS = {str(path.parent.parent) for path in (Path(__file__), Path(__file__).resolve())}
_OURS = tuple(f"{root}/{part}/" for root in _ROOTS for part in _FEEDLINE_FOLDERS)


_WORD_LIST = """
    true false none null yes no on off auto all any default disabled enabled disable enable min max mean sum avg avgpool pool global local
    train trainer training val valid validate validation test testing eval evaluate evaluation fit predict infer inference export finetune
    pretrain pretrained scratch resume main run runs out output outputs log logs logger logging tmp save saved load ckpt ckpts checkpoint
    checkpoints best last latest first epoch epochs step steps iter iters iterations batch batches bs size sizes micro accum accumulation
    grad gradient gradients clip norm norms freq interval every warmup ratio rate scale scaler scaling factor init initial final start stop
    seed deterministic benchmark rank world node nodes nproc per num number workers worker prefetch persistent pin memory shuffle drop split
    subset fold length len seq sequence ctx context block token tokens tokenizer vocab hidden dim dims depth width height head heads layer
    layers embed embedding embeddings attention attn mlp conv convs kernel stride padding channels channel filters features feature
    dropout drop path stochastic residual bias activation act relu gelu silu swish mish tanh sigmoid softmax leaky elu selu glu swiglu
    model models net network backbone encoder decoder classifier arch architecture config configs cfg conf conf defaults params param
    optim optimizer optimizers opt scheduler schedule sched loss criterion metric metrics acc accuracy precision recall score top rouge
    bleu perplexity data dataset datasets dataloader dataloaders loader loaders input inputs image images img imgs label labels class
    classes target targets text texts audio video videos src source task tasks name type kind mode device devices gpu gpus cpu cpus cuda
    mps xpu tpu hip rocm xla accelerator strategy plugin plugins callbacks callback root folder dir folders file files

    adam adamw adamax nadam radam adagrad adadelta sgd asgd momentum nesterov rmsprop lamb lars larc lion muon soap shampoo novograd
    adafactor lbfgs sophia adan madgrad lookahead fused foreach paged weight decay wd lr betas beta eps epsilon alpha gamma lambda
    cosine linear poly polynomial constant exponential multistep steplr multisteplr cosineannealinglr onecycle onecyclelr plateau
    annealing cycle cyclic tanh restarts inverse sqrt noam

    fp float half double bf bfloat int uint bool tf tf32 fp16 bf16 mixed amp native apex nvfp nf complex long short o0 o1 o2 o3
    nccl gloo mpi ucc ddp fsdp fsdp1 fsdp2 dp tp pp zero deepspeed horovod ps shard full offload sharded hybrid grad pipeline tensor
    parallel distributed torchrun elastic single multi spawn fork forkserver sync async
    inductor eager aot aotautograd dynamo onnx tensorrt cudagraphs graph graphs breaks break recompiles guards reduce overhead autotune
    compile channels last contiguous format memory

    resnet resnext wide resnetv vgg alexnet inception googlenet densenet mobilenet mobilenetv shufflenet squeezenet mnasnet efficientnet
    efficientnetv efficientformer regnet regnetx regnety convnext convnextv nfnet rexnet ghostnet hrnet darknet dla dpn senet seresnet
    seresnext skresnet ecaresnet xception vit deit deit3 beit beitv swin swinv swint maxvit maxxvit coatnet cait crossvit levit mixer
    mlpmixer gmlp poolformer metaformer pvt xcit eva eva02 dino dinov mae clip siglip openclip coca blip flamingo sam lenet unet vnet
    deeplab deeplabv fcn lraspp yolo yolov yolox fasterrcnn maskrcnn retinanet keypointrcnn ssd ssdlite detr rcnn fpn fcos mask faster
    tiny nano micro small medium base large huge giant xlarge xxl xl xs pico atto femto mini lite slim distilled distill patch window
    tf timm torchvision torch hub hf transformers lightning hydra keras jax flax
    bert roberta albert electra deberta distilbert distilgpt xlnet bart mbart pegasus longformer bigbird gpt gpt2 gptj neox opt bloom llama
    tinyllama mistral mixtral gemma qwen phi falcon mpt pythia olmo mamba rwkv whisper wav wav2vec2 hubert conformer tacotron lstm gru
    rnn transformer moe lora qlora adapter cased uncased instruct chat multilingual causal lm mlm seq2seq classification regression
    detection segmentation diffusion ddpm ddim stable vae gan dcgan stylegan cyclegan pix2pix bottleneck basic nerf

    imagenet imagenet1k imagenet21k imagenet2012 imagenette imagewoof tinyimagenet ilsvrc ilsvrc2012 cifar cifar10 cifar100 mnist
    fashionmnist fashion kmnist emnist svhn stl coco coco2014 coco2017 voc voc2007 voc2012 pascal cityscapes ade ade20k kinetics
    ucf laion openimages inat inaturalist celeba celebahq ffhq lsun places365 food101 flowers102 pets caltech
    glue superglue mnli mrpc qnli qqp sst cola rte stsb wnli squad wikitext wikitext2 wikitext103 openwebtext shakespeare char c4 pile wmt
    wmt14 wmt16 iwslt bookcorpus librispeech speechcommands librilight commonvoice audioset alpaca dolly raw plain text enwik8 lambada
    in in1k in21k in22k in12k ft res mf gf rsb ra ra2 ra3 ra4 bt goog fb augreg sw a1 a2 a3 b0 b1 b2 b3 b4 b5 b6 b7 v1 v2 v3
    imagefolder folder webdataset wds lmdb tar tfrecord tfrecords hdf5 arrow parquet csv json jsonl yaml yml toml npy npz txt md pt pth
    safetensors bin jpg jpeg png webp py

    mixup cutmix randaugment rand augment autoaugment trivialaugment augmix ra aa ta m mstd inc random erasing re prob hflip vflip flip
    crop center resize resized color jitter hue saturation brightness contrast normalize bilinear bicubic nearest lanczos antialias
    interpolation area reflect constant same smooth smoothing ema swa teacher student k topk group gn ln bn in rmsnorm batchnorm layernorm
    groupnorm syncbn rsqrt xavier kaiming orthogonal normal uniform truncated trunc pixel wandb tensorboard tb mlflow comet neptune
    console debug info warning warn error critical quiet verbose silent help offline online dryrun dry

    localhost eth ib ib0 ib1 ib2 ib3 lo docker bond eno ens enp mlx roce ring tree collnet nvls simple ll ll128 sys
    pix pxb phb nvl socket plugin
    expandable segments split mb roundup power garbage collection threshold backend cudamallocasync native pinned use background
    granularity fine core cores thread threads socket sockets compact scatter balanced explicit close spread master primary active passive
    static dynamic guided monotonic nonmonotonic pci bus id fastest lazy eager detail malloc pymalloc group version level
    env file forever nofile gb gib mib kib

    cross entropy mse mae huber bce logits focal contrastive triplet weights pretraining google facebook microsoft openai meta nvidia
    stabilityai eleutherai mistralai huggingface laion openclip tiiuae codellama starcoder causallm lit
    gz zip zst xz sqlite trace traces html ipynb sh so exp exps experiment experiments results
"""
WORDS = frozenset(_WORD_LIST.split())

#: Whole numbers of up to 12 digits, and floats, with a unit.
_NUMBER = re.compile(
    r"[+-]?(?=.{1,20}\Z)(?:[0-9]{1,12}(?:\.[0-9]{0,17})?|\.[0-9]{1,17})(?:e[+-]?[0-9]{1,3})?(?:%|ms|[kmgt]i?b?|[smhdx])?"
    r"|[0-9]{1,5}[-x][0-9]{1,5}",
    re.IGNORECASE,
)
_SHORT = re.compile(r"[a-z][0-9]?|[0-9][a-z]")  # l2, t5, 7b
_SEPARATORS = re.compile(r"""[\s,;:=|()\[\]{}'"]+""")  # few of those that people put into passwords
_WORD_PARTS = re.compile(r"[-_./@]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LONGEST = 400

#: What looks like a name that a programmer gave, of an option, a key, a folder: ``max_steps``,
#: ``--fp16-opt-level``, ``ILSVRC2012``. One case in each part, or camel case, and few digits at its
#: ends.
_NAME = re.compile(
    r"\d{0,4}[a-z]{1,24}\d{0,4}[a-z]{0,4}|(?:[A-Z]?[a-z]{2,16}){1,5}(?:\d{0,4}|\d{1,2}[a-z]{1,2})|\d{0,4}[A-Z]{1,24}\d{0,4}|\d{1,8}"
)


@lru_cache(1024)
def is_plain(value: str) -> bool:
    """Return whether a value is plainly harmless; lists, tuples and dicts if all their values are."""
    return (
        len(value) <= _LONGEST
        and value.isascii()
        and all(_is_plain_atom(atom) for atom in _SEPARATORS.split(value))
    )


def is_name(text: str) -> bool:
    """Return whether a text looks like a name in code, not like a token."""
    return 0 < len(text) <= 80 and all(
        _NAME.fullmatch(part) for part in _WORD_PARTS.split(text) if part
    )


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    ``--hubToken`` and ``HUB_TOKEN`` are hub and token.
    """
    return [word.lower() for word in _CAMEL.findall(name) if not word.isdigit()]


def _is_plain_atom(atom: str) -> bool:
    """Return whether it is a number, or known words make up half of its letters and digits.

    A UUID may have a word of two letters too.
    """
    atom = atom.removeprefix("~/").removeprefix("***/")  # masked before
    if _NUMBER.fullmatch(atom) or _SHORT.fullmatch(atom) or atom in ("127.0.0.1", "0.0.0.0"):
        return True
    parts = [part for part in _WORD_PARTS.split(atom.lstrip("+^~")) if part not in ("", "***")]
    known = [_known(part) for part in parts]
    return None not in known and 2 * sum(filter(None, known)) >= sum(map(len, parts))


def _known(part: str) -> int | None:
    """Return how many letters of a part are in known words.

    None: it is not made of these, of single letters and of short numbers.
    """
    if part.lower() in WORDS:
        return len(part)
    if part.isdigit() and len(part) <= 5:
        return 0
    pieces = re.findall("[A-Za-z]+|[0-9]+", part)
    if "".join(pieces) != part or not all(_is_plain_piece(piece) for piece in pieces):
        return None
    return sum(len(piece) for piece in pieces if piece.isalpha() and len(piece) > 2)


def _is_plain_piece(piece: str) -> bool:
    if piece.isdigit():
        return len(piece) <= 3
    return (
        len(piece) == 1 or piece.lower() in WORDS or all(word in WORDS for word in words_of(piece))
    )
