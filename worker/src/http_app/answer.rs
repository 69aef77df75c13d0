//! Answers: bytes in, what they mean out. Nothing is read or waited for here.

use crate::Bytes;
use crate::limits::HTTP_APP_HEAD_MAX;
use ureq_proto::BodyMode;
use ureq_proto::client::state::{RecvBody, RecvResponse};
use ureq_proto::client::{Call, RecvResponseResult};
use ureq_proto::http::Response;

/// What comes, in this order: a head, pieces, the end.
#[derive(Debug)]
pub(super) enum Event {
    Head(Head),
    Piece(Bytes),
    End,
}

/// The status and the fields of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    /// The length of the body, if it is known before.
    pub(super) length: Option<u64>,
}

/// See the module's documentation.
pub(super) struct Answer {
    state: State,
    head_bytes: usize,
}

enum State {
    Head(Call<RecvResponse>),
    Body(Call<RecvBody>),
    Over,
}

impl Answer {
    pub(super) fn new(call: Call<RecvResponse>) -> Answer {
        Answer { state: State::Head(call), head_bytes: 0 }
    }

    /// Takes what is next from what was received. `None` if more has to come for that. `is_all` says that no more will.
    ///
    /// # Errors
    /// What was received is no answer. This is a sentence without its subject.
    pub(super) fn next(&mut self, received: &mut Vec<u8>, is_all: bool) -> Result<Option<Event>, String> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Head(call) => self.next_head(call, received),
            State::Body(call) => self.next_piece(call, received, is_all),
            State::Over => Ok(Some(Event::End)),
        }
    }

    /// Whether its body goes on until the connection ends, because nothing else says where it ends.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(&self.state, State::Body(call) if call.body_mode() == BodyMode::CloseDelimited)
    }

    /// The head, without those of 1xx answers before it.
    fn next_head(
        &mut self,
        mut call: Call<RecvResponse>,
        received: &mut Vec<u8>,
    ) -> Result<Option<Event>, String> {
        loop {
            let (used, response) = call
                .try_response(received, false)
                .map_err(|error| format!("sent what is no answer in HTTP/1.1: {error}"))?;
            received.drain(..used);
            self.head_bytes += used;
            let incomplete = if response.is_none() { received.len() } else { 0 };
            if self.head_bytes + incomplete > HTTP_APP_HEAD_MAX {
                return Err(format!("sent a head of more than {HTTP_APP_HEAD_MAX} bytes"));
            }
            match response {
                Some(response) => return Ok(Some(Event::Head(self.begin_body(call, response)))),
                None if used > 0 => {}
                None => {
                    self.state = State::Head(call);
                    return Ok(None);
                }
            }
        }
    }

    fn begin_body(&mut self, call: Call<RecvResponse>, response: Response<()>) -> Head {
        let Some(RecvResponseResult::RecvBody(call)) = call.proceed() else {
            return Head { response, length: Some(0) };
        };
        let length = match call.body_mode() {
            BodyMode::LengthDelimited(length) => Some(length),
            BodyMode::NoBody => Some(0),
            BodyMode::Chunked | BodyMode::CloseDelimited => None,
        };
        self.state = State::Body(call);
        Head { response, length }
    }

    fn next_piece(
        &mut self,
        mut call: Call<RecvBody>,
        received: &mut Vec<u8>,
        is_all: bool,
    ) -> Result<Option<Event>, String> {
        let mut piece = vec![0; received.len()];
        let (used, length) = call
            .read(received, &mut piece)
            .map_err(|error| format!("sent a body that is none in HTTP/1.1: {error}"))?;
        received.drain(..used);
        piece.truncate(length);
        let is_over = match call.body_mode() {
            BodyMode::CloseDelimited => is_all && received.is_empty(),
            _ => call.can_proceed(),
        };
        if used == 0 && received.len() > HTTP_APP_HEAD_MAX {
            return Err(format!("sent a line of more than {HTTP_APP_HEAD_MAX} bytes between two chunks"));
        }
        if !is_over {
            self.state = State::Body(call);
        }
        Ok(match (length, is_over) {
            (0, true) => Some(Event::End),
            (0, false) => None,
            _ => Some(Event::Piece(piece.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_app::request::Request;

    fn asked() -> Answer {
        Answer::new(Request::to_find_out_whether_it_answers().unwrap().answer)
    }

    /// The status, the body and the announced length of an answer that comes in pieces of this many bytes. `Err` is what is
    /// wrong, or that the end came too early.
    fn heard(text: &[u8], at_once: usize) -> Result<(u16, String, Option<u64>), String> {
        let (mut answer, mut received) = (asked(), Vec::new());
        let (mut status, mut body, mut announced) = (0, Vec::new(), None);
        let mut chunks = text.chunks(at_once);
        let mut is_all = false;
        loop {
            match answer.next(&mut received, is_all)? {
                Some(Event::Head(Head { response, length })) => {
                    (status, announced) = (response.status().as_u16(), length);
                }
                Some(Event::Piece(piece)) => body.extend_from_slice(&piece),
                Some(Event::End) => return Ok((status, String::from_utf8(body).unwrap(), announced)),
                None if is_all => return Err("too early".to_owned()),
                None => match chunks.next() {
                    Some(more) => received.extend_from_slice(more),
                    None => is_all = true,
                },
            }
        }
    }

    fn is(text: &str, expected: (u16, &str, Option<u64>)) {
        for at_once in [1, 2, 3, 7, 100_000] {
            let (status, body, length) = heard(text.as_bytes(), at_once).unwrap();
            assert_eq!((status, body.as_str(), length), expected, "{text:?}, {at_once} bytes at once");
        }
    }

    #[test]
    fn a_body_ends_by_its_length_its_last_chunk_or_its_connection() {
        is("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, "abc", Some(3)));
        is("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "", Some(0)));
        is(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            (200, "abc", None),
        );
        is(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
            (200, "a", None),
        );
        is("HTTP/1.1 200 OK\r\n\r\nabc", (200, "abc", None));
        is("HTTP/1.0 500 No\r\nServer: x\r\n\r\nabc", (500, "abc", None));
        is("HTTP/1.1 204 No Content\r\n\r\n", (204, "", Some(0)));
    }

    #[test]
    fn answers_before_the_answer_and_a_second_one_behind_it_are_none() {
        is(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            (200, "a", Some(1)),
        );
        let twice = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na".repeat(2);
        is(&twice, (200, "a", Some(1)));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        for length in 0..whole.len() {
            assert_eq!(heard(&whole[..length], 5), Err("too early".to_owned()), "{length} bytes");
        }
        assert!(heard(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", 100).is_err());
    }

    /// The bound is that of the parser.
    #[test]
    fn a_head_has_at_most_128_fields() {
        let with = |fields: usize| format!("HTTP/1.1 204 No Content\r\n{}\r\n", "X: y\r\n".repeat(fields));
        is(&with(128), (204, "", Some(0)));
        assert!(heard(with(129).as_bytes(), 40_000).is_err());
    }

    #[test]
    fn what_is_no_answer_is_told_and_bounded() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </abcdefghijklmnopqrstuvwxyz>\r\n\r\n".repeat(10_000);
        let size = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(1 << 20));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1000));
        for (text, wrong) in [
            (long.as_str(), "head of more than 65536"),
            (&hints, "head of more than 65536"),
            (&size, "between two chunks"),
            (&many, "no answer in HTTP/1.1"),
            ("hello\r\n\r\n", "no answer in HTTP/1.1"),
            ("HTTP/2 200\r\n\r\n", "no answer in HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", "body that is none"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "no answer in HTTP/1.1"),
        ] {
            let found = heard(text.as_bytes(), 40_000);
            assert!(found.as_ref().is_err_and(|told| told.contains(wrong)), "{wrong}: {found:?}");
        }
    }
}
