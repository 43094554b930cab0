"""Options that people know by another name, from other tools or from PyTorch."""

from collections.abc import Iterable

#: What is typed -> what is meant, in the order in which a command is asked for it.
_MEANINGS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--num-workers", "--num_workers", "--workers", "-w", "-j", "--jobs"): (
        "--workers",
        "--max-workers",
        "--set num_workers=N",
        "--processes",
    ),
    ("--prefetch-factor", "--prefetch_factor", "--prefetch"): (
        "--prefetch",
        "--set prefetch_factor=N",
    ),
    ("--persistent-workers", "--persistent_workers", "--persistent"): (
        "--persistent",
        "--set persistent_workers=true",
    ),
    ("--pin-memory", "--pin_memory"): ("--set pin_memory=true",),
    (
        "--out",
        "--outdir",
        "--out-dir",
        "--output-dir",
        "--output_dir",
        "--dest",
        "--save",
        "--to",
    ): ("--output",),
    ("--verbose", "-v", "--all", "--long", "--details", "--detailed"): ("--full",),
    ("--silent", "-s", "--no-output"): ("--quiet",),
    ("--overwrite", "--yes", "-y", "--replace"): ("--force",),
    ("--limits", "--limit", "--thresholds", "--gate", "--config"): ("--budget",),
    ("--threshold", "--tolerance", "--noise", "--min-diff"): ("--min-change", "--margin"),
    ("--gpus", "--gpu", "--n-gpus", "--devices", "--nproc", "--nproc-per-node", "--world-size"): (
        "--ranks",
    ),
    ("--cpus", "--cpu", "--num-cpus"): ("--cores", "--processes"),
    ("--mem", "--ram", "--max-memory"): ("--memory",),
    ("--batch", "--bs", "-b", "--batch_size", "--batchsize"): (
        "--batch-size",
        "--set batch_size=N",
    ),
    ("--dataset", "--data-dir", "--data_dir", "--images", "--folder", "--root"): ("--data",),
    ("--transform", "--augment"): ("--transforms",),
    ("--repeats", "--repeat", "--runs", "--trials", "-n"): ("--pairs", "--rounds", "--seeds"),
    ("--duration", "--time", "--iterations", "--iters", "--max-steps"): ("--steps",),
    ("--fast", "--short"): ("--quick",),
    ("--change", "--override", "--param", "--with"): ("--set",),
    ("--format-json", "--as-json", "--output-json"): ("--json",),
    ("--md",): ("--markdown", "--format markdown"),
    ("--markdown",): ("--format markdown",),
    ("--text", "--txt"): ("--format text",),
    ("--profiler", "--kineto", "--trace"): ("--torch-profiler",),
}


def meant(option: str, known: Iterable[str]) -> str:
    """Return what an unknown option means here, with its value if that is fixed; "": not known.

    Args:
        option: as it was typed, e.g. "--num-workers".
        known: the options of the command.
    """
    flags = set(known)
    return next(
        (
            meaning
            for names, meanings in _MEANINGS.items()
            if option in names
            for meaning in meanings
            if meaning.split()[0] in flags
        ),
        "",
    )
