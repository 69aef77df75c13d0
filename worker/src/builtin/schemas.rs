//! JSON Schemas of what the built-in tasks take, for programs that make requests from them. Their bounds are those that the
//! tasks refuse by, but that a schema counts the characters of a pattern and the task its bytes.

use crate::limits::{
    AVERAGE_N_MAX, COUNT_TO_MAX, DIGEST_ITERATIONS_MAX, DIGEST_LENGTH_MAX, MANDELBROT_CENTER_MAX,
    MANDELBROT_ITERATIONS_MAX, MANDELBROT_SCALE_MAX, MANDELBROT_SCALE_MIN, MANDELBROT_SIDE_MAX, PATTERN_MAX,
    PRIMES_BATCH_N_MAX, PRIMES_N_MAX, TIME_MS_MAX,
};
use serde_json::{Value, json};

/// The schema of a task's input. None if it takes other things than JSON.
pub(super) fn schema_of(task: &str) -> Option<Value> {
    Some(match task {
        "primes" => integer(0, PRIMES_N_MAX),
        "primes.batch" => integer(0, PRIMES_BATCH_N_MAX),
        "average" => integer(1, AVERAGE_N_MAX),
        "sleep" | "spin" => integer(0, TIME_MS_MAX),
        "count" => json!({"anyOf": [
            integer(0, COUNT_TO_MAX),
            {
                "type": "object",
                "properties": {"to": integer(0, COUNT_TO_MAX), "every_ms": integer(0, TIME_MS_MAX)},
                "required": ["to", "every_ms"],
            },
        ]}),
        "json" => json!(true),
        "sort" => json!({"anyOf": [
            {"type": "array", "items": {"type": "number"}},
            {"type": "array", "items": {"type": "string"}},
        ]}),
        "pbkdf2" => object(
            &json!({
                "password": {"type": "string"},
                "salt": {"type": "string"},
                "iterations": integer(1, DIGEST_ITERATIONS_MAX),
                "length": integer(1, DIGEST_LENGTH_MAX),
            }),
            &["password", "salt", "iterations", "length"],
        ),
        "mandelbrot" => object(
            &json!({
                "x": number(-MANDELBROT_CENTER_MAX, MANDELBROT_CENTER_MAX),
                "y": number(-MANDELBROT_CENTER_MAX, MANDELBROT_CENTER_MAX),
                "scale": number(MANDELBROT_SCALE_MIN, MANDELBROT_SCALE_MAX),
                "width": integer(1, MANDELBROT_SIDE_MAX),
                "height": integer(1, MANDELBROT_SIDE_MAX),
                "iterations": integer(1, MANDELBROT_ITERATIONS_MAX),
            }),
            &["x", "y", "scale", "width", "height", "iterations"],
        ),
        "regex" => object(
            &json!({
                "pattern": {"type": "string", "maxLength": PATTERN_MAX},
                "text": {"type": "string"},
                "engine": {"enum": ["linear", "backtracking"]},
            }),
            &["pattern", "text"],
        ),
        "fault" => object(
            &json!({
                "act": {"enum": [
                    "panic", "abort", "segv", "exit", "kill", "hang", "leak", "stack", "garbage", "close",
                ]},
                "on_attempt": {"type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX},
                "code": integer(0, u64::from(u8::MAX)),
            }),
            &["act"],
        ),
        _ => return None,
    })
}

fn integer(minimum: u64, maximum: u64) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum})
}

fn number(minimum: f64, maximum: f64) -> Value {
    json!({"type": "number", "minimum": minimum, "maximum": maximum})
}

/// With no other properties than these.
fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::test_supervisor::answer_bytes;

    /// Inputs that a schema refuses because of one bound, given one that it accepts.
    fn beyond(schema: &Value, example: &Value) -> Vec<Value> {
        let mut inputs = Vec::new();
        match schema["type"].as_str() {
            Some("integer") => {
                inputs.push(json!(schema["maximum"].as_u64().unwrap() + 1));
                inputs.push(json!(schema["minimum"].as_i64().unwrap() - 1));
                inputs.push(json!("1"));
            }
            Some("number") => {
                let bounds =
                    [schema["maximum"].as_f64().unwrap() * 1.01, schema["minimum"].as_f64().unwrap() - 1.0];
                inputs.extend(bounds.map(|bound| json!(bound)));
                inputs.push(json!("1"));
            }
            Some("object") => {
                if schema["additionalProperties"] == false {
                    inputs.push(with(example, "and", json!(1)));
                }
                for name in schema["required"].as_array().unwrap() {
                    let mut less = example.clone();
                    less.as_object_mut().unwrap().remove(name.as_str().unwrap());
                    inputs.push(less);
                }
                for (name, property) in schema["properties"].as_object().unwrap() {
                    let inner = beyond(property, &example[name]);
                    inputs.extend(inner.into_iter().map(|value| with(example, name, value)));
                }
            }
            Some("string") => {
                inputs.push(json!(1));
                inputs.extend(schema["maxLength"].as_u64().map(|most| json!("x".repeat(most as usize + 1))));
            }
            _ if schema["enum"].is_array() => inputs.push(json!("none of these")),
            _ => {}
        }
        inputs
    }

    fn with(object: &Value, name: &str, value: Value) -> Value {
        let mut object = object.clone();
        object[name] = value;
        object
    }

    #[test]
    fn what_a_schema_refuses_its_task_refuses_too() {
        let mut refused = 0;
        for task in builtin::tasks(false) {
            let described = task.described();
            let Some(schema) = schema_of(task.name()) else {
                assert!(described.schema.is_empty());
                continue;
            };
            assert_eq!(serde_json::from_str::<Value>(&described.schema).unwrap(), schema);
            let example: Value = serde_json::from_slice(&described.example).unwrap();
            let kinds = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
            let same_type = |kind: &&Value| kind["type"] == "object" || !example.is_object();
            for input in kinds.iter().filter(same_type).flat_map(|kind| beyond(kind, &example)) {
                let answer = answer_bytes(task.name(), input.to_string());
                assert!(answer.is_err(), "{} takes {input}: {answer:?}", task.name());
                refused += 1;
            }
        }
        assert!(refused > 30, "{refused}");
    }
}
