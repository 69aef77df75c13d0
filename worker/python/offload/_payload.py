"""Values of Python as payloads: bytes with a media type.

| value | media type |
|---|---|
| `bytes`, `bytearray`, `memoryview` | `application/octet-stream` |
| `str` | `text/plain; charset=utf-8` |
| anything else | `application/json` |
| `Payload(data, media_type)` | the one that it states |
"""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import Any, NamedTuple, Tuple, Union

from ._wire import check_media_type

BYTES = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
JSON_LINES = "application/x-ndjson"
_BYTES_LIKE = (bytes, bytearray, memoryview)
_PARAMETER = re.compile(r';[ \t]*([^\s;="]+)=("(?:[^"\\]|\\.)*"|[^\s;"]+)')
# What Python decodes and no media type means; some of them take very long for a long text.
_NO_CHARSETS = ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape")


class Payload(NamedTuple):
    """An input or an output with a media type of its own, such as `Payload(png, "image/png")`."""

    data: Union[bytes, bytearray, memoryview]
    media_type: str = BYTES


# Values that are bytes already. Text and JSON are written as UTF-8.
IS_BYTES = (*_BYTES_LIKE, Payload)


def to_payload(value: Any) -> Tuple[bytes, str]:
    """The bytes of a value and its media type.

    Raises `TypeError` or `ValueError` if it is neither bytes nor text and JSON cannot express it.
    """
    if isinstance(value, _BYTES_LIKE):
        return _exact(value), BYTES
    if isinstance(value, str):
        return str.encode(value), TEXT
    if isinstance(value, Payload):
        if not isinstance(value.data, _BYTES_LIKE):
            raise TypeError(f"the data of a Payload are bytes, not {type(value.data).__name__}")
        return _exact(value.data), check_media_type(value.media_type)
    return to_json(value), JSON


def _exact(data: Union[bytes, bytearray, memoryview]) -> bytes:
    """The data as plain `bytes`: a subclass may say other things of itself, such as its length."""
    return data if type(data) is bytes else bytes(memoryview(data))


def to_json(value: Any) -> bytes:
    """The value as one JSON document in one line. Raises `ValueError` or `TypeError` for what JSON does not have, such as NaN."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("a value that is nested too deeply for Python to write as JSON") from None


def check_utf8(media_type: str, data: bytes) -> None:
    """Raises `ValueError` if the media type says that text, which is sent as UTF-8, is in another character set."""
    charset = _charset(media_type)
    try:
        known = codecs.lookup(charset).name
    except LookupError:
        known = charset
    if known != "utf-8" and not (known == "ascii" and data.isascii()):
        raise ValueError(f"a text is sent as UTF-8, and {media_type!r} says {charset}: encode it, and send the bytes")


def is_json(media_type: str) -> bool:
    """Whether a payload of this media type is a JSON document."""
    essence = media_type.partition(";")[0].rstrip().lower()
    return essence == JSON or essence.endswith("+json")


def from_payload(data: bytes, media_type: str) -> Any:
    """The value of a payload: parsed JSON, text, or else the bytes as they are.

    Raises `ValueError` if the bytes are not what the media type says; its text goes on from "it is ...".
    """
    if media_type == BYTES:
        return data
    if is_json(media_type):
        return from_json(data)
    return from_text(data, media_type) if media_type[:5].lower() == "text/" else data


def _refuse(name: str) -> Any:
    raise ValueError(f"it has {name}")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(f"the number {number[:32]}, which is too large")


# Python reads NaN, Infinity and -Infinity unless told otherwise, and 1e400 as infinite. The second decoder is slower, and only for
# texts in which there may be such a number.
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_FINITE_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_MAY_BE_INFINITE = re.compile(rb"\d[eE]\+?\d{3}|\d{200}")


def from_json(data: bytes) -> Any:
    """The value of a JSON document in UTF-8. Raises `ValueError`, as `from_payload` does."""
    try:
        decoder = _FINITE_DECODER if _MAY_BE_INFINITE.search(data) else _DECODER
        return decoder.decode(data.decode())
    except RecursionError:
        raise ValueError("JSON that is nested too deeply for Python") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error


def from_text(data: bytes, media_type: str) -> str:
    """Bytes as text, in the character set that the media type names, or in UTF-8. Raises `ValueError`, as `from_payload` does."""
    charset = _charset(media_type)
    try:
        if codecs.lookup(charset).name.replace("-", "_") in _NO_CHARSETS:
            raise LookupError(charset)
        return data.decode(charset)
    except LookupError:
        raise ValueError(f"in the character set {charset!r}, which Python does not know") from None
    except ValueError as error:
        raise ValueError(f"not {charset.upper()}: {error}") from error


def _charset(media_type: str) -> str:
    for name, value in [] if media_type == TEXT else _PARAMETER.findall(media_type):
        if name.lower() == "charset":
            return value.strip('"')
    return "utf-8"
