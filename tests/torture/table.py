"""Every odd program, with the environments that it runs in.

Programs that are not named here run once, as they are.
"""

import signal

from torture.case import PROGRAMS, Case
from torture.places import LIMITS, STARTS

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
EXITS = {  # how ends/exits.py ends -> exit code
    "text": 1,
    "none": 0,
    "true": 1,
    "300": 44,
    "-1": 255,
    "big": 255,
    "tuple": 1,
    "float": 1,
    "falsy": 7,
    "odd text": 1,
    "quit": 12,
    "notes": 1,
    "group": 1,
    "causes": 1,
    "circular": 1,
    "base": 1,
    "odd": 1,
    "generator exit": 1,
    "interrupt": -signal.SIGINT,
    "recursion": 1,
    "memory": 1,
    "stop": 1,
    "os error": 1,
    "unicode": 1,
    "class": 1,
    "thread": 0,
    "hook": 1,
    "unraisable": 0,
    "nested": 3,
    "syntax": 1,
    "assert": 1,
    "exit in del": 11,
    "import": 1,
}

ENDS = [
    *(
        Case("ends/exits.py", how, (how,), exit=code, cold=True)
        for how, code in EXITS.items()
        if how != "recursion"
    ),
    Case(
        "ends/exits.py",
        "recursion",
        ("recursion",),
        exit=1,
        cold=True,
        varies=r"repeated \d+ more times",
    ),  # feedline has frames too
    Case("ends/at_exit.py", cold=True),
    Case("ends/threads_left.py", cold=True),
    Case("ends/broken_imports.py", exit=44),
    Case("ends/bad_arguments.py", args=("--epochs", "x"), exit=2, quick=True),
    Case("ends/tests_itself.py", exit=1, varies=r"[\d.]+s$", cold=True),
    Case("ends/documents_itself.py", exit=1, cold=True),
    Case("ends/output_at_the_end.py", cold=True),
]

SIGNALS = [
    Case("signals/interrupted.py", exit=-signal.SIGINT, cold=True),
    Case("signals/interrupted_in_forward.py", cold=True),
    Case("signals/terminated.py", exit=-signal.SIGTERM),
    Case("signals/handles_sigterm.py", exit=85, quick=True),
    Case("signals/crashes.py", exit=-signal.SIGSEGV),
    Case("signals/aborts.py", exit=-signal.SIGABRT),
    Case("signals/killed_by_alarm.py", exit=-signal.SIGALRM),
    Case("signals/out_of_time.py", exit=24, cold=True),
    Case("signals/faulthandler_dumps.py", cold=True),
]

FORKS = [
    *(Case("forks/processes.py", method, (method,)) for method in ("fork", "spawn", "forkserver")),
    *(Case("forks/executors.py", method, (method,)) for method in ("fork", "spawn")),
    Case("forks/child_ends.py", cold=True),
    Case("forks/child_trains_on.py", quick=True),
    Case("forks/handlers.py", cold=True),
    Case("forks/exits_at_once.py", exit=3),
    Case("forks/replaced.py", cold=True),
]

TRACERS = [
    Case("tracers/debugger.py", stdin="continue\nnext\ncontinue\ncontinue\ncontinue\nquit\n" * 4),
    Case("tracers/monitoring.py", python=(3, 12)),
    Case("tracers/looks_around.py", cold=True),
    Case("tracers/settrace.py", quick=True),
]

MODES = [
    Case("modes/dispatch_mode.py", quick=True),
    Case("modes/two_ranks.py", launcher=TORCHRUN),
    Case("modes/rank_that_fails.py", launcher=TORCHRUN, exit=1, stderr=False),
    Case("modes/lightning_trainer.py", needs=("pytorch_lightning",), cold=True),
    Case("modes/accelerated.py", needs=("accelerate",), cold=True),
    Case("modes/timm_step.py", needs=("timm",), cold=True),
    Case("modes/transformers_trainer.py", needs=("transformers",), cold=True),
    Case("modes/compiled_eager.py", cold=True),
    Case("modes/compiled_inductor.py", cold=True),
]

LOADERS = [
    *(
        Case("loaders/held_functions.py", method, (method,), quick=method == "spawn")
        for method in ("fork", "spawn", "forkserver")
    ),
    *(Case("loaders/start_methods.py", method, (method,)) for method in ("spawn", "forkserver")),
    Case("loaders/saves_held_functions.py", needs=("cloudpickle",), quick=True),
    Case("loaders/worker_traceback.py", exit=1, cold=True),
    # Iterators of lost workers die whenever they are collected, and complain; a lost worker's last
    # batch may complain too.
    Case("loaders/worker_raises.py", stderr=False),
    Case("loaders/worker_killed.py", stderr=False),
    Case("loaders/stateful.py", needs=("torchdata",)),
]

TRAINING = [
    Case(
        "training/anomaly.py", stderr=False
    ),  # it prints the stack from the program's start, which feedline is a part of
    Case("training/steps_in_backward.py", quick=True),
    Case("training/steps_in_forward.py", quick=True),
]

PROCESS = [
    *(
        Case("process/does_not_train.py", label, args, cold=True)
        for label, args in (("without torch", ()), ("with torch", ("torch",)))
    ),
    Case("process/closes_ranges.py", cold=True),
    Case("process/closes_and_opens.py", cold=True),
    Case("process/reuses_descriptors.py", cold=True),
    Case("process/removes_its_folder.py", cold=True),
    Case("process/changes_root.py", cold=True),
    Case("process/collects_garbage.py", cold=True),
    Case("process/lifetimes.py", cold=True),
    Case("process/import_hooks.py", cold=True),
    Case("process/forgets_modules.py", cold=True),
    Case("process/clears.py", cold=True),
    Case("process/logs.py", cold=True),
    Case("process/warns.py", cold=True),
    Case("process/mute.py", cold=True),
    Case("process/removes_run_folder.py", recorded=False),
]

STARTUP = [
    *STARTS,
    Case("startup/runs_others.py", exit=21, quick=True),
    Case("startup/reads_stdin.py", stdin="two\nline 1\nline 2\n"),
]


def all_cases() -> list[Case]:
    """The cases above and those of every other program, theme by theme."""
    named = [
        *ENDS,
        *FORKS,
        *LIMITS,
        *LOADERS,
        *MODES,
        *PROCESS,
        *SIGNALS,
        *STARTUP,
        *TRACERS,
        *TRAINING,
    ]
    known = {case.program for case in named}
    found = sorted(
        path.relative_to(PROGRAMS).as_posix()
        for path in PROGRAMS.glob("*/*")
        if path.suffix == ".py"
    )
    cases = sorted(
        [*named, *(Case(program) for program in found if program not in known)],
        key=lambda case: case.name,
    )
    return cases


CASES = all_cases()
