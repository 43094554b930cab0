"""Lets torchvision be imported where its compiled operators do not load (a build for CUDA beside a
torch for the CPU).

torchvision registers fake kernels for ``nms`` and ``qnms`` without asking whether the operators
exist. This defines their schemas at the moment between the two: the import system asks every finder
about ``torchvision._meta_registrations`` just after ``torchvision.extension`` has tried to load the
real ones. With a torchvision that works nothing is defined, and torch is never imported because of
this file. scripts/install puts it on the path of .venv, where workers of every start method find it
too.
"""

import sys

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_keep = []  # a Library that is collected takes its operators with it


class DefineMissingOps:
    """A finder that finds nothing: it only needs to know when it is asked."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision._meta_registrations":
            import torch

            missing = [op for op in ("nms", "qnms") if not hasattr(torch.ops.torchvision, op)]
            if missing:
                library = torch.library.Library("torchvision", "DEF")
                for op in missing:
                    library.define(op + SCHEMA)
                _keep.append(library)
        return None


sys.meta_path.insert(0, DefineMissingOps)
