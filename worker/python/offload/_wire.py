"""How messages become bytes: the types of their fields, and frames.

A frame is the length of the header, the length of the payload, the header, the payload. A header is the number of a
message and its fields, without padding, little-endian. What the other end sends may be wrong in every way: then
reading it raises `WireError`, and nothing is allocated for a length that was only announced.
"""

from __future__ import annotations

import re
from collections import namedtuple
from struct import Struct
from typing import Any, Dict, List, Optional, Tuple

HEADER_MAX = 16 << 10
PAYLOAD_MAX_CEILING = 1 << 30
# A payload of at least so many bytes is not copied behind its header.
COPIED_MAX = 32 << 10
METADATA_PAIRS_MAX = 16
LABELS_MAX = 8

_PREFIX = Struct("<II")
_NUMBER = Struct("<I")
_LENGTH = Struct("<Q")
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(?:(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|{_QUOTED}))+[ \t]*)?")
_METADATA_KEY = re.compile(r"[a-z0-9._-]{1,64}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_LABEL = re.compile(r"[^\s=]+|[^\s=]+=\S+")


class WireError(ValueError):
    """The bytes are no message. `kind` is the word that `protocol/vectors.json` has for it."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class NotUnderstood(WireError):
    """The message is whole, and what it says of a job is nothing that this package understands. It concerns this job alone."""

    def __init__(self, reason: str) -> None:
        super().__init__("malformed", reason)


def malformed(reason: str) -> WireError:
    """A header that has something in it that no message has."""
    return WireError("malformed", reason)


class Fixed:
    """A field of a fixed length, by its letter in `struct`. Several in a row are read and written at once."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self._struct = Struct("<" + letter)

    def write(self, value: Any, out: bytearray) -> None:
        out += self._struct.pack(value)

    def read(self, data: bytes, at: int) -> Tuple[Any, int]:
        return self._struct.unpack_from(data, at)[0], at + self._struct.size


class Bool:
    """One byte, 0 or 1."""

    def write(self, value: bool, out: bytearray) -> None:
        out.append(1 if value else 0)

    def read(self, data: bytes, at: int) -> Tuple[bool, int]:
        byte = data[at]
        if byte > 1:
            raise malformed(f"{byte} is no bool")
        return byte == 1, at + 1


class U128:
    """16 bytes."""

    def write(self, value: int, out: bytearray) -> None:
        out += value.to_bytes(16, "little")

    def read(self, data: bytes, at: int) -> Tuple[int, int]:
        if at + 16 > len(data):
            raise malformed("it ends too early")
        return int.from_bytes(data[at : at + 16], "little"), at + 16


class Text:
    """UTF-8 with its length before it."""

    def write(self, value: str, out: bytearray) -> None:
        encoded = str.encode(value)
        out += _LENGTH.pack(len(encoded))
        out += encoded

    def read(self, data: bytes, at: int) -> Tuple[str, int]:
        (length,) = _LENGTH.unpack_from(data, at)
        start = at + 8
        end = start + length
        if end > len(data):
            raise malformed("a text is longer than its header")
        return str(data[start:end], "utf-8"), end


class MediaType(Text):
    """What a payload is, such as `image/png`: 1 to 127 bytes."""

    def __init__(self) -> None:
        self._written: Dict[str, bytes] = {}

    def write(self, value: str, out: bytearray) -> None:
        out += self.written(value)

    def written(self, value: str) -> bytes:
        """Its bytes on the wire."""
        written = self._written.get(value)
        if written is None:
            encoded = str.encode(value)
            written = _LENGTH.pack(len(encoded)) + encoded
            if value in _KNOWN_MEDIA_TYPES:
                self._written[value] = written
        return written

    def read(self, data: bytes, at: int) -> Tuple[str, int]:
        value, at = super().read(data, at)
        return check_media_type(value), at


class Listed:
    """Any number of one type."""

    def __init__(self, element: Any) -> None:
        self._element = element

    def write(self, values: Any, out: bytearray) -> None:
        out += _LENGTH.pack(len(values))
        for value in values:
            self._element.write(value, out)

    def read(self, data: bytes, at: int) -> Tuple[List[Any], int]:
        (count,) = _LENGTH.unpack_from(data, at)
        at += 8
        if count > len(data) - at:
            raise malformed("a list is longer than its header")
        values = []
        for _ in range(count):
            value, at = self._element.read(data, at)
            values.append(value)
        return values, at


class Metadata:
    """Short texts by key, a `dict`."""

    def write(self, values: Dict[str, str], out: bytearray) -> None:
        out += _LENGTH.pack(len(values))
        for key, value in values.items():
            TEXT.write(key, out)
            TEXT.write(value, out)

    def read(self, data: bytes, at: int) -> Tuple[Dict[str, str], int]:
        (count,) = _LENGTH.unpack_from(data, at)
        at += 8
        if count > METADATA_PAIRS_MAX:
            raise NotUnderstood(f"{count} pairs of metadata")
        values: Dict[str, str] = {}
        for _ in range(count):
            key, at = TEXT.read(data, at)
            value, at = TEXT.read(data, at)
            if key in values:
                raise NotUnderstood(f"two values for the metadata key {key!r}")
            values[key] = value
        return check_metadata(values), at


class Labels(Listed):
    """Words by which a job is found."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def read(self, data: bytes, at: int) -> Tuple[List[str], int]:
        values, at = super().read(data, at)
        return check_labels(values), at


class Maybe:
    """A value or `None`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, value: Any, out: bytearray) -> None:
        out.append(0 if value is None else 1)
        if value is not None:
            self._inner.write(value, out)

    def read(self, data: bytes, at: int) -> Tuple[Any, int]:
        has_value, at = BOOL.read(data, at)
        return self._inner.read(data, at) if has_value else (None, at)


class Choice:
    """One of several words. On the wire it is its position."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self._positions = {word: position for position, word in enumerate(words)}

    def write(self, value: str, out: bytearray) -> None:
        out += _NUMBER.pack(self._positions[value])

    def read(self, data: bytes, at: int) -> Tuple[str, int]:
        (position,) = _NUMBER.unpack_from(data, at)
        if position >= len(self.words):
            raise malformed(f"{position} is none of {', '.join(self.words)}")
        return self.words[position], at + 4


class Variants:
    """One of several words, some with a number: the word itself, or `(word, number)`."""

    def __init__(self, **numbers: Optional[Fixed]) -> None:
        self._numbers = list(numbers.items())
        self._positions = {word: position for position, word in enumerate(numbers)}

    def write(self, value: Any, out: bytearray) -> None:
        word, number = (value, None) if isinstance(value, str) else value
        position = self._positions[word]
        out += _NUMBER.pack(position)
        kind = self._numbers[position][1]
        if kind is not None:
            kind.write(number, out)

    def read(self, data: bytes, at: int) -> Tuple[Any, int]:
        (position,) = _NUMBER.unpack_from(data, at)
        if position >= len(self._numbers):
            raise malformed(f"{position} is none of {', '.join(self._positions)}")
        word, kind = self._numbers[position]
        if kind is None:
            return word, at + 4
        number, at = kind.read(data, at + 4)
        return (word, number), at


class Record:
    """Several fields in a row, as a named tuple."""

    def __init__(self, record_name: str, **fields: Any) -> None:
        self.type = namedtuple(record_name, fields)  # type: ignore[misc]
        self._pieces = _pieces(list(fields.values()))

    def __call__(self, *values: Any, **named: Any) -> Any:
        """The named tuple with these values."""
        return self.type(*values, **named)

    def numbered(self) -> Optional[Struct]:
        """Number and fields as one `Struct`, if all of them are fixed."""
        if len(self._pieces) == 1 and self._pieces[0][1]:
            return Struct("<I" + self._pieces[0][0].format.lstrip("<"))
        return None

    def write(self, values: Any, out: bytearray) -> None:
        at = 0
        for piece, count in self._pieces:
            if count:
                out += piece.pack(*values[at : at + count])
                at += count
            else:
                piece.write(values[at], out)
                at += 1

    def read(self, data: bytes, at: int) -> Tuple[Any, int]:
        values: List[Any] = []
        for piece, count in self._pieces:
            if count:
                values += piece.unpack_from(data, at)
                at += piece.size
            else:
                value, at = piece.read(data, at)
                values.append(value)
        return self.type._make(values), at


def _pieces(types: List[Any]) -> List[Tuple[Any, int]]:
    """The types, with the fixed ones in a row put together: a `Struct` and how many values it has, or a type and 0."""
    pieces: List[Tuple[Any, int]] = []
    letters = ""
    for kind in types:
        if isinstance(kind, Fixed):
            letters += kind.letter
            continue
        if letters:
            pieces.append((Struct("<" + letters), _count(letters)))
            letters = ""
        pieces.append((kind, 0))
    if letters:
        pieces.append((Struct("<" + letters), _count(letters)))
    return pieces


def _count(letters: str) -> int:
    return sum(letter.isalpha() for letter in letters)


U8, I8, I32 = Fixed("B"), Fixed("b"), Fixed("i")
U16, U32, U64, MAGIC = Fixed("H"), Fixed("I"), Fixed("Q"), Fixed("8s")
BOOL, TEXT, MEDIA_TYPE = Bool(), Text(), MediaType()


class Direction:
    """All messages that one kind of end sends. A message is a named tuple; its place here is its number."""

    def __init__(self, name: str, *records: Record) -> None:
        self.name = name
        self._records = records
        self._numbers = {record.type: number for number, record in enumerate(records)}
        self._fixed = [record.numbered() for record in records]

    def number_of(self, record: Record) -> int:
        """The number that its messages have."""
        return self._numbers[record.type]

    def encode(self, message: Any) -> bytes:
        """The header of a message."""
        number = self._numbers[type(message)]
        fixed = self._fixed[number]
        if fixed is not None:
            return fixed.pack(number, *message)
        out = bytearray(_NUMBER.pack(number))
        self._records[number].write(message, out)
        return bytes(out)

    def decode(self, header: bytes) -> Any:
        """The message in a header. Raises `WireError`."""
        try:
            (number,) = _NUMBER.unpack_from(header, 0)
            if number >= len(self._records):
                raise malformed(f"no message has the number {number}")
            message, end = self._records[number].read(header, 4)
        except WireError:
            raise
        except UnicodeDecodeError:
            raise malformed("a text is not UTF-8") from None
        except Exception as error:  # a struct or an index beyond the end
            raise malformed(f"it ends too early: {error}") from None
        if end != len(header):
            raise WireError("trailing_bytes", f"{len(header) - end} bytes too many")
        return message


def cut(text: str, most: int) -> str:
    """The longest beginning of a text that has at most `most` bytes, as a text that can be sent: half of a surrogate pair is no
    character, so it is escaped."""
    start = str.__getitem__(text, slice(most))  # a character has at least one byte, and what is behind them may be much
    return str.encode(start, errors="backslashreplace")[:most].decode(errors="ignore")


def frame(header: bytes, payload: Any = b"") -> bytes:
    """The bytes of a frame."""
    return b"".join((_PREFIX.pack(len(header), len(payload)), header, payload))


def frame_start(header: bytes, payload_length: int) -> bytes:
    """The bytes of a frame without its payload, which is `payload_length` bytes long."""
    return _PREFIX.pack(len(header), payload_length) + header


class Decoder:
    """Cuts what arrives into frames. Holds at most one frame that has not arrived completely."""

    def __init__(self, payload_max: int = PAYLOAD_MAX_CEILING) -> None:
        self.payload_max = payload_max
        self._unread = bytearray()
        self._wanted = _PREFIX.size

    def feed(self, data: bytes) -> List[Tuple[bytes, bytes]]:
        """The frames, each a header with its payload, that are complete with these bytes.

        Raises `WireError` for a length over its limit.
        """
        unread = self._unread
        if unread:
            unread += data
            if len(unread) < self._wanted:
                return []
            data = bytes(unread)
            unread.clear()
        frames, at, length = [], 0, len(data)
        self._wanted = _PREFIX.size
        while length - at >= _PREFIX.size:
            header_length, payload_length = _PREFIX.unpack_from(data, at)
            if not (1 <= header_length <= HEADER_MAX and payload_length <= self.payload_max):
                raise self._too_long(header_length, payload_length)
            start = at + 8
            header_end = start + header_length
            end = header_end + payload_length
            if end > length:
                self._wanted = end - at
                break
            frames.append((data[start:header_end], data[header_end:end]))
            at = end
        if at < length:
            unread += data[at:]
        return frames

    def _too_long(self, header_length: int, payload_length: int) -> WireError:
        if not 1 <= header_length <= HEADER_MAX:
            return WireError("header_length", f"a header of {header_length} bytes")
        return WireError("payload_length", f"a payload of {payload_length} bytes, at most {self.payload_max}")


def exact_text(text: str) -> str:
    """The same text as a plain `str`: a subclass may say other things of itself. Raises `TypeError` if it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    return str.__str__(text)


def check_media_type(text: str) -> str:
    """The text, if it is a media type. Raises `WireError`, or `TypeError` if it is no text."""
    if type(text) is not str:
        text = exact_text(text)
    if text not in _KNOWN_MEDIA_TYPES and (len(text) > 127 or not _MEDIA_TYPE.fullmatch(text)):
        raise NotUnderstood(f"{text[:127]!r} is no media type: 1 to 127 bytes such as 'image/png'")
    return text


_KNOWN_MEDIA_TYPES = {"application/octet-stream", "text/plain; charset=utf-8", "application/json", "*/*"}


def check_metadata(values: Dict[str, str]) -> Dict[str, str]:
    """The pairs, if a job may have them. Raises `WireError`."""
    if len(values) > METADATA_PAIRS_MAX:
        raise NotUnderstood(f"{len(values)} pairs of metadata, at most {METADATA_PAIRS_MAX} are allowed")
    for key, value in values.items():
        if not _METADATA_KEY.fullmatch(key):
            raise NotUnderstood(f"{key[:64]!r} is no key of metadata: 1 to 64 of a-z, 0-9, '.', '_' and '-'")
        if len(value.encode()) > 256 or _CONTROL.search(value):
            raise NotUnderstood(f"the value of the metadata key {key!r} has more than 256 bytes, or control characters")
    return values


def check_labels(values: List[str]) -> List[str]:
    """The labels, if a job may have them. Raises `WireError`."""
    if len(values) > LABELS_MAX:
        raise malformed(f"{len(values)} labels, at most {LABELS_MAX} are allowed")
    for value in values:
        if len(value.encode()) > 64 or not _LABEL.fullmatch(value) or _CONTROL.search(value):
            raise malformed(f"{value[:64]!r} is no label: a word, or KEY=VALUE, of 1 to 64 bytes without spaces")
    return values
