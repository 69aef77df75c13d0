//! What is known of a request that was refused before it was understood: the words of its first line, as far as they have come.

use crate::limits::LOGGED_FIELD_MAX;
use crate::tls::TlsVersion;

/// A request, or a whole connection, that was refused, for the access log.
pub(crate) struct Refused {
    pub(crate) status: u16,
    /// Of the body of the answer.
    pub(crate) bytes: usize,
    pub(crate) first_line: FirstLine,
    pub(crate) tls: Option<TlsVersion>,
}

/// The first line of a request. What has not come, or is not what should be there, is empty; what is long is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstLine {
    pub(crate) method: String,
    pub(crate) target: Vec<u8>,
    pub(crate) version: String,
}

impl FirstLine {
    /// Of these bytes, with which a request begins.
    pub(crate) fn of(bytes: &[u8]) -> FirstLine {
        // As the guard has it.
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let is_method = |word: &&[u8]| !word.is_empty() && word.iter().all(|byte| is_of_method(*byte));
        let method = words.next().filter(is_method);
        let Some(method) = method else { return FirstLine::default() };
        FirstLine {
            method: text(method),
            target: cut(words.next().unwrap_or_default()),
            version: text(words.next().filter(|word| word.starts_with(b"HTTP/")).unwrap_or_default()),
        }
    }

    /// Whether the answer has no content.
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

/// RFC 9110, 5.6.2.
fn is_of_method(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(&cut(word)).into_owned()
}

/// As much of a text as is logged.
pub(crate) fn cut(text: &[u8]) -> Vec<u8> {
    text[..text.len().min(LOGGED_FIELD_MAX)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> [String; 3] {
        let line = FirstLine::of(bytes);
        [line.method, String::from_utf8(line.target).unwrap(), line.version]
    }

    #[test]
    fn the_words_of_the_first_line_are_known_as_far_as_they_have_come() {
        assert_eq!(words(b"HEAD /a?b HTTP/1.1\r\nHost: x"), ["HEAD", "/a?b", "HTTP/1.1"]);
        assert_eq!(words(b"\r\nGET /a b c HTTP/1.1\r\n"), ["GET", "/a", ""]);
        assert_eq!(words(b"GET /a\rb HTTP/1.1"), ["GET", "/a", ""]);
        assert_eq!(words(b"DELETE /half"), ["DELETE", "/half", ""]);
        assert_eq!(words(b"PU"), ["PU", "", ""]);
        for nothing in
            [&b""[..], b" / HTTP/1.1\r\n", b"\r\n\r\nGET / HTTP/1.1\r\n", b"\x16\x03\x01", b"{\"a\":1} /"]
        {
            assert_eq!(words(nothing), ["", "", ""], "{nothing:?}");
        }
        let long = [b"GET /", &[b'x'; 3000][..], b" HTTP/1.1\r\n"].concat();
        assert_eq!(FirstLine::of(&long).target.len(), LOGGED_FIELD_MAX);
    }

    #[test]
    fn only_a_head_is_answered_without_content() {
        let is_head = |bytes: &[u8]| FirstLine::of(bytes).is_head();
        assert!(is_head(b"HEAD / HTTP/1.1\r\n") && is_head(b"HEAD /") && is_head(b"\r\nHEAD "));
        assert!(!is_head(b"head / HTTP/1.1\r\n") && !is_head(b"HEADS /") && !is_head(b" HEAD /"));
    }
}
