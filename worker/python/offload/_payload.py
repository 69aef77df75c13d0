"""Values of Python as payloads: bytes with a media type.

| value | media type |
|---|---|
| `bytes`, `bytearray`, `memoryview` | `application/octet-stream` |
| `str` | `text/plain; charset=utf-8` |
| anything else | `application/json` |
| `Payload(data, media_type)` | the one that it states |
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Tuple, Union

from ._wire import check_media_type

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
JSON_LINES = "application/x-ndjson"


class Payload(NamedTuple):
    """An input or an output with a media type of its own, such as `Payload(png, "image/png")`."""

    data: Union[bytes, bytearray, memoryview]
    media_type: str = BYTES


def to_payload(value: Any) -> Tuple[bytes, str]:
    """The bytes of a value and its media type.

    Raises `TypeError` or `ValueError` if it is neither bytes nor text and JSON cannot express it.
    """
    if isinstance(value, bytes):
        return value, BYTES
    if isinstance(value, str):
        return value.encode(), TEXT
    if isinstance(value, Payload):
        return bytes(value.data), check_media_type(value.media_type)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value), BYTES
    return to_json(value), JSON


def to_json(value: Any) -> bytes:
    """The value as one JSON document in one line. NaN and infinities, which JSON does not have, are an error."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def from_payload(data: bytes, media_type: str) -> Any:
    """The value of a payload: parsed JSON, text, or else the bytes as they are.

    Raises `ValueError` if the bytes are not what the media type says.
    """
    if media_type == BYTES:
        return data
    essence = media_type.partition(";")[0].rstrip().lower()
    if essence == JSON or essence.endswith("+json"):
        return json.loads(data)
    return data.decode() if essence.startswith("text/") else data
