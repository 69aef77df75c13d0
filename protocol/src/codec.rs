//! Turns headers into bytes and bytes into headers. Only this module knows which serializer is used.
//!
//! The format is that of bincode 2 with fixed-width little-endian integers. The documentation of this crate describes it byte
//! by byte. bincode is no longer maintained (RUSTSEC-2025-0141), so the golden vectors (`vectors.json`) fix the exact bytes. Another
//! serializer can replace it here without a change on the wire.
//!
//! Decoding borrows texts from the input where the message type allows it, and a list that claims an absurd length allocates
//! nothing. A header that is longer than [`HEADER_MAX`], or has bytes after the message, is refused.

use crate::limits::{HEADER_MAX, PREFIX_BYTES};
use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Deserialize, Serialize};
use std::fmt;

const CONFIGURATION: Configuration<LittleEndian, Fixint, Limit<HEADER_MAX>> =
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit::<HEADER_MAX>();

/// Why a header could not be read. Its sender broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are not a message of this direction.
    Malformed(String),
    /// The message ends before the header does.
    TrailingBytes {
        /// Number of bytes left over.
        left: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Malformed(reason) => write!(formatter, "malformed header: {reason}"),
            DecodeError::TrailingBytes { left } => write!(formatter, "{left} bytes too many in a header"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why a message could not be encoded: it is longer than the wire allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The header would be longer than [`HEADER_MAX`].
    HeaderTooLong,
    /// The payload's length does not fit into the prefix.
    PayloadTooLong {
        /// Its length.
        length: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::HeaderTooLong => write!(formatter, "header over {HEADER_MAX} bytes"),
            EncodeError::PayloadTooLong { length } => write!(formatter, "payload of {length} bytes"),
        }
    }
}

impl std::error::Error for EncodeError {}

/// Reads one header.
///
/// # Errors
/// [`DecodeError`] if the bytes are not exactly one message.
pub fn decode<'a, M: Deserialize<'a>>(header: &'a [u8]) -> Result<M, DecodeError> {
    let (message, used) = bincode::serde::borrow_decode_from_slice(header, CONFIGURATION)
        .map_err(|error| DecodeError::Malformed(in_words(&error)))?;
    match header.len() - used {
        0 => Ok(message),
        left => Err(DecodeError::TrailingBytes { left }),
    }
}

/// What is wrong with a header, in words that do not depend on the serializer.
fn in_words(error: &bincode::error::DecodeError) -> String {
    use bincode::error::DecodeError;
    match error {
        DecodeError::OtherString(what) => what.clone(),
        DecodeError::UnexpectedEnd { .. } => "it ends too early".to_owned(),
        DecodeError::Utf8 { .. } => "a text is not UTF-8".to_owned(),
        other => other.to_string(),
    }
}

/// Appends prefix and header to `out`; the caller appends the `payload_length` bytes of the payload.
///
/// # Errors
/// [`EncodeError`] if the message is longer than the wire allows. Then `out` is unchanged.
pub fn encode<M: Serialize>(
    message: &M,
    payload_length: usize,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let too_long = EncodeError::PayloadTooLong { length: payload_length };
    let payload_length = u32::try_from(payload_length).map_err(|_| too_long)?;
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let written = bincode::serde::encode_into_std_write(message, out, CONFIGURATION);
    let header_length = out.len() - start - PREFIX_BYTES;
    if written.is_err() || header_length > HEADER_MAX {
        out.truncate(start);
        return Err(EncodeError::HeaderTooLong);
    }
    out[start..start + 4].copy_from_slice(&(header_length as u32).to_le_bytes());
    out[start + 4..start + PREFIX_BYTES].copy_from_slice(&payload_length.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::*;
    use crate::nouns::*;
    use proptest::prelude::*;

    fn bytes_of(message: &impl Serialize) -> Vec<u8> {
        let mut out = Vec::new();
        encode(message, 0, &mut out).unwrap();
        out.split_off(PREFIX_BYTES)
    }

    #[test]
    fn the_prefix_holds_both_lengths() {
        let mut out = b"before".to_vec();
        encode(&ToWorker::Drain, 300, &mut out).unwrap();
        assert_eq!(&out[6..14], b"\x04\0\0\0\x2c\x01\0\0");
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert_eq!(decode::<ToWorker>(b"\x03\0\0\0!"), Err(DecodeError::TrailingBytes { left: 1 }));
    }

    #[test]
    fn a_header_over_the_limit_is_refused_on_both_sides_and_leaves_the_buffer_alone() {
        let text = "x".repeat(HEADER_MAX);
        let mut out = b"before".to_vec();
        let message = ToSupervisor::Wait { ticket: 1, job: &text };
        assert_eq!(encode(&message, 0, &mut out), Err(EncodeError::HeaderTooLong));
        assert_eq!(out, b"before");

        let mut bytes = b"\x02\0\0\0\x07\0\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        assert!(matches!(decode::<ToSupervisor>(&bytes), Err(DecodeError::Malformed(_))));
    }

    /// A header that claims a list of 2^64 media types must cost nothing (bincode without a limit aborts on such input).
    #[test]
    fn a_list_of_absurd_length_is_refused() {
        let mut bytes = bytes_of(&FromWorker::Offer {
            task: TaskOffer::new("a"),
            about: TaskDescription::default(),
            example_length: 0,
            schema_length: 0,
        });
        // Behind the number, the name, six fields and an empty description.
        let list = 4 + 9 + 11 + 8;
        bytes[list..list + 8].fill(0xff);
        assert!(decode::<FromWorker>(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_at_all_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<ToWorker>(&bytes);
            let _ = decode::<FromWorker>(&bytes);
            let _ = decode::<ToSupervisor>(&bytes);
            let _ = decode::<ToClient>(&bytes);
        }

        #[test]
        fn a_message_that_was_decoded_encodes_to_the_same_bytes(variant in 0u8..10, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut header = vec![variant, 0, 0, 0];
            header.extend(bytes);
            if let Ok(message) = decode::<FromWorker>(&header) {
                prop_assert_eq!(bytes_of(&message), header);
            }
        }
    }
}
