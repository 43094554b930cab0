"""A constant that a comment or a docstring names is there, under that name."""

import ast
import re
from collections.abc import Iterator

from docs.pages import ROOT
from docs.test_named_files import FOLDERS, told

CAPITALS = re.compile(r"(?<![\w$])[A-Z_]*[A-Z][A-Z0-9_]+\b")
#: Names of others that the product's code does not mention, and words that are no constants.
OF_OTHERS = re.compile(
    r"CLOCK_\w+|FUTEX_\w+|PR_SET_\w+|AT_FDCWD|RENAME_EXCHANGE|EX_OSERR"  # C and Linux
    r"|MAKE_PROCESS_CPUCLOCK|CPUCLOCK_SCHED|CONFIG_PROC_CHILDREN"
    r"|LD_PRELOAD|NCCL_DEBUG_SUBSYS|CUDA_DEVICE_ORDER|PCI_BUS_ID|HUB_TOKEN"  # environment
    r"|FEEDLINE_(ARM|CHECKPOINT)"  # put together from a prefix
    r"|NVML_\w+|CUPTI_\w+|ENUM_\w+|TRACE_PROCESS_EVENT_CUDABACKTRACE"  # NVIDIA's headers
    r"|_DEFAULT_FIRST_BUCKET_BYTES|MDB_NORDAHEAD"  # torch, LMDB
    r"|SLURM_"  # begins variables
    r"|MB|GPU|END|WAL|FSDP2|A100"  # units, products and formats, where a module has _MB and the like
    r"|SMOOTH"  # Pillow's, from which the product's _SMOOTH is
)


def words_of(module: ast.Module) -> Iterator[str]:
    """Names in the code of a module, and words of its texts but for docstrings."""
    for node in ast.walk(module):
        for field in ("id", "attr", "name", "arg"):
            if isinstance(word := getattr(node, field, None), str):
                yield word
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value) if "\n" not in node.value else ()


def test_constants_that_comments_and_docstrings_name_are_there():
    sources = {
        path: path.read_text()
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    words = {path: set(words_of(ast.parse(source))) for path, source in sources.items()}
    everywhere = set().union(*words.values())
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, source in sources.items()
        for text in told(source)
        for name in CAPITALS.findall(text)
        if not OF_OTHERS.fullmatch(name)
        and (
            name not in words[path]
            if f"_{name}" in words[path]
            else "_" in name and name not in everywhere
        )
    ]
    assert not missing
