"""Arguments of a run for TensorBoard's HParams tab.

Field numbers are from the plugin's plugin_data.proto and protobuf's struct.proto.
"""

from collections.abc import Mapping

from trainer.tfevents.encoding import double, message

_TAG = b"_hparams_/session_start_info"
# float32 of shape (0,): a value must have a tensor.
_EMPTY_TENSOR = b"\x08\x01" + message(2, message(2, b""))

Hparams = Mapping[str, bool | int | float | str]


def session_start(hparams: Hparams, started_at: float) -> bytes:
    """Encode a Summary with the arguments of a run and its start, in seconds since 1970."""
    values = b"".join(
        message(1, message(1, name.encode()) + message(2, _value(each))) for name, each in hparams.items()
    )
    content = message(3, values + double(5, started_at))
    metadata = message(1, message(1, b"hparams") + message(2, content))
    return message(1, message(1, _TAG) + message(8, _EMPTY_TENSOR) + message(9, metadata))


def _value(each: bool | int | float | str) -> bytes:
    if isinstance(each, bool):
        return b"\x20" + bytes([each])
    if isinstance(each, str):
        return message(3, each.encode())
    return double(2, each)
