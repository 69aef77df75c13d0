//! `gzip` and `gunzip`. What is unpacked is bounded twice, because a small file can claim to be enormous: in size, and
//! in size relative to the file.

use crate::limits::{UNPACKED_FREE, UNPACKED_MAX, UNPACKED_RATIO_MAX};
use crate::task::{Output, Task, TaskError};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

pub(super) fn gzip_task() -> Task {
    Task::raw("gzip", |input, _| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&input.bytes)?;
        Ok(Output::bytes(encoder.finish()?))
    })
}

pub(super) fn gunzip_task() -> Task {
    Task::raw("gunzip", |input, _| Ok(Output::bytes(gunzip(&input.bytes)?)))
}

fn gunzip(file: &[u8]) -> Result<Vec<u8>, TaskError> {
    let max = unpacked_max(file.len());
    let mut unpacked = Vec::new();
    // One byte more than allowed tells a file that is too large from one that fits exactly.
    MultiGzDecoder::new(file)
        .take(max as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| TaskError::new(format_args!("the input is not a whole gzip file: {error}")))?;
    if unpacked.len() > max {
        let length = file.len();
        return Err(TaskError::new(format_args!(
            "{length} bytes unpack to more than {max}; the limits are {UNPACKED_MAX} bytes, and {UNPACKED_RATIO_MAX} times \
             the input if that is over {UNPACKED_FREE}"
        )));
    }
    Ok(unpacked)
}

fn unpacked_max(packed: usize) -> usize {
    packed.saturating_mul(UNPACKED_RATIO_MAX).clamp(UNPACKED_FREE, UNPACKED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::{answer, answer_bytes};
    use proptest::prelude::*;
    use std::process::{Command, Stdio};

    fn packed(bytes: impl Into<crate::Bytes>) -> Vec<u8> {
        answer_bytes("gzip", bytes).unwrap()
    }

    /// Bytes through the program `gzip` of the system.
    fn by_the_system(arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
        let mut gzip = Command::new("gzip");
        let mut child = gzip.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    fn text() -> Vec<u8> {
        (0..50_000).flat_map(|i| format!("line {i} of many\n").into_bytes()).collect()
    }

    #[test]
    fn the_systems_gunzip_reads_what_gzip_writes() {
        assert_eq!(by_the_system(&["-d"], &packed(text())), text());
        assert_eq!(by_the_system(&["-d"], &packed("")), b"");
    }

    #[test]
    fn gunzip_reads_what_the_systems_gzip_writes_also_in_several_parts() {
        let mut file = by_the_system(&["-9"], &text());
        assert_eq!(answer_bytes("gunzip", file.clone()), Ok(text()));
        file.extend(by_the_system(&["-1"], b"and more"));
        assert_eq!(answer_bytes("gunzip", file), Ok([text(), b"and more".to_vec()].concat()));
    }

    #[test]
    fn a_bomb_is_refused_by_ratio_and_by_size() {
        let by_ratio = answer("gunzip", packed(vec![0; 32 << 20])).unwrap_err();
        assert!(by_ratio.contains("1000 times the input"), "{by_ratio}");
        let huge: Vec<u8> = packed(text()).repeat(100);
        let by_size = answer("gunzip", huge).unwrap_err();
        assert!(by_size.contains("unpack to more than 67108864"), "{by_size}");
    }

    #[test]
    fn a_small_file_may_unpack_at_any_ratio() {
        let zeroes = vec![0; UNPACKED_FREE];
        assert_eq!(answer_bytes("gunzip", packed(zeroes.clone())), Ok(zeroes));
    }

    #[test]
    fn gunzip_refuses_an_input_that_is_no_gzip_file_or_only_part_of_one() {
        let whole = packed(text());
        for broken in [&b""[..], b"no gzip file", &whole[..whole.len() - 1], &whole[..20]] {
            let error = answer("gunzip", broken.to_vec()).unwrap_err();
            assert!(error.starts_with("the input is not a whole gzip file"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn gunzip_returns_what_gzip_was_given(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(answer_bytes("gunzip", packed(bytes.clone())), Ok(bytes));
        }
    }
}
