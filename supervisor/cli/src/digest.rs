//! The digests of inputs and outputs, as the job log has them: `sha256:` and 64 digits.

use sha2::{Digest, Sha256};
use std::io::{self, BufRead, BufReader, Read};

/// The digest of these bytes.
pub(crate) fn digest_of_bytes(bytes: &[u8]) -> String {
    text(Sha256::new_with_prefix(bytes))
}

/// The digest of all that can be read there.
pub(crate) fn digest_of_content(content: impl Read) -> io::Result<String> {
    let mut content = BufReader::with_capacity(64 << 10, content);
    let mut hasher = Sha256::new();
    while let piece = content.fill_buf()?
        && !piece.is_empty()
    {
        let length = piece.len();
        hasher.update(piece);
        content.consume(length);
    }
    Ok(text(hasher))
}

fn text(hasher: Sha256) -> String {
    hasher.finalize().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_sha256sum() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(
            (digest_of_bytes(b"").as_str(), digest_of_content(&b""[..]).unwrap().as_str()),
            (empty, empty)
        );
        let long = vec![7; 200_000];
        assert_eq!(digest_of_content(&long[..]).unwrap(), digest_of_bytes(&long));
    }
}
