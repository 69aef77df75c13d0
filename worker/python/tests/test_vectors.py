"""The golden vectors of the protocol: what they say of the messages of this package is what it reads and writes."""

import json
import pathlib
import re
import unittest

from offload import _messages as messages
from offload._wire import Choice, Decoder, Record, WireError, check_media_type, frame

VECTORS = pathlib.Path(__file__).parents[3] / "protocol" / "vectors.json"
DIRECTIONS = [messages.TO_WORKER, messages.FROM_WORKER, messages.TO_SUPERVISOR, messages.TO_CLIENT]


def plain(value):
    """A message as the vectors have it: by names, and without a difference between `TooLarge` and `too_large`."""
    if hasattr(value, "_asdict"):
        return {name: plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, tuple):  # a variant with a number
        word, number = value
        return {plain(word): {"code" if word == "exited" else "signal": number}}
    if isinstance(value, dict) and set(value) <= {"Exited", "Signalled"}:
        return {plain(word): inner for word, inner in value.items()}
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode().lower()
    return re.sub("_", "", value).lower() if isinstance(value, str) else value


class Vectors(unittest.TestCase):
    def setUp(self):
        if not VECTORS.exists():
            self.skipTest(f"no vectors at {VECTORS}: this is not a checkout of the project")
        vectors = json.loads(VECTORS.read_text())["vectors"]
        known = {direction.name: direction for direction in DIRECTIONS}
        self.sound = [(known[v["direction"]], v) for v in vectors if "meaning" in v]
        self.refused = [(known[v["direction"]], v) for v in vectors if "error" in v]

    def test_every_message_of_this_package_is_read_and_written_as_the_vectors_say(self):
        read = set()
        for direction, vector in self.sound:
            meaning = vector["meaning"]
            if meaning["number"] >= len(direction._records):
                continue  # it belongs to a capability that this package does not state
            with self.subTest(vector["about"], direction=direction.name):
                data = bytes.fromhex(vector["frame"])
                [(header, payload)] = Decoder().feed(data)
                message = direction.decode(header)
                self.assertEqual(type(message).__name__, meaning["message"])
                self.assertEqual(plain(message), plain(meaning["fields"]))
                self.assertEqual(payload.hex(), meaning["payload"])
                self.assertEqual(frame(direction.encode(message), payload), data)
                read.add((direction.name, meaning["number"]))
        messages_in_all = sum(len(direction._records) for direction in DIRECTIONS)
        self.assertEqual(len(read), messages_in_all, "each message has a vector")

    def test_the_type_of_an_output_is_found_without_reading_the_whole_report(self):
        ended = [v for direction, v in self.sound if direction is messages.TO_CLIENT and v["meaning"]["message"] == "Finished"]
        self.assertEqual(len(ended), 2)
        for vector in ended:
            [(header, _)] = Decoder().feed(bytes.fromhex(vector["frame"]))
            report = vector["meaning"]["fields"]["report"]
            expected = report["media_type"] if report["outcome"] == "Ok" else None
            self.assertEqual(messages.output_type(header), expected)

    def test_what_has_to_be_refused_is_refused_for_the_reason_of_the_vector(self):
        self.assertGreater(len(self.refused), 20)
        for direction, vector in self.refused:
            with self.subTest(vector["about"], direction=direction.name):
                with self.assertRaises(WireError) as refused:
                    for header, _ in Decoder(payload_max=1024).feed(bytes.fromhex(vector["frame"])):
                        direction.decode(header)
                self.assertEqual(refused.exception.kind, vector["error"])

    def test_frames_may_arrive_in_pieces_of_any_size(self):
        data = b"".join(bytes.fromhex(vector["frame"]) for _, vector in self.sound)
        whole = Decoder().feed(data)
        self.assertEqual(len(whole), len(self.sound))
        for size in (1, 7, 8, 9, 100, 4096):
            decoder = Decoder()
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            self.assertEqual([frame for piece in pieces for frame in decoder.feed(piece)], whole)

    def test_the_version_of_an_end_of_another_version_can_be_read(self):
        hello = next(v for _, v in self.refused if "hello of protocol 2" in v["about"])
        greeting = messages.greeting_of(bytes.fromhex(hello["frame"])[8:])
        self.assertEqual((greeting.magic, greeting.major), (b"OFFLOADW", 2))


class Types(unittest.TestCase):
    def test_a_media_type_is_what_it_is_for_the_supervisor(self):
        """As `protocol/src/nouns/media_type.rs`."""
        for sound in (
            "text/plain;a=b ", "text/plain; a=b \t", 'text/plain ; a="b;c\\"" ;d=e ', "text/plain;a=b;c=d", "a/b", "*/*",
        ):  # fmt: skip
            self.assertEqual(check_media_type(sound), sound)
        for wrong in ("text/plain ", " text/plain", "text/plain;", "text/plain;a=b;", "text/plain;a=b; ", "text/plain;a=b c", "text",
                      "text/plain;a=b\n", "text/plain;a =b", "text/plain;a=b c=d", "text/" + "x" * 123):  # fmt: skip
            with self.subTest(wrong), self.assertRaises(WireError):
                check_media_type(wrong)

    def test_a_word_that_is_no_choice_is_our_own_mistake(self):
        with self.assertRaises(KeyError):
            Record("R", lane=Choice("cpu")).write(("gpu",), bytearray())


if __name__ == "__main__":
    unittest.main()
