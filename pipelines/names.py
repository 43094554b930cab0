"""The names of loaders and probes, for commands that list them without importing their libraries."""

#: Of the loaders, the fastest first, as they were where all were measured
#: (docs/measured/compare.md).
LOADER_NAMES = (
    "synthetic",
    "dali-gpu",
    "dali-proxy",
    "gpu-augment",
    "dali-cpu",
    "simplejpeg-v2",
    "simplejpeg-albu",
    "opencv-albu",
    "pillow-v2",
    "spdl",
    "pillow-v1-uint8",
    "pillow-v1",
)

#: Probe -> module in ``probes`` with a ``probe(subject)``.
PROBES = {
    "read": "read_speed",
    "decode": "decoders",
    "augment": "augment",
    "transport": "transport",
    "copy": "device_copy",
    "compute": "compute",
    "sweep": "sweep",
    "all_reduce": "all_reduce",
}
