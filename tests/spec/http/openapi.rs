//! The interface as it describes itself.

use serde_json::Value;
use std::collections::BTreeSet;
use tests::http::HttpDaemon;

fn document(http: &HttpDaemon) -> Value {
    let answer = http.ask("GET", "/openapi.json", &[], b"");
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")));
    answer.json()
}

#[test]
fn every_path_of_the_description_is_answered_and_every_task_has_one() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let document = document(&http);
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    let mut operations = BTreeSet::new();
    for (path, methods) in paths.iter().filter(|(path, _)| *path != "/v1/events") {
        for (method, operation) in methods.as_object().expect("methods") {
            assert!(operations.insert(operation["operationId"].clone().to_string()), "an id comes once");
            let real = path.replace("{id}", "nope").replace("{task}", "nope");
            let answer = http.ask(&method.to_ascii_uppercase(), &real, &[], b"");
            let status = answer.status.to_string();
            assert!(operation["responses"].get(&status).is_some(), "{method} {path} is answered {status}");
            assert!(!answer.text().contains("there is nothing at"), "{method} {path}");
        }
    }
    for task in http.ask("GET", "/v1/tasks", &[], b"").json().as_array().expect("tasks") {
        let name = task["name"].as_str().expect("a name");
        assert!(paths.contains_key(&format!("/v1/tasks/{name}")), "{name}");
    }
}

#[test]
fn the_examples_of_the_description_work() {
    let http = HttpDaemon::start(&["--workers", "1"]);
    let document = document(&http);
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let Some(content) = methods["post"]["requestBody"]["content"].as_object() else { continue };
        for (media_type, media) in content.iter().filter(|(_, media)| media.get("example").is_some()) {
            let example = &media["example"];
            let body = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            let media_type = media_type.replace("*/*", "text/plain").replace('*', "plain");
            let answer = http.ask("POST", path, &[("Content-Type", &media_type)], body.as_bytes());
            assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
}
