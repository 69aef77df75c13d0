//! `sha256` and `pbkdf2`: bytes or passwords to digests, as hexadecimal text.

use super::whole::whole;
use crate::limits::{DIGEST_ITERATIONS_MAX, DIGEST_LENGTH_MAX};
use crate::task::{Input, Output, Task, TaskError};
use pbkdf2::pbkdf2_hmac;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Pbkdf2 {
    password: String,
    salt: String,
    #[serde(deserialize_with = "whole")]
    iterations: u64,
    /// Bytes to derive.
    #[serde(deserialize_with = "whole")]
    length: u64,
}

pub(super) fn sha256_task() -> Task {
    Task::raw("sha256", |input, _| Ok(Output::text(hexadecimal(&Sha256::digest(&input.bytes)))))
}

pub(super) fn pbkdf2_task() -> Task {
    Task::raw("pbkdf2", |input, _| derive(&input))
}

pub(super) fn derive(input: &Input) -> Result<Output, TaskError> {
    let request: Pbkdf2 = input.json()?;
    let iterations = u32::try_from(bounded("iterations", request.iterations, DIGEST_ITERATIONS_MAX)?)?;
    let length = usize::try_from(bounded("length", request.length, DIGEST_LENGTH_MAX)?)?;
    let mut key = vec![0; length];
    pbkdf2_hmac::<Sha256>(request.password.as_bytes(), request.salt.as_bytes(), iterations, &mut key);
    Ok(Output::text(hexadecimal(&key)))
}

/// `value` if it is 1 to `max`.
fn bounded(name: &str, value: u64, max: u64) -> Result<u64, TaskError> {
    if !(1..=max).contains(&value) {
        return Err(TaskError::new(format_args!("{name} is {value}, it must be 1 to {max}")));
    }
    Ok(value)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::test_supervisor::answer_text;

    /// FIPS 180-2, appendix B, and the digest of nothing.
    #[test]
    fn sha256_gives_the_published_digests() {
        let vectors = [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (message, digest) in vectors {
            assert_eq!(answer_text("sha256", message).as_deref(), Ok(digest));
        }
    }

    /// RFC 7914, section 11.
    #[test]
    fn pbkdf2_gives_the_published_keys() {
        let vectors = [
            (
                r#"{"password":"passwd","salt":"salt","iterations":1,"length":64}"#,
                "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                 49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783",
            ),
            (
                r#"{"password":"Password","salt":"NaCl","iterations":80000,"length":64}"#,
                "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
                 a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d",
            ),
        ];
        for (request, key) in vectors {
            assert_eq!(answer_text("pbkdf2", request).as_deref(), Ok(key));
        }
    }

    #[test]
    fn pbkdf2_names_the_bound_that_is_broken() {
        let request = |iterations: u64, length: u64| {
            let text =
                format!(r#"{{"password":"p","salt":"s","iterations":{iterations},"length":{length}}}"#);
            answer_text("pbkdf2", text).unwrap_err()
        };
        assert_eq!(request(0, 32), "iterations is 0, it must be 1 to 10000000");
        assert_eq!(request(5_000_000_000, 32), "iterations is 5000000000, it must be 1 to 10000000");
        assert_eq!(request(1, 1025), "length is 1025, it must be 1 to 1024");
    }
}
