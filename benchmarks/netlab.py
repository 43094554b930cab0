"""Several hosts on a switch, in one machine: network namespaces whose links are as fast as asked
for. Needs root, ip and tc (iproute2).

Each host is a namespace with one interface; a token bucket limits what it sends, and what the
switch sends to it.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "fl"
SWITCH = f"{PREFIX}sw"
BURST, QUEUE = (
    "64kb",
    "400ms",
)  # of tc-tbf(8): a burst of a few packets, and a queue that drops nothing here


def refusal() -> str | None:
    """Why there can be no hosts; None when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 not found"
    tried = subprocess.run(["ip", "netns", "add", f"{PREFIX}try"], capture_output=True, text=True)
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    sh(f"ip netns del {PREFIX}try")
    return None


def sh(commands: str, check: bool = True) -> None:
    """Run shell commands; the first that fails ends it."""
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{commands.strip()}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Lab:
    """Hosts 0 to ``hosts`` - 1, with addresses 10.77.0.1 and up."""

    hosts: int

    def set_rate(self, mbit: float) -> None:
        """How fast each host can send and receive, Mbit/s."""
        for host in range(self.hosts):
            bucket = f"tbf rate {mbit}mbit burst {BURST} latency {QUEUE}"
            sh(
                f"tc -n {PREFIX}{host} qdisc replace dev eth0 root {bucket}; tc -n {SWITCH} qdisc "
                f"replace dev p{host} root {bucket}"
            )

    def start(
        self,
        host: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        log: Path,
    ) -> "subprocess.Popen[bytes]":
        """A process on one host. What it prints goes to ``log``."""
        with log.open("wb") as output:
            inside = ["ip", "netns", "exec", f"{PREFIX}{host}", *command]
            return subprocess.Popen(
                inside, cwd=cwd, env={**os.environ, **environment}, stdout=output, stderr=output
            )

    def together(
        self,
        ranks: int,
        command: Sequence[str],
        cwd: Path,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """One rank on each of the first hosts, to their end.

        Raises:
            RuntimeError: one of them failed or took too long; with the end of what it printed, and
                where each of its threads stood.
        """
        place = {
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": "29511",
            "OMP_NUM_THREADS": "1",
        }
        place |= {"GLOO_SOCKET_IFNAME": "eth0", "PYTHONFAULTHANDLER": "1", **(environment or {})}
        logs = [cwd / f"rank{rank}.log" for rank in range(ranks)]
        started = [
            self.start(rank, command, {**place, "RANK": str(rank)}, cwd, log)
            for rank, log in enumerate(logs)
        ]
        try:
            codes = [process.wait(limit_s) for process in started]
        except subprocess.TimeoutExpired:
            codes = [1]
        finally:
            for process in (one for one in started if one.poll() is None):
                process.send_signal(signal.SIGABRT)  # faulthandler prints its threads
            for process in started:
                try:
                    process.wait(5.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if any(codes):
            said = "\n".join(log.read_text(errors="replace")[-4000:] for log in logs)
            raise RuntimeError(f"{' '.join(command)}: exit codes {codes}\n{said}")


@contextmanager
def lab(hosts: int, mbit: float | None = None) -> Iterator[Lab]:
    """Build it, and take it down again. Ends the program with a reason where it cannot be built."""
    if why := refusal():
        sys.exit(f"skipped: {why}")
    down(hosts)
    try:
        sh(
            f"ip netns add {SWITCH}; ip -n {SWITCH} link add br0 type bridge; ip -n {SWITCH} link "
            f"set br0 up"
        )
        for host in range(hosts):
            name = f"{PREFIX}{host}"
            sh(
                f"ip netns add {name}; ip link add {PREFIX}v{host} netns {name} type veth peer "
                f"name p{host} netns {SWITCH}"
            )
            sh(
                f"ip -n {name} link set {PREFIX}v{host} name eth0; ip -n {name} addr add "
                f"10.77.0.{host + 1}/24 dev eth0"
            )
            sh(
                f"ip -n {name} link set eth0 up; ip -n {name} link set lo up; ip -n {SWITCH} link "
                f"set p{host} master br0 up"
            )
        made = Lab(hosts)
        if mbit is not None:
            made.set_rate(mbit)
        yield made
    finally:
        down(hosts)


def down(hosts: int) -> None:
    """Take away what is there."""
    for name in [*(f"{PREFIX}{host}" for host in range(hosts)), SWITCH]:
        sh(f"ip netns del {name}", check=False)
