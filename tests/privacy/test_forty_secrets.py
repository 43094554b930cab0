"""A run whose arguments, environment, paths and errors hold 40 secrets, none of which is in any
file that feedline made of it.
"""

import base64
import gzip
import json
import os
import random
import re
import shutil
import socket
import string
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from privacy.search import contents, leaks
from warm_python import WarmPython

PROGRAMS = Path(__file__).with_name("programs")
FEEDLINE = [sys.executable, "-m", "feedline"]


def token(number: int) -> str:
    """A password or a token: 20 letters and digits of all kinds."""
    chosen = random.Random(number).choices(string.ascii_letters + string.digits, k=17)
    return "".join(["aZ7", *chosen])


#: How the training is told a secret; S is where it stands.
ARGUMENTS = {
    "-p X": ["-p", "S"],
    "-pX": ["-pS"],
    "--pw": ["--pw", "S"],
    "--pat=": ["--pat=S"],
    "--apitoken": ["--apitoken", "S"],
    "--creds": ["--creds", "S"],
    "--login": ["--login", "S"],
    "--tok": ["--tok", "S"],
    "--license": ["--license", "S"],
    "--kaggle-key": ["--kaggle-key", "S"],
    "--mykey": ["--mykey", "S"],
    "--wandb": ["--wandb", "S"],
    "--user": ["--user", "bob:S"],
    "--basic": ["--basic", "bob:S"],
    "--run-name": ["--run-name", "S"],
    "positional": ["S"],
    "JSON": ["--json-config", '{"lr": 0.1, "nested": {"name": "S"}}'],
    "key of JSON": ["--json-config", '{"S": 1}'],
    "key=value": ["model.note=S"],
    "hydra": ["+logger.wandb=[S,resnet50]"],
    "user of a URL": ["--store", "s3://S@bucket/train"],
    "password of a URL": ["--store=https://bob:S@host/train"],
    "query": ["https://host/file?page=2&X-Amz-Signature=S"],
    "header": ["-H", "Authorization: Bearer S"],
    "cookie": ["-H", "Cookie: session=S"],
    "first of many": ["--labels", "S", "resnet50"],
    "last of many": ["--labels", "resnet50", "S"],
    "list": ["--tags", "adam,S,sgd"],
    "assignment": ["WANDB_API_KEY=S"],
    "code": ["--eval", "login('S')"],
    "base64": ["--blob", "S"],
    "folder of a path": ["--out", "/scratch/S/train"],
    "file of a path": ["--weights", "/scratch/train/S.pt"],
    "key file": ["--pem", "-----BEGIN RSA PRIVATE KEY-----\nS\n-----END RSA PRIVATE KEY-----"],
}
PLACE = re.compile(r"(?:(?<=^-p)|(?<![A-Za-z]))S(?![A-Za-z])")
ENVIRONMENT = [
    "WANDB_API_KEY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_NET",
    "NCCL_IB_HCA",
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_USER",
    "HOSTNAME",
]
PLACES = [
    "user",
    "home folder",
    "working directory",
    "data folder",
    "temporary folder",
    "name of a module",
]
ELSEWHERE = [
    *PLACES,
    "raised in a worker",
    "raised in a hook",
    "raised by the training",
    "attribute of the dataset",
]

SECRETS = {
    what: token(number) for number, what in enumerate([*ARGUMENTS, *ENVIRONMENT, *ELSEWHERE])
}
SECRETS["base64"] = base64.b64encode(token(200).encode()).decode()
PINS = {"--pin": "4815162342"}


def test_there_are_at_least_forty_secrets():
    assert len({*SECRETS.values(), *PINS.values()}) >= 40


@dataclass(frozen=True)
class Home:
    """A machine of somebody's.

    Attributes:
        folder: where they work.
        data: of the dataset.
        environment: of their shell.
        warm: for commands whose beginning is not what is tested.
    """

    folder: Path
    data: Path
    environment: dict[str, str]
    warm: WarmPython

    @classmethod
    def make(cls, root: Path, warm: WarmPython) -> "Home":
        home = root / SECRETS["home folder"] / SECRETS["user"]
        folder, data, temporary = (
            home / SECRETS["working directory"],
            root / SECRETS["data folder"] / "train",
            root / SECRETS["temporary folder"],
        )
        for place in (folder, data, temporary):
            place.mkdir(parents=True)
        for program in PROGRAMS.iterdir():
            if program.suffix == ".py":
                shutil.copy(program, folder)
        (folder / f"{SECRETS['name of a module']}.py").write_text("def helper():\n    return 1\n")
        (root / "secrets.json").write_text(json.dumps(SECRETS))
        environment = {
            **os.environ,
            **{name: SECRETS[name] for name in ENVIRONMENT},
            "OMP_NUM_THREADS": "1",
            "SECRETS": str(root / "secrets.json"),
        }
        environment |= {
            "HOME": str(home),
            "USER": SECRETS["user"],
            "LOGNAME": SECRETS["user"],
            "TMPDIR": str(temporary),
        }
        return cls(folder, data, environment, warm)

    def call(self, *command: object) -> str:
        """What a command says, whatever its exit code."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.stdout + done.stderr

    def feedline(self, *command: object) -> str:
        """What a command of feedline's says, whatever its exit code."""
        done = self.warm.run(
            "-m", "feedline", *command, folder=self.folder, environment=self.environment
        )
        return done.stdout + done.stderr

    def others_name(self) -> list[str]:
        """A beginning of a command that gives the machine a secret name, where this is allowed."""
        command = [
            "unshare",
            "--user",
            "--map-root-user",
            "--uts",
            "sh",
            "-c",
            f'hostname {SECRETS["HOSTNAME"]} && exec "$@"',
            "sh",
        ]
        try:
            done = subprocess.run([*command, "hostname"], capture_output=True, text=True)
        except OSError:
            return []
        return command if done.stdout.strip() == SECRETS["HOSTNAME"] else []


def arguments() -> list[str]:
    told: list[str] = []
    for what, words in ARGUMENTS.items():
        told += [PLACE.sub(SECRETS[what], word) for word in words]
    return [*told, "--pin", PINS["--pin"]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Home:
    return Home.make(tmp_path_factory.mktemp("machine"), warm_python)


@pytest.fixture(scope="module")
def recorded(home: Home) -> Path:
    run = home.folder / "run"
    said = home.call(
        *home.others_name(),
        *FEEDLINE,
        "run",
        "-o",
        "run",
        "--torch-profiler",
        "2:3",
        "train.py",
        *arguments(),
        "--data",
        home.data,
        home.data,
    )
    assert (run / "report.html").exists(), said
    assert (
        SECRETS["raised by the training"] in said
        and "RuntimeError" in said
        and "ValueError" in said
    ), said
    for place in ("other.html", "other.json", "other.trace.json", "trace.json.gz"):
        home.feedline("report", "run", "-f", "-o", run / place)
        assert (run / place).stat().st_size > 1000
    (run / "terminal.txt").write_text(home.feedline("report", "run", "-f"))
    return run


def unseen(secrets: Mapping[str, str], machine: bool = True) -> dict[str, str]:
    """Those, and the name of this machine where it is long enough to be told from chance."""
    name = socket.gethostname()
    return {**secrets, **({"this machine": name} if machine and len(name) >= 8 else {})}


def test_no_file_of_a_run_has_any_of_them(recorded):
    assert leaks(recorded, unseen({**SECRETS, **PINS})) == {}


def test_the_run_is_recognised_all_the_same(recorded):
    manifest = json.loads((recorded / "rank0/manifest.json").read_text())

    assert manifest["command"][:6] == ["train.py", "-p", "***", "-p***", "--pw", "***"]
    assert manifest["environment"]["OMP_NUM_THREADS"] == "1"
    assert manifest["environment"]["NCCL_NET"] == "***"
    assert {
        "rank0/kineto.json.gz",
        "rank0/events.parquet",
        "rank0/gauges.bin",
        "report.json",
        "trace.json.gz",
    } <= {str(path.relative_to(recorded)) for path in recorded.rglob("*")}
    assert [
        one["steps"] > 0 for one in json.loads((recorded / "report.json").read_text())["trainings"]
    ] == [True, True]


@pytest.mark.long
def test_with_all_arguments_recorded_the_search_finds_each_of_them(home):
    home.feedline("run", "--record-argv", "all", "-o", "open", "train.py", *arguments(), home.data)

    found = leaks(home.folder / "open", {**SECRETS, **PINS})

    assert {*ARGUMENTS, *PINS} <= set(found)
    assert all(
        {"rank0/manifest.json", "report.json", "report.html"} <= found[what] for what in ARGUMENTS
    )
    assert "NCCL_NET" not in found  # the environment is another matter


@pytest.mark.long
def test_with_no_arguments_recorded_only_the_name_of_the_script_is_there(home):
    home.feedline(
        "run",
        "--record-argv",
        "none",
        "-o",
        "closed",
        home.folder / "train.py",
        *arguments(),
        home.data,
    )

    assert json.loads((home.folder / "closed/rank0/manifest.json").read_text())["command"] == [
        "train.py"
    ]
    assert leaks(home.folder / "closed", {**SECRETS, **PINS}) == {}


@pytest.mark.long
def test_no_file_of_a_run_of_two_ranks_has_any_of_them(home):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += [
        "--rdzv-id",
        SECRETS["TORCHELASTIC_RUN_ID"],
        "--rdzv-endpoint",
        f"127.0.0.1:{port}",
        "--log-dir",
        "logs",
    ]

    environment = {**home.environment, "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    recorded = ("-m", "feedline", "run", "-o", "two", "ranks.py", *arguments())
    said = home.warm.run(*launcher, *recorded, folder=home.folder, environment=environment).stderr

    assert (home.folder / "two/rank1/manifest.json").exists() and (
        home.folder / "two/report.html"
    ).exists(), said
    assert leaks(home.folder / "two", unseen({**SECRETS, **PINS})) == {}


def test_no_file_made_of_a_trace_has_any_of_them(home):
    trace = home.folder / f"{SECRETS['name of a module']}" / "trace.json.gz"
    trace.parent.mkdir()
    said = home.call(sys.executable, home.folder / "traced.py", trace)
    assert SECRETS["user"] in gzip.decompress(trace.read_bytes()).decode(), said

    said = home.feedline("ingest", trace, "-o", "traced")
    for place in ("other.json", "other.html", "other.trace.json"):
        home.feedline("report", "traced", "-f", "-o", home.folder / "traced" / place)

    assert (home.folder / "traced/rank0/trace.parquet").exists(), said
    assert "traced.py" in b"".join(
        contents((home.folder / "traced/rank0/trace.parquet").read_bytes())
    ).decode(errors="replace")
    assert leaks(home.folder / "traced", unseen(SECRETS, machine=False)) == {}


@pytest.mark.parametrize(
    "how",
    [
        "plain",
        "utf-16",
        "gzip",
        "parquet value",
        "parquet metadata",
        "base64 of gzip",
        "cut",
        "quoted",
        "name",
    ],
)
def test_the_search_finds_a_secret_that_was_put_there(tmp_path, how):
    secret = 'aZ7"<k>/&pQ4mV9x'
    file = tmp_path / "file"
    ways = {
        "plain": f"x{secret}y".encode(),
        "utf-16": f"x{secret}y".encode("utf-16"),
        "gzip": gzip.compress(secret.encode()),
        "base64 of gzip": b'data:"'
        + base64.b64encode(gzip.compress(b"." * 50 + secret.encode()))
        + b'"',
        "cut": secret[:12].encode(),
        "quoted": b"?x=aZ7%22%3Ck%3E%2F%26pQ4mV9x",
    }
    if how == "parquet value":
        pq.write_table(pa.table({"a": ["x", secret]}), file, compression="zstd")
    elif how == "parquet metadata":
        pq.write_table(pa.table({"a": [1]}, metadata={"b": secret}), file)
    elif how == "name":
        (tmp_path / "aZ7aZ7aZ7aZ7aZ7").mkdir()
        (tmp_path / "aZ7aZ7aZ7aZ7aZ7/x").touch()
        secret = "aZ7aZ7aZ7aZ7aZ7"
    else:
        file.write_bytes(ways[how])

    assert set(leaks(tmp_path, {"it": secret})) == {"it"}
    assert leaks(tmp_path, {"another": "Kq93hVbTzL21"}) == {}
