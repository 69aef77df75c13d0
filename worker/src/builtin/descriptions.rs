//! What the built-in tasks say of themselves: shown by `offload tasks`, and compared with the table in README.md by a test.

use super::schemas::schema_of;
use crate::task::Task;
use offload_protocol::nouns::MediaType;

/// What one task takes and gives.
struct Described {
    task: &'static str,
    description: &'static str,
    /// As text, so that it can be a pattern.
    accepts: &'static str,
    produces: MediaType,
    example: &'static [u8],
}

const JSON: &str = "application/json";
const ANY: &str = "*/*";

const ALL: &[Described] = &[
    of("echo", "returns its input, with its media type", ANY, MediaType::ANY, b"hello"),
    of(
        "primes",
        "counts the primes up to n, n <= 10^9, and finds the largest",
        JSON,
        MediaType::JSON,
        b"1000",
    ),
    of(
        "primes.batch",
        "the same as primes, n <= 10^7; several jobs run together and cost as much as the largest",
        JSON,
        MediaType::JSON,
        b"1000",
    ),
    of("average", "the average of 1..n, n <= 10^10, by adding them up", JSON, MediaType::JSON, b"1000"),
    of(
        "json",
        "parses a JSON document, measures it and writes it again",
        JSON,
        MediaType::JSON,
        br#"{"a":[1,2]}"#,
    ),
    of(
        "wordcount",
        "counts lines and words, and lists the ten most frequent words",
        "text/*",
        MediaType::JSON,
        b"to be or not to be",
    ),
    of("sha256", "the SHA-256 of any bytes, in hexadecimal", ANY, MediaType::TEXT, b"abc"),
    of(
        "pbkdf2",
        "PBKDF2 with HMAC-SHA256, in hexadecimal; iterations <= 10^7, length <= 1024",
        JSON,
        MediaType::TEXT,
        br#"{"password":"secret","salt":"salt","iterations":1000,"length":32}"#,
    ),
    of(
        "regex",
        "whether a pattern matches a text; engine: linear or backtracking (may take exponential time)",
        JSON,
        MediaType::JSON,
        br#"{"pattern":"a+b","text":"aaab","engine":"linear"}"#,
    ),
    of("gzip", "compresses any bytes", ANY, MediaType::OCTET_STREAM, b"abc"),
    of(
        "gunzip",
        "unpacks a gzip file, up to 64 MiB and 1000 times its size",
        ANY,
        MediaType::OCTET_STREAM,
        ABC_GZ,
    ),
    of(
        "thumbnail",
        "a small PNG of a PNG or JPEG file, longest side 256; any other input ends as app_error",
        "image/*",
        MediaType::PNG,
        ONE_GREY_PIXEL,
    ),
    of(
        "mandelbrot",
        "draws a part of the Mandelbrot set: its middle, how much the width shows, its size in pixels",
        JSON,
        MediaType::PNG,
        br#"{"x":-0.5,"y":0,"scale":3,"width":64,"height":48,"iterations":100}"#,
    ),
    of("sort", "sorts an array of numbers or of strings", JSON, MediaType::JSON, b"[3,1,2]"),
    of(
        "count",
        "the numbers 1..n, n <= 10^10, in parts: a line each, every so many ms",
        JSON,
        MediaType::TEXT,
        br#"{"to":3,"every_ms":1}"#,
    ),
    of(
        "sleep",
        "occupies its worker for so many milliseconds, at most an hour, and uses no CPU time",
        JSON,
        MediaType::JSON,
        b"10",
    ),
    of("spin", "uses so many milliseconds of CPU time, at most an hour", JSON, MediaType::JSON, b"10"),
    of(
        "fault",
        "misbehaves as it is told: panic, abort, segv, exit, kill, hang, leak, stack, garbage or close",
        JSON,
        MediaType::TEXT,
        br#"{"act":"panic","on_attempt":1}"#,
    ),
];

/// The text `abc` as a gzip file.
const ABC_GZ: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x4b\x4c\x4a\x06\0\xc2\x41\x24\x35\x03\0\0\0";

/// A PNG file.
const ONE_GREY_PIXEL: &[u8] =
    b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\
    \x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\xdach\x00\x00\x00\x82\x00\x81\xdaE\x08;\x00\x00\x00\
    \x00IEND\xaeB`\x82";

const fn of(
    task: &'static str,
    description: &'static str,
    accepts: &'static str,
    produces: MediaType,
    example: &'static [u8],
) -> Described {
    Described { task, description, accepts, produces, example }
}

/// The task with its description.
///
/// # Panics
/// If it has none: a mistake in the list above, which the tests find.
pub(super) fn described(task: Task) -> Task {
    let Described { description, accepts, produces, example, .. } =
        ALL.iter().find(|described| described.task == task.name()).expect("each built-in task is described");
    let accepts: MediaType = accepts.parse().expect("a media type");
    let schema = schema_of(task.name()).map_or(String::new(), |schema| schema.to_string());
    task.description(*description)
        .accepts([accepts])
        .produces(produces.clone())
        .example(*example)
        .schema(schema)
}

#[cfg(test)]
mod tests {
    use crate::builtin;
    use crate::test_supervisor::{Said, TestSupervisor};
    use offload_protocol::nouns::FailureKind;

    #[test]
    fn each_example_works_and_returns_what_is_said() {
        let (mut supervisor, _serving) = TestSupervisor::of_builtin();
        for (job, task) in (1..).zip(builtin::tasks(true)) {
            let (name, described) = (task.name(), task.described());
            assert!(!described.example.is_empty() && !described.about.description.is_empty(), "{name}");
            supervisor.add_run(job, name, described.example.to_vec()).send();
            assert_eq!(supervisor.hear(), Said::Started { job, attempt: 1 });
            match supervisor.hear_the_end() {
                Said::Finished { media_type, .. } => {
                    assert!(media_type.matches(&described.about.produces), "{name}: {media_type}");
                }
                // Its example tells it to panic.
                Said::Failed { kind: FailureKind::Panic, .. } if name == "fault" => {}
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
