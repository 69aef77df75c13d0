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

#[test]
fn a_document_has_the_same_verdict_by_the_command_line_and_over_http() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let mut verdicts = [0, 0];
    for input in inputs() {
        let by_http = http.call("json", &[("Content-Type", "application/json")], &input);
        let mut submit =
            http.daemon.command(&["submit", "--json", "--content-type", "application/json", "json", "-"]);
        let by_socket: Value = run(&mut submit, &input).json();
        let shown = String::from_utf8_lossy(&input[..input.len().min(60)]).into_owned();
        match by_http.status {
            200 => {
                assert_eq!(by_socket["outcome"], "ok", "{shown:?}");
                assert_eq!(by_http.json(), by_socket["output"], "{shown:?}");
                verdicts[0] += 1;
            }
            422 => {
                assert_eq!(by_socket["outcome"], "app_error", "{shown:?}");
                assert_eq!(by_http.json()["detail"], by_socket["error"]["message"], "{shown:?}");
                verdicts[1] += 1;
            }
            _ => panic!("{shown:?}: {by_http:?}"),
        }
    }
    assert!(verdicts.iter().all(|count| *count > 15), "both verdicts are tried: {verdicts:?}");
    assert_eq!(http.daemon.status()["workers"]["restarts"], 0, "no worker was lost");
}
