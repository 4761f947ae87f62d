"""Values that ranks exchange, as JSON and raw tensor bytes.

torch's own object collectives unpickle what arrives. On a machine with several users another account can join
an unprotected rendezvous under a free rank, and a pickle from it would run code here.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.messages import TrainingError

# Of the JSON of one rank; checkpoints of large models have a few hundred kilobytes.
MAX_TEXT_BYTES = 16 << 20
MAX_TENSOR_BYTES = 1 << 37
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def encode(value: Any) -> tuple[Tensor, Tensor]:
    """Encode a value made of dicts, lists, tuples, paths, tensors, errors and JSON's own types.

    Returns two sizes, int64, and as many bytes, uint8: JSON, then all tensors.
    """
    tensors: list[Tensor] = []
    text = json.dumps(_to_json(value, tensors)).encode()
    body = torch.cat([torch.frombuffer(bytearray(text), dtype=torch.uint8), *tensors])
    return torch.tensor([len(text), len(body) - len(text)]), body


def check_sizes(sizes: Tensor) -> int:
    """Return the number of bytes that follow `sizes` of another rank; TrainingError if none could be sent."""
    text, tensors = sizes.tolist()
    if not (0 < text <= MAX_TEXT_BYTES and 0 <= tensors <= MAX_TENSOR_BYTES):
        raise _foreign()
    return int(text + tensors)


def decode(sizes: Tensor, body: Tensor) -> Any:
    """Return the value of `encode`, with lists for tuples; TrainingError if another program sent it."""
    text_size = int(sizes[0])
    try:
        tensors = [body[text_size : check_sizes(sizes)]]
        return _from_json(json.loads(body[:text_size].numpy().tobytes()), tensors)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise _foreign() from error


def _to_json(value: Any, tensors: list[Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        found = value.detach().cpu().contiguous()
        tensors.append(found.reshape(-1).view(torch.uint8))
        return {"tensor": [str(found.dtype), list(found.shape)]}
    if isinstance(value, dict):  # keys may be numbers, which JSON has not
        return {"dict": [[key, _to_json(each, tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_to_json(each, tensors) for each in value]
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, TrainingError):
        return {"error": [type(value).__name__, list(value.args), value.exit_status]}
    raise TypeError(f"ranks do not exchange values of type {type(value).__name__}")


def _from_json(found: Any, tensors: list[Tensor]) -> Any:
    """Decode parsed JSON; the only item of `tensors` is the bytes of those that are still to come."""
    if isinstance(found, list):
        return [_from_json(each, tensors) for each in found]
    if not isinstance(found, dict):
        return found
    ((kind, content),) = found.items()
    if kind == "dict":
        return {key: _from_json(each, tensors) for key, each in content}
    if kind == "path":
        return Path(content)
    if kind == "error":
        name, words, status = content
        error = _error_classes()[name](*map(str, words))
        error.exit_status = int(status)
        return error
    if kind != "tensor" or any(each < 0 for each in content[1]):
        raise ValueError(kind)
    dtype, shape = _DTYPES[content[0]], content[1]
    count = torch.Size(shape).numel() * dtype.itemsize
    mine, tensors[0] = tensors[0][:count], tensors[0][count:]
    # A copy, because the slice may start at an address that is not aligned for this type.
    return mine.clone().view(dtype).reshape(shape)


def _error_classes() -> dict[str, type[TrainingError]]:
    found = [TrainingError]
    for each in found:
        found += each.__subclasses__()
    return {each.__name__: each for each in found}


def _foreign() -> TrainingError:
    why = "A rank of another version, or another user of this machine, joined the job."
    now = "Start the job again; on a shared machine give it another MASTER_PORT."
    return TrainingError("Another rank sent a message that no rank of this job sends.", why, now)
