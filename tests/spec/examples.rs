//! The examples do what their first lines say, and are small.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::harness::{Daemon, Lines, program, run, workspace};

fn example(name: &str) -> tests::harness::Ran {
    run(&mut Command::new(program(name)), b"").ok()
}

#[test]
fn hello_offload() {
    let text = example("hello_offload").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "three jobs are submitted, and the loop is free for other things");
    for expected in ["78498", "148933", "216816"] {
        assert!(lines[1..].iter().any(|line| line.contains(expected)), "{text}");
    }
}

#[test]
fn async_offload() {
    assert_eq!(example("async_offload").text(), "average: 1000000.5\n");
}

#[test]
fn own_task() {
    let worker = program("own_task");
    let daemon = Daemon::start(&["--workers", "1", "--worker", worker.to_str().unwrap()]);
    assert_eq!(daemon.run(&["submit", "shout", "hello"]).ok().text(), "HELLO\n");
    assert_eq!(daemon.submit(&["mix", r#"{"red": 0.5, "blue": 1.0}"#])["output"]["purple"], 0.75);
    let ran = daemon.run(&["submit", "mix", r#"{"red": 0.5, "green": 1.0}"#]).code(1);
    assert!(ran.stderr.contains("green") && ran.stderr.contains("line 1"), "{}", ran.stderr);
}

#[test]
fn survive_a_crash() {
    let text = example("survive_a_crash").text();
    assert!(text.contains("killing worker process"), "{text}");
    assert!(text.contains("the victim's job: ok after 2 attempts"), "{text}");
    assert!(text.contains("another job: ok after 1 attempt"), "{text}");
}

#[test]
fn phases() {
    let text = example("phases").text();
    // Whether the timeout of the main script comes before the poll or at the end depends on the moment.
    let order: Vec<_> = text.lines().filter(|line| !line.starts_with("timeout 0")).collect();
    assert_eq!(order.len() + 1, text.lines().count(), "{text}");
    let expected = [
        "main script: first line",
        "main script: last line",
        "tick  ",
        "tick of the tick",
        "microtask",
        "future  ",
        "future, after yielding",
        "I/O callback",
        "I/O: tick",
        "I/O: microtask",
        "immediate",
        "I/O: immediate",
        "close",
        "I/O: timeout 0",
    ];
    assert_eq!(order.len(), expected.len(), "{text}");
    for (line, what) in order.iter().zip(expected) {
        assert!(line.starts_with(what), "`{what}` was expected instead of `{line}`");
    }
}

#[test]
fn async_average() {
    let text = example("async_average").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    let ways = ["in one go", "in one step an immediate", "within a budget of 1 ms", "by a worker process"];
    for (line, way) in lines[1..].iter().zip(ways) {
        assert!(line.starts_with(way) && line.contains(" 500000.5 "), "{text}");
    }
}

/// A program that listens, and answers over HTTP until it is dropped.
struct Listening(Child, u16);

impl Listening {
    fn start(name: &str) -> Listening {
        let mut child = Command::new(program(name)).arg("0").stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::collect(child.stdout.take().unwrap());
        let line =
            lines.find(|line| line.contains("listening on"), Duration::from_secs(60)).expect("it listens");
        let port = line.rsplit(':').next().and_then(|port| port.trim().parse().ok()).expect("a port");
        Listening(child, port)
    }

    /// The status, the head, and the body.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.1)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n", self.1)
            .unwrap();
        write!(stream, "Content-Length: {length}\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
        (head[9..12].parse().unwrap(), head, answer[end..].to_vec())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Width and height in the head of a PNG file.
fn size_of_png(file: &[u8]) -> (u32, u32) {
    assert!(file.starts_with(b"\x89PNG"), "{:?}", &file[..file.len().min(100)]);
    let side = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
    (side(16), side(20))
}

#[test]
fn own_service_is_as_the_readme_of_the_library_shows_it() {
    let service = Listening::start("own_service");
    let (status, _, body) = service.ask("POST", "/words", b"\"to be or not to be\"");
    assert_eq!((status, body.as_slice()), (200, &b"6"[..]));
    let text = |path: &str| std::fs::read_to_string(workspace().join(path)).unwrap();
    let program = text("examples/own_service.rs");
    let (_, code) = program.split_once("\n\nuse ").unwrap();
    assert!(text("supervisor/README.md").contains(&format!("```rust,ignore\nuse {code}```")), "they differ");
}

#[test]
fn thumbnail_service() {
    let view = r#"{"x":-0.5,"y":0,"scale":3,"width":800,"height":400,"iterations":50}"#;
    let picture = run(&mut tests::harness::command(&["run", "mandelbrot", view]), b"").ok().stdout;
    assert_eq!(size_of_png(&picture), (800, 400));
    let service = Listening::start("thumbnail_service");
    let (status, head, thumbnail) = service.ask("POST", "/thumbnails", &picture);
    assert!(status == 200 && head.contains("content-type: image/png"), "{head}");
    assert_eq!(size_of_png(&thumbnail), (256, 128));
    let (status, _, problem) = service.ask("POST", "/thumbnails", b"no picture");
    assert!(status == 422 && String::from_utf8(problem).unwrap().contains("neither a PNG nor a JPEG"));
    assert_eq!(service.ask("GET", "/health", b"").2, b"fine\n");
}

#[test]
fn http_service_is_a_compute_heavy_service_in_30_lines() {
    let lines =
        std::fs::read_to_string(workspace().join("examples/http_service.rs")).unwrap().lines().count();
    assert!(lines <= 30, "{lines} lines");
    let service = Listening::start("http_service");
    assert_eq!(service.ask("GET", "/hello", b"").2, b"hello\n");
    let (status, head, primes) = service.ask("POST", "/primes", b"1000");
    assert!(status == 200 && head.contains("offload-job: "), "{head}");
    assert_eq!(String::from_utf8(primes).unwrap(), r#"{"count":168,"largest":997}"#);
    assert_eq!(service.ask("POST", "/primes", b"many").0, 422);
    assert_eq!(service.ask("POST", "/v1/tasks/echo", b"the interface").2, b"the interface");
}

#[test]
fn mandelbrot_tiles() {
    let map = Listening::start("mandelbrot_tiles");
    let (status, head, page) = map.ask("GET", "/", b"");
    let page = String::from_utf8(page).unwrap();
    assert!(status == 200 && head.contains("text/html") && page.contains("loop lag"), "{head}");
    let elsewhere = ["http://", "https://", "src=\"//"].iter().find(|start| page.contains(**start));
    assert_eq!(elsewhere, None, "everything is in the page");
    let tiles: Vec<_> =
        (0..4).map(|place| map.ask("GET", &format!("/tiles/1/{}/{}", place % 2, place / 2), b"")).collect();
    assert!(tiles.iter().all(|(status, _, tile)| *status == 200 && size_of_png(tile) == (256, 256)));
    assert_ne!(tiles[0].2, tiles[1].2, "another part of the plane");
    for path in ["/tiles/32/0/0", "/tiles/1/x/0", "/tiles/1/-1/0", "/tiles/1/0"] {
        assert_eq!(map.ask("GET", path, b"").0, 404, "{path}");
    }
    let lag: serde_json::Value = serde_json::from_slice(&map.ask("GET", "/lag", b"").2).unwrap();
    assert!(lag["p99_us"].is_u64() && lag["iterations"].as_u64() > Some(0), "{lag}");
}

#[test]
fn each_is_under_80_lines_and_the_worker_in_python_under_60() {
    for entry in std::fs::read_dir(workspace().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let limit = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => 80,
            Some("py") => 60,
            _ => continue,
        };
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < limit, "{} has {lines} lines", path.display());
    }
}
