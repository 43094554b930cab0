"""Every way to start a training that is tried. docs/ways-to-start.md shows what became of each."""

from ways.way import Way, command, script

ONE, GROUP = {"one": 1}, {"group": 2}
TWO, JOBS, FORKED, IN_TURN = (
    {"a": 1, "b": 1},
    {"job0": 1, "job1": 1},
    {"child": 1, "parent": 1},
    {"first": 1, "second": 1},
)
TORCHRUN = "torchrun --standalone --nproc-per-node 2"
ACCELERATE = (
    "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision "
    "no --dynamo_backend no"
)

WAYS = [
    script("torch.multiprocessing.spawn", "spawns_ranks.py", GROUP),
    script("mp.Process by fork", "processes.py fork", TWO, quick=True, warm=True),
    script("mp.Process by spawn", "processes.py spawn", TWO),
    script("mp.Process by forkserver", "processes.py forkserver", TWO),
    script("processes that share a model", "shared_model.py", TWO, warm=True, repeats=False),
    script("os.fork", "forks.py", FORKED, quick=True, warm=True),
    script("multiprocessing.Pool", "pools.py pool", JOBS, quick=True, warm=True, kills=True),
    script("ProcessPoolExecutor", "pools.py futures", JOBS, warm=True),
    script("joblib (loky)", "loky.py", JOBS, "joblib"),
    script("subprocess", "runs_scripts.py", IN_TURN),
    script("os.execv", "becomes.py", {"before": 1, "after": 1}),
    script("os._exit", "exits.py", ONE, quick=True, warm=True),
    script("torch.distributed.run in a script", "runs_torchrun.py", GROUP),
    command("torchrun, outside", f"{TORCHRUN} ddp.py", GROUP),
    Way("torchrun, inside", f"{TORCHRUN} -m feedline run ddp.py", f"{TORCHRUN} ddp.py", GROUP),
    Way(
        "torchrun, inside as a command",
        f"{TORCHRUN} --no-python feedline run ddp.py",
        f"{TORCHRUN} ddp.py",
        GROUP,
    ),
    command("bash", "bash launch.sh", IN_TURN),
    Way("FEEDLINE=1", "FEEDLINE=1 python train.py", "python train.py", ONE),
    Way(
        "FEEDLINE=1 before a launcher", f"FEEDLINE=1 {TORCHRUN} ddp.py", f"{TORCHRUN} ddp.py", GROUP
    ),
    command("srun (its variables), outside", "bash slurm.sh python slurm.py", GROUP),
    Way(
        "srun (its variables), inside",
        "bash slurm.sh feedline run slurm.py",
        "bash slurm.sh python slurm.py",
        GROUP,
    ),
    script("Lightning, ddp_spawn", "lightning_two.py ddp_spawn", GROUP, "pytorch_lightning"),
    script("Lightning, ddp", "lightning_two.py ddp", GROUP, "pytorch_lightning"),
    command("accelerate launch", f"{ACCELERATE} accelerated.py", GROUP, "accelerate"),
    script("accelerate.debug_launcher", "debug_launcher.py", GROUP, "accelerate"),
    Way(
        "deepspeed",
        "DS_ACCELERATOR=cpu feedline run -- deepspeed --num_accelerators 2 ddp.py",
        "DS_ACCELERATOR=cpu deepspeed --num_accelerators 2 ddp.py",
        GROUP,
        ("deepspeed",),
    ),
    script(
        "hydra --multirun", "sweeps.py --multirun steps=6,9", {"steps6": 1, "steps9": 1}, "hydra"
    ),
    command(
        "jupyter nbconvert --execute",
        "jupyter nbconvert --to notebook --execute --stdout notebook.ipynb",
        ONE,
        "nbconvert",
        "ipykernel",
    ),
    script("nbclient", "executes_notebook.py", ONE, "nbclient", "ipykernel"),
    script("Ray", "on_ray.py", JOBS, "ray", kills=True),
    script("Dask", "on_dask.py", JOBS, "distributed"),
]
