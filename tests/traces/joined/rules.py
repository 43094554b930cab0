"""The rules of the Trace Event Format that Perfetto holds a file to, and ways to look into one."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class File:
    """A trace as it was written. Times in whole ns.

    Attributes:
        whole: the JSON.
        spans: the events that last, in the order of the file, with ``begin`` and ``end``.
        names: (pid, tid) -> name of the track.
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.whole = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        self.events: list[Event] = self.whole["traceEvents"]
        self.spans = [event for event in self.events if event["ph"] == "X"]
        for event in self.spans:
            event["begin"] = round(event["ts"] * 1000)
            event["end"] = event["begin"] + round(event["dur"] * 1000)
        self.names = {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in self.events
            if e["ph"] == "M" and e["name"] == "thread_name"
        }

    def on(self, track: str) -> list[Event]:
        """The events of tracks whose names begin so."""
        return [
            event
            for event in self.spans
            if self.names[event["pid"], event["tid"]].startswith(track)
        ]

    def broken(self) -> list[str]:
        """What breaks the rules."""
        return [*self._shapes(), *self._tracks(), *self._nesting(), *self._arrows()]

    def _shapes(self) -> list[str]:
        numbers = (int, float)
        wrong = [
            e
            for e in self.spans
            if not (
                isinstance(e["ts"], numbers) and isinstance(e["dur"], numbers) and e["dur"] >= 0
            )
        ]
        counters = [e for e in self.events if e["ph"] == "C"]  # of a process: they have no track
        wrong += [
            e
            for e in counters
            if not all(isinstance(value, numbers) for value in (e["ts"], *e["args"].values()))
        ]
        wrong += [e for e in self.events if type(e["pid"]) is not int or e["ph"] not in "XMsfC"]
        wrong += [e for e in self.events if e["ph"] != "C" and type(e["tid"]) is not int]
        return [f"malformed: {event}" for event in wrong]

    def _tracks(self) -> list[str]:
        used = {(event["pid"], event["tid"]) for event in self.events if event["ph"] not in "MC"}
        meta = {what: {(e["pid"], e["tid"]) for e in self.events if e["ph"] == "M" and e["name"] == what} for what in
                ("thread_name", "thread_sort_index")}  # fmt: skip
        pids = {
            event["pid"]
            for event in self.events
            if event["ph"] == "M" and event["name"] == "process_name"
        }
        said = [
            f"{what} is missing for {place}"
            for what, places in meta.items()
            for place in used - places
        ]
        said += [
            f"named twice: {place}"
            for place in self.names
            if sum(self._names(e) == place for e in self.events) > 1
        ]
        return said + [f"process {pid} has no name" for pid, _ in used if pid not in pids]

    def _names(self, event: Event) -> tuple[int, int] | None:
        return (
            (event["pid"], event["tid"])
            if event["ph"] == "M" and event["name"] == "thread_name"
            else None
        )

    def _nesting(self) -> list[str]:
        tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in self.spans:
            tracks[event["pid"], event["tid"]].append(event)
        said = []
        for events in tracks.values():
            open_until: list[int] = []
            for event in sorted(
                events, key=lambda event: event["begin"]
            ):  # stable, as Perfetto's: on a tie the file's order counts
                while open_until and open_until[-1] <= event["begin"]:
                    open_until.pop()
                if open_until and event["end"] > open_until[-1]:
                    said.append(f"overlaps what it began in: {event}")
                open_until.append(event["end"])
        return said

    def _arrows(self) -> list[str]:
        ends: dict[int, list[str]] = defaultdict(list)
        for event in self.events:
            if event["ph"] in "sf":
                ends[event["id"]].append(event["ph"])
        return [
            f"an arrow of {phases}"
            for phases in ends.values()
            if phases.count("s") != 1 or "f" not in phases
        ]
