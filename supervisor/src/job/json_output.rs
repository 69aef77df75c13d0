//! The output of a job as a part of a JSON document: the same for the command line and over HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use offload_protocol::nouns::MediaType;
use serde::Serialize;
use serde_json::value::RawValue;

/// An output in a JSON document: a JSON value or a text as `output`, other bytes as base64 in `output_base64`. The media type is
/// only a claim of the worker: bytes that do not match it become base64.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JsonOutput {
    /// JSON as it is, on one line; a text as a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// Other bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_base64: Option<String>,
}

impl JsonOutput {
    /// The output of this media type. All of it is read and copied.
    pub fn of(media_type: &MediaType, output: &[u8]) -> JsonOutput {
        let value = std::str::from_utf8(output).ok().and_then(|text| {
            if media_type.is_json() {
                on_one_line(text)
            } else if media_type.is_text() {
                serde_json::value::to_raw_value(text).ok()
            } else {
                None
            }
        });
        let output_base64 = value.is_none().then(|| STANDARD.encode(output));
        JsonOutput { output: value, output_base64 }
    }
}

/// The same JSON value without line ends, which can occur between its parts but never inside a string. The value is not
/// parsed and printed again, so numbers of any length stay unchanged.
fn on_one_line(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.trim().replace(['\n', '\r'], " ")).ok()
}
