"""torchvision, imported only if a network or data set of it is requested."""

import importlib
from types import ModuleType

import torch

from trainer.messages import TrainingError

_shims: list[torch.library.Library] = []


def import_torchvision(part: str, without: str) -> ModuleType:
    """Import `torchvision.<part>`, even if its compiled operators do not load.

    Under a torch without CUDA, the import of PyPI's wheels fails when it registers shapes for two of them;
    with both declared, the Python parts work. `without` is the argument that avoids torchvision.
    """
    try:
        return importlib.import_module(f"torchvision.{part}")
    except ModuleNotFoundError as error:
        now = f"Install gpuconsole[trainer], or use {without}."
        raise TrainingError("torchvision is not installed.", f"{error}.", now) from error
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    _shims.append(declared)
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        declared.define(schema)  # type: ignore[no-untyped-call]
    return importlib.import_module(f"torchvision.{part}")
