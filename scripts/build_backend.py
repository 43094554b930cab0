"""The build backend: setuptools, whose wheels also get feedline.pth.

By that file Python begins feedline where FEEDLINE=1 is set, and below `feedline run` where
PYTHONPATH was replaced or is ignored (python -I, -E). setuptools has no place for a file beside the
packages.
"""

import base64
import hashlib
import os
import zipfile

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

NAME = "feedline.pth"
LINE = (
    'import os; (os.environ.get("FEEDLINE_RUN") or os.environ.get("FEEDLINE", "0") not in ("", '
    '"0")) '
    'and __import__("feedline.profiler.follow.start", fromlist=["begin"]).begin()\n'
)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _add_start(
        wheel_directory,
        build_meta.build_wheel(wheel_directory, config_settings, metadata_directory),
    )


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _add_start(
        wheel_directory,
        build_meta.build_editable(wheel_directory, config_settings, metadata_directory),
    )


def _add_start(folder: str, name: str) -> str:
    """Add the file to a wheel and to its RECORD."""
    path = os.path.join(folder, name)
    digest = base64.urlsafe_b64encode(hashlib.sha256(LINE.encode()).digest()).rstrip(b"=").decode()
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(f"{path}.new", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                data = f"{NAME},sha256={digest},{len(LINE)}\n".encode() + data
            new.writestr(item, data)
        new.writestr(NAME, LINE)
    os.replace(f"{path}.new", path)
    return name
