"""soundfile: opening audio files, and reading and decoding them; librosa reads through it."""

import io
from types import ModuleType

from feedline.profiler.events import Stage
from feedline.profiler.taps.operations.library import Library, Tap
from feedline.profiler.taps.operations.span import collect, missing, read_size

_FILE = "soundfile.SoundFile"


def _install(tap: Tap, soundfile: ModuleType) -> None:
    tap.method(soundfile.SoundFile, "__init__", Stage.READ, read_size, f"{_FILE}.open")
    tap.method(soundfile.SoundFile, "read", Stage.DECODE, read_size, f"{_FILE}.read")


def _selftest() -> str | None:
    import numpy as np
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.zeros(64), 8000, format="WAV")
    file.seek(0)
    spans = collect(lambda: soundfile.read(file))
    return missing(spans, (Stage.READ, f"{_FILE}.open"), (Stage.DECODE, f"{_FILE}.read"))


LIBRARY = Library(
    "soundfile",
    "soundfile",
    "opening files, and SoundFile.read, which reads and decodes in one call: counted as decode; "
    "librosa.load calls both",
    _install,
    _selftest,
)
