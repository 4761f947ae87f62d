"""The arguments of a run as TensorBoard's HParams tab reads them.

Field numbers are from the plugin's plugin_data.proto and protobuf's struct.proto.
"""

from collections.abc import Mapping

from trainer.tfevents.encoding import double, message

_TAG = b"_hparams_/session_start_info"
_EMPTY_TENSOR = b"\x08\x01" + message(2, message(2, b""))
"""float32 of shape (0,): a value must have one."""

Hparams = Mapping[str, bool | int | float | str]
"""Arguments by name."""


def session_start(hparams: Hparams, started_at: float) -> bytes:
    """Encode a Summary that says with what a run was started, and when, in seconds since 1970."""
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
