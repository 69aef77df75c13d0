//! The source of a batch's inputs: the command line, a range of numbers, or the lines of a file or of standard input.

use super::batch::{BatchInput, Notes};
use super::input::Input;
use crate::limits::RANGE_MAX;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// See the module's documentation.
pub(crate) enum InputSource {
    /// All inputs are known from the start.
    Known(KnownInputs),
    /// They are read on demand, on a thread, because reading may wait for a person at a keyboard.
    Lines(Box<InputLines>),
}

/// Inputs of which it is known how many there are.
pub(crate) struct KnownInputs {
    inputs: Box<dyn Iterator<Item = Input>>,
    left: u64,
}

impl KnownInputs {
    /// These inputs.
    pub(crate) fn list(inputs: Vec<Input>) -> KnownInputs {
        KnownInputs { left: inputs.len() as u64, inputs: Box::new(inputs.into_iter()) }
    }

    /// Each number of the range, as text.
    pub(crate) fn range(Range { first, last }: Range) -> KnownInputs {
        let inputs = (first..=last).map(|number| Input::Literal(number.to_string().into_bytes()));
        KnownInputs { left: last - first + 1, inputs: Box::new(inputs) }
    }

    /// How many were not taken.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Takes up to `most` inputs.
    pub(crate) fn take(&mut self, most: u64) -> TakenInputs {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let inputs: Vec<BatchInput> = self.inputs.by_ref().take(most).map(BatchInput::from).collect();
        self.left -= inputs.len() as u64;
        TakenInputs { inputs, is_last: self.left == 0 }
    }
}

/// A range of numbers, of which the first is not behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: u64,
    last: u64,
}

/// For clap: `1-100`.
pub(crate) fn parse_range(text: &str) -> Result<Range, String> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= RANGE_MAX);
    let ends = text.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?)));
    match ends {
        None => Err(format!("a range is two numbers of at most {RANGE_MAX}, such as 1-100")),
        Some((first, last)) if first > last => Err(format!("the range is empty: {first} comes after {last}")),
        Some((first, last)) => Ok(Range { first, last }),
    }
}

/// Some inputs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenInputs {
    /// In order.
    pub(crate) inputs: Vec<BatchInput>,
    /// There will be no more.
    pub(crate) is_last: bool,
}

/// What a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineMeaning {
    /// The input itself.
    Input,
    /// The path of a regular file that holds the input.
    Path,
    /// A path, of which the name is the input: it has a place in a command.
    Name,
}

/// The lines of a stream. A line ends with LF, or with another byte that was chosen; the last one may lack it.
pub(crate) struct InputLines {
    reader: BufReader<Box<dyn Read + Send>>,
    line: LineMeaning,
    /// The byte at the end of a line.
    end: u8,
    /// The start of a line whose end has not been read.
    begun: Vec<u8>,
    /// How much of a line is kept: enough to see that it is too long.
    kept_max: usize,
}

impl InputLines {
    /// The lines of `stream`, none of which should be longer than `line_max` bytes.
    pub(crate) fn new(stream: impl Read + Send + 'static, line: LineMeaning, line_max: u64) -> InputLines {
        let kept_max = usize::try_from(line_max.saturating_add(1)).unwrap_or(usize::MAX);
        InputLines {
            reader: BufReader::with_capacity(64 << 10, Box::new(stream)),
            line,
            end: b'\n',
            begun: Vec::new(),
            kept_max,
        }
    }

    /// The same, with lines that end with this byte.
    pub(crate) fn ending_with(self, end: u8) -> InputLines {
        InputLines { end, ..self }
    }

    /// Waits for the next line, then takes all lines that are already there, up to `most`.
    pub(crate) fn take(&mut self, most: u64) -> io::Result<TakenInputs> {
        let mut taken = TakenInputs::default();
        while (taken.inputs.len() as u64) < most {
            let read = match self.reader.fill_buf() {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if read.is_empty() {
                taken.is_last = true;
                taken.inputs.extend((!self.begun.is_empty()).then(|| self.end_line()));
                break;
            }
            let end = read.iter().position(|byte| *byte == self.end);
            let piece = &read[..end.unwrap_or(read.len())];
            let room = self.kept_max.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            let used = piece.len() + usize::from(end.is_some());
            self.reader.consume(used);
            taken.inputs.extend(end.map(|_| self.end_line()));
            if !taken.inputs.is_empty() && self.reader.buffer().is_empty() {
                break;
            }
        }
        Ok(taken)
    }

    fn end_line(&mut self) -> BatchInput {
        let line = std::mem::take(&mut self.begun);
        let path = || PathBuf::from(OsString::from_vec(line.clone()));
        let of_file = |input| BatchInput { input, notes: Notes { file: Some(path()), ..Notes::default() } };
        match self.line {
            LineMeaning::Input => Input::Literal(line).into(),
            LineMeaning::Path => of_file(Input::Listed(path())),
            LineMeaning::Name => of_file(Input::Listed(path()).named()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns one piece per read.
    struct Pieces(std::vec::IntoIter<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.next().unwrap_or_default();
            space[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn lines(pieces: &[&str], line_max: u64) -> InputLines {
        let pieces: Vec<_> = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
        InputLines::new(Pieces(pieces.into_iter()), LineMeaning::Input, line_max)
    }

    fn texts(taken: &TakenInputs) -> Vec<String> {
        let text = |taken: &BatchInput| match &taken.input {
            Input::Literal(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => format!("{other:?}"),
        };
        taken.inputs.iter().map(text).collect()
    }

    #[test]
    fn what_is_there_is_taken_without_waiting_for_more() {
        let mut lines = lines(&["a\nb\nc", "d\n", "e"], 100);
        let first = lines.take(100).unwrap();
        assert_eq!((texts(&first), first.is_last), (vec!["a".to_owned(), "b".to_owned()], false));
        assert_eq!(texts(&lines.take(100).unwrap()), ["cd"]);
        let last = lines.take(100).unwrap();
        assert_eq!((texts(&last), last.is_last), (vec!["e".to_owned()], true));
    }

    #[test]
    fn no_more_lines_are_taken_than_wanted() {
        let mut lines = lines(&["a\nb\nc\n"], 100);
        assert_eq!(texts(&lines.take(2).unwrap()), ["a", "b"]);
        assert_eq!(texts(&lines.take(2).unwrap()), ["c"]);
        assert_eq!(lines.take(2).unwrap(), TakenInputs { is_last: true, ..TakenInputs::default() });
    }

    #[test]
    fn an_empty_line_is_an_empty_input_but_the_end_is_none() {
        assert_eq!(texts(&lines(&["\n\na\n"], 100).take(100).unwrap()), ["", "", "a"]);
        assert_eq!(
            lines(&[], 100).take(100).unwrap(),
            TakenInputs { is_last: true, ..TakenInputs::default() }
        );
    }

    #[test]
    fn of_a_line_that_is_too_long_only_so_much_is_kept_as_shows_it() {
        let mut lines = lines(&["123456", "789\nnext\n"], 4);
        assert_eq!(texts(&lines.take(100).unwrap()), ["12345", "next"]);
    }

    #[test]
    fn a_line_may_be_the_path_of_a_file() {
        let mut lines = InputLines::new(&b"a b.txt\n"[..], LineMeaning::Path, 100);
        let notes = Notes { file: Some("a b.txt".into()), ..Notes::default() };
        let named = BatchInput { input: Input::Listed("a b.txt".into()), notes };
        assert_eq!(lines.take(1).unwrap().inputs, [named]);
    }

    #[test]
    fn lines_that_end_with_a_zero_byte_may_contain_line_ends() {
        let mut lines = lines(&["a\nb\0", "c"], 100).ending_with(0);
        assert_eq!(texts(&lines.take(100).unwrap()), ["a\nb"]);
        assert_eq!(texts(&lines.take(100).unwrap()), ["c"]);
    }

    #[test]
    fn a_range_has_both_of_its_ends() {
        let mut numbers = KnownInputs::range(parse_range("9-11").unwrap());
        let first = numbers.take(2);
        assert_eq!((texts(&first), first.is_last, numbers.left()), (vec!["9".into(), "10".into()], false, 1));
        let last = numbers.take(2);
        assert_eq!((texts(&last), last.is_last), (vec!["11".to_owned()], true));
        for wrong in ["", "1", "-", "3-2", "a-b", "1-", "-1-2", "0-99999999999999999999", "1..3"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn however_the_bytes_come_the_lines_are_the_same(
            written in proptest::collection::vec("[a-z]{0,5}", 0..20),
            cuts in proptest::collection::vec(1usize..12, 1..10),
            most in 1u64..5,
        ) {
            let bytes: Vec<u8> = written.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let (mut pieces, mut rest, mut turn) = (Vec::new(), &bytes[..], 0);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts[turn % cuts.len()].min(rest.len()));
                pieces.push(piece.to_vec());
                (rest, turn) = (after, turn + 1);
            }
            let mut lines = InputLines::new(Pieces(pieces.into_iter()), LineMeaning::Input, 100);
            let mut read = Vec::new();
            loop {
                let taken = lines.take(most).unwrap();
                read.extend(texts(&taken));
                if taken.is_last { break; }
            }
            prop_assert_eq!(read, written);
        }
    }
}
