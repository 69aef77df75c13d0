//! A JSON array that is measured element by element. One step measures one element, however many there are.
//!
//! Each element is read twice: once to find its end, and once to measure it. This is a cost of partitioning, which the
//! other strategies do not have.

use bytes::Bytes;
use offload_worker::TaskError;
use offload_worker::builtin::json::{Measures, measure};
use serde::de::IgnoredAny;
use serde_json::json;
use std::ops::ControlFlow;

/// An array of `elements` objects. All have the same shape; each is about as long as a row of a table.
pub(super) fn document(elements: u64) -> Bytes {
    let element = |id: u64| {
        json!({
            "id": id,
            "name": format!("item {id}"),
            "price": (id % 1000) as f64 / 4.0,
            "in_stock": id.is_multiple_of(3),
            "tags": ["new", null],
        })
    };
    serde_json::Value::from_iter((0..elements).map(element)).to_string().into()
}

/// The state of measuring one array.
pub(super) struct ArraySteps {
    document: Bytes,
    /// Everything before this position is measured. At it is the bracket or comma in front of the next element.
    position: usize,
    elements: u64,
    /// The sum over the elements so far.
    inner: Measures,
}

impl ArraySteps {
    /// The state before the first step. It does not read the document yet.
    pub(super) fn new(document: Bytes) -> ArraySteps {
        ArraySteps { document, position: 0, elements: 0, inner: Measures::default() }
    }

    /// Measures one element. After the last one, breaks with the measure of the whole document, or with why it is not
    /// an array.
    pub(super) fn step(&mut self) -> ControlFlow<Result<Measures, TaskError>> {
        match self.advance() {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(Ok(self.measures())),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// Breaks at the end of the document.
    fn advance(&mut self) -> Result<ControlFlow<()>, TaskError> {
        let is_first = self.elements == 0;
        self.take(if is_first { b'[' } else { b',' })?;
        let is_empty = is_first && self.peek() == Some(b']');
        if !is_empty {
            self.measure_element()?;
        }
        if self.peek() != Some(b']') {
            return Ok(ControlFlow::Continue(()));
        }
        self.take(b']')?;
        match self.peek() {
            None => Ok(ControlFlow::Break(())),
            Some(_) => Err(self.error("the end")),
        }
    }

    fn measure_element(&mut self) -> Result<(), TaskError> {
        let rest = &self.document[self.position..];
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        values.next().ok_or_else(|| self.error("an element"))??;
        let length = values.byte_offset();
        self.add(&measure(&rest[..length])?);
        self.position += length;
        Ok(())
    }

    fn add(&mut self, element: &Measures) {
        self.elements += 1;
        self.inner.values += element.values;
        self.inner.depth = self.inner.depth.max(element.depth);
        self.inner.minified_bytes += element.minified_bytes;
        self.inner.largest_array = self.inner.largest_array.max(element.largest_array);
    }

    /// The elements and the array around them: one more value, two brackets, and commas in between.
    fn measures(&self) -> Measures {
        Measures {
            bytes: self.document.len(),
            values: self.inner.values + 1,
            depth: self.inner.depth + 1,
            minified_bytes: self.inner.minified_bytes + 2 + self.elements.saturating_sub(1),
            largest_array: self.inner.largest_array.max(self.elements),
        }
    }

    /// Skips white space, and returns the next byte after it.
    fn peek(&mut self) -> Option<u8> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let rest = &self.document[self.position..];
        self.position += rest.iter().take_while(|byte| is_space(byte)).count();
        self.document.get(self.position).copied()
    }

    fn take(&mut self, expected: u8) -> Result<(), TaskError> {
        if self.peek() != Some(expected) {
            return Err(self.error(&char::from(expected).to_string()));
        }
        self.position += 1;
        Ok(())
    }

    fn error(&self, expected: &str) -> TaskError {
        TaskError::new(format_args!(
            "the input is not an array: expected {expected} at byte {}",
            self.position
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer, and after how many steps.
    fn all_steps(document: &str) -> (Result<Measures, TaskError>, u64) {
        let mut steps = ArraySteps::new(document.to_owned().into());
        for made in 1.. {
            if let ControlFlow::Break(answer) = steps.step() {
                return (answer, made);
            }
        }
        unreachable!("a document has an end");
    }

    #[test]
    fn elements_add_up_to_the_measures_of_the_whole() {
        for document in [
            "[]",
            " [ \n ] ",
            "[7]",
            "[1,2,3]",
            "[-1.5e3,true,false,null]",
            "[[],[[]],[[[]]]]",
            "[[1,2,3,4,5],[6]]",
            "\n[ 1 ,\t2\r\n, \"a, ] b\" , {\"c\" : [ 1, {\"d\" : \"\\\"]\" } ] } ] \n",
            "[\"\\u0041\",\"häuser\",\"\"]",
            "[{},{\"a\":{}},\"x\"]",
        ] {
            assert_eq!(all_steps(document).0, measure(document.as_bytes()), "{document}");
        }
    }

    #[test]
    fn each_step_takes_one_element() {
        assert_eq!(all_steps("[[1,2,3],4,{\"five\":[6]}]").1, 3);
        assert_eq!(all_steps("[]").1, 1);
    }

    #[test]
    fn what_is_no_array_is_an_error_that_says_where() {
        for document in
            ["", "{}", "7", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1]]", "[1] 2", "[nul]", "[\"a]"]
        {
            assert!(measure(document.as_bytes()).is_err() || !document.starts_with('['), "{document}");
            assert!(all_steps(document).0.is_err(), "{document}");
        }
        let error = all_steps("[1 2]").0.unwrap_err().to_string();
        assert_eq!(error, "the input is not an array: expected , at byte 3");
    }

    #[test]
    fn the_document_has_as_many_elements_as_were_asked_for() {
        let measures = measure(&document(1000)).unwrap();
        assert_eq!((measures.largest_array, measures.depth), (1000, 3));
    }

    fn elements() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<i64>().prop_map(|value| json!(value)),
            "\\PC{0,6}|[\"\\\\,\\]]{0,3}".prop_map(|value| json!(value))
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
                proptest::collection::hash_map("\\PC{0,3}", inner, 0..5)
                    .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_array_adds_up_tight_or_with_spaces(array in proptest::collection::vec(elements(), 0..8)) {
            for document in [serde_json::to_string(&array).unwrap(), serde_json::to_string_pretty(&array).unwrap()] {
                prop_assert_eq!(all_steps(&document).0, measure(document.as_bytes()));
            }
        }
    }
}
