//! The frames of the golden vectors that have to be refused: what another program may get wrong, one thing each.

use super::{Direction, PAYLOAD_MAX, Vector, bad, headed};

/// Each of them with what is wrong with it.
pub(super) fn frames() -> Vec<Vector> {
    use Direction::*;
    let long = (PAYLOAD_MAX as u32 + 1).to_le_bytes();
    let finished = |media_type: &[u8]| {
        let length = (media_type.len() as u64).to_le_bytes();
        headed(&[&[4, 0, 0, 0], &[0; 20][..], &length, media_type, &[0; 24]].concat())
    };
    let run = |pairs: &[u8]| {
        let start = b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0t\x03\0\0\0\0\0\0\0a/b";
        headed(&[&start[..], &[0; 16], pairs].concat())
    };
    let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes(), text].concat();
    let list =
        |elements: Vec<Vec<u8>>| [&(elements.len() as u64).to_le_bytes()[..], &elements.concat()].concat();
    let pair = |key: &str, value: &str| [text(key.as_bytes()), text(value.as_bytes())].concat();
    // A Submit whose options are all absent: no metadata, and these labels.
    let submit = |labels: Vec<Vec<u8>>| {
        let start = b"\x01\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0t\x03\0\0\0\0\0\0\0a/b\0";
        headed(&[&start[..], &[0; 6], &list(Vec::new()), &list(labels)].concat())
    };
    let unknown = |direction, number| {
        bad(direction, "an unknown number", "variant", &headed(&u32::to_le_bytes(number)))
    };
    let from_worker = |about, reason, frame: &[u8]| bad(FromWorker, about, reason, frame);
    let to_worker = |about, reason, frame: &[u8]| bad(ToWorker, about, reason, frame);
    vec![
        from_worker("no header", "header of 0 bytes", &[0; 8]),
        from_worker("a header over 16 KiB", "header of 16385 bytes", &[1, 64, 0, 0, 0, 0, 0, 0]),
        from_worker(
            "a payload over the limit, which is 1,024 bytes here",
            "payload of 1025 bytes",
            &[&[4, 0, 0, 0], &long[..], &[2, 0, 0, 0]].concat(),
        ),
        unknown(FromWorker, 16),
        unknown(ToWorker, 13),
        unknown(ToSupervisor, 15),
        unknown(ToClient, 8),
        from_worker("it ends too early", "too early", &headed(b"\x03\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0")),
        from_worker("a byte too many", "1 bytes too many", &headed(b"\x02\0\0\0!")),
        from_worker(
            "a bool that is neither 0 nor 1",
            "Boolean",
            &headed(b"\x01\0\0\0\x01\0\0\0\0\0\0\0a\x02\0\0\0\0\0\0\0\0\0\0\0"),
        ),
        from_worker("a text that is not UTF-8", "UTF-8", &finished(b"\xff\xfe")),
        from_worker(
            "a text of absurd length",
            "",
            &headed(&[&[4, 0, 0, 0], &[0; 20][..], &[255; 8]].concat()),
        ),
        from_worker("no media type", "\"png\" is no media type", &finished(b"png")),
        from_worker("an empty media type", "\"\" is no media type", &finished(b"")),
        from_worker(
            "a media type of 128 bytes",
            "is no media type",
            &finished(&[b"a/", &[b'b'; 126][..]].concat()),
        ),
        from_worker("a media type with a line break", "is no media type", &finished(b"text/plain\r\nX: y")),
        from_worker(
            "a hello of protocol 2: its version can be read, the rest of it cannot",
            "",
            &headed(b"\0\0\0\0OFFLOADW\x02\0\x01\0\0\0\0\0\0\0\0\0"),
        ),
        to_worker("a list of absurd length", "", &run(&[255; 8])),
        to_worker("a key of metadata in capitals", "no key of metadata", &run(&list(vec![pair("A", "")]))),
        to_worker("a key of metadata twice", "two values", &run(&list(vec![pair("a", ""), pair("a", "")]))),
        to_worker(
            "17 pairs of metadata",
            "at most 16",
            &run(&list((b'a'..=b'q').map(|key| pair(&char::from(key).to_string(), "")).collect())),
        ),
        to_worker(
            "a key of metadata of 65 bytes",
            "no key of metadata",
            &run(&list(vec![pair(&"k".repeat(65), "")])),
        ),
        to_worker(
            "a value of metadata of 257 bytes",
            "more than 256 bytes",
            &run(&list(vec![pair("a", &"v".repeat(257))])),
        ),
        to_worker(
            "a value of metadata with a line break",
            "control characters",
            &run(&list(vec![pair("a", "two\nlines")])),
        ),
        bad(ToSupervisor, "a label with a space", "is no label", &submit(vec![text(b"two words")])),
        bad(ToSupervisor, "a label of 65 bytes", "is no label", &submit(vec![text(&[b'x'; 65])])),
        bad(
            ToSupervisor,
            "9 labels",
            "at most 8",
            &submit((b'1'..=b'9').map(|label| text(&[label])).collect()),
        ),
    ]
}
