//! The same input has the same verdict whichever way it comes. The inputs are of the kinds that collections of JSON corner cases
//! have (valid, invalid, and those that parsers may decide on), so that no way in can have looked at them, or changed them.

use serde_json::Value;
use tests::harness::run;
use tests::http::HttpDaemon;

/// Bytes that are JSON, are not, or may be.
fn inputs() -> Vec<Vec<u8>> {
    let texts = [
        "[]",
        "{}",
        "null",
        "true",
        "0",
        "-0",
        "1e5",
        "1E+2",
        "0.1e-7",
        "\"\"",
        "\" \"",
        "[[]]",
        "[1,2]",
        "{\"a\":1}",
        "{\"a\":1,\"a\":2}",
        " [] ",
        "\n[1]\n",
        "[\"\\u0041\"]",
        "[\"\\ud83d\\ude00\"]",
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
        "\"ü€😀\"",
        "123456789012345678901234567890",
        "1e400",
        "-1e-400",
        "[1e9999]",
        "[\"\\ud800\"]",
        "[\"\\udc00\\ud800\"]",
        "",
        " ",
        "[",
        "]",
        "[1,]",
        "[,1]",
        "[1,,2]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1,}",
        "tru",
        "True",
        "nul",
        "nan",
        "Infinity",
        "-",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "--1",
        "\"",
        "\"a",
        "'a'",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\u{1}\"",
        "\"\t\"",
        "[1]x",
        "[1] [2]",
        "//",
        "[1/*c*/]",
        "\u{feff}[]",
        "[\u{a0}]",
        "\\u005b]",
        "1 2",
        "[1\0]",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    all.extend([
        vec![0xff],
        b"\"\xff\"".to_vec(),
        b"[\"\xc0\xaf\"]".to_vec(),
        b"\"\xed\xa0\x80\"".to_vec(),
        vec![0],
        b"[1]\0".to_vec(),
    ]);
    all.push("[".repeat(100).into_bytes());
    all.push([vec![b'['; 100], vec![b']'; 100]].concat());
    all.push([vec![b'['; 100_000], vec![b']'; 100_000]].concat());
    all
}

/// Whether the input is taken. It has to be the same by the command line and over HTTP.
fn is_taken(http: &HttpDaemon, input: &[u8]) -> bool {
    let by_http = http.call("json", &[("Content-Type", "application/json")], input);
    let mut submit =
        http.daemon.command(&["submit", "--json", "--content-type", "application/json", "json", "-"]);
    let by_socket: Value = run(&mut submit, input).json();
    let shown = String::from_utf8_lossy(&input[..input.len().min(60)]).into_owned();
    match by_http.status {
        200 => {
            assert_eq!(by_socket["outcome"], "ok", "{shown:?}");
            assert_eq!(by_http.json(), by_socket["output"], "{shown:?}");
        }
        422 => {
            assert_eq!(by_socket["outcome"], "app_error", "{shown:?}");
            assert_eq!(by_http.json()["detail"], by_socket["error"]["message"], "{shown:?}");
        }
        _ => panic!("{shown:?}: {by_http:?}"),
    }
    by_http.status == 200
}

#[test]
fn a_document_has_the_same_verdict_by_the_command_line_and_over_http() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let (taken, refused): (Vec<_>, Vec<_>) = inputs().into_iter().partition(|input| is_taken(&http, input));
    assert!(taken.len() > 15 && refused.len() > 15, "both verdicts are tried");
    assert_eq!(http.daemon.status()["workers"]["restarts"], 0, "no worker was lost");
}

fn nested(depth: usize) -> Vec<u8> {
    ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes()
}

/// What parsers may decide on is decided here, and stays so: (what it is, its bytes, whether it is taken).
fn decided() -> Vec<(&'static str, Vec<u8>, bool)> {
    let key_of_a_mebibyte = format!("{{\"{}\":1}}", "k".repeat(1 << 20)).into_bytes();
    vec![
        ("a number beyond all floats", b"1e400".to_vec(), false),
        ("the same with a sign", b"-1e400".to_vec(), false),
        ("a number that is almost 0", b"-1e-400".to_vec(), true),
        ("a number of 30 digits", b"123456789012345678901234567890".to_vec(), true),
        ("a number of a million digits", vec![b'9'; 1_000_000], false),
        ("no number", b"NaN".to_vec(), false),
        ("two equal keys", br#"{"a":1,"a":2}"#.to_vec(), true),
        ("a key of a mebibyte", key_of_a_mebibyte, true),
        ("a byte order mark", b"\xef\xbb\xbf[]".to_vec(), false),
        ("a lone high surrogate", br#"["\ud800"]"#.to_vec(), false),
        ("a lone low surrogate", br#"["\udc00"]"#.to_vec(), false),
        ("surrogates in the wrong order", br#"["\udc00\ud800"]"#.to_vec(), false),
        ("a surrogate as UTF-8", b"\"\xed\xa0\x80\"".to_vec(), false),
        ("nesting of 127", nested(127), true),
        ("nesting of 128", nested(128), false),
        ("nesting of 100,000", nested(100_000), false),
    ]
}

#[test]
fn what_parsers_may_decide_on_has_these_verdicts() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let supervisor = http.daemon.pid();
    for (what, input, expected) in decided() {
        assert_eq!(is_taken(&http, &input), expected, "{what}");
    }
    let status = http.daemon.status();
    assert_eq!((&status["workers"]["restarts"], &status["pid"]), (&0.into(), &supervisor.into()));
}
