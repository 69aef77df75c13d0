//! Paths of all kinds, each on a thread as the supervisor does it.

use super::*;
use offload_event_loop::EventLoop;
use offload_event_loop::io_pool::{IoPool, IoPoolConfig};
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use tempfile::TempDir;

const MAX_BYTES: usize = 1 << 20;

/// `root/` with a file, a directory, links and what is no file; `secret` is beside it.
fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path().join("root");
    fs::create_dir_all(root.join("inner")).unwrap();
    fs::write(tree.path().join("secret"), "secret").unwrap();
    fs::write(root.join("file"), "hello").unwrap();
    fs::write(root.join("inner/deep"), "deep").unwrap();
    symlink("inner/deep", root.join("link")).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(tree.path().join("secret"), root.join("absolute")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("..", root.join("inner/up")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), Mode::from(0o600)).unwrap();
    drop(UnixListener::bind(root.join("socket")).unwrap());
    tree
}

fn run(tree: &TempDir, task: &str, input: &str) -> IoEnd {
    let mut event_loop = EventLoop::new().unwrap();
    let pool = IoPool::new(&event_loop, IoPoolConfig { threads: 1, ..IoPoolConfig::default() }).unwrap();
    let root = Root::open(&tree.path().join("root")).unwrap();
    let end = Rc::new(RefCell::new(None));
    let told = Rc::clone(&end);
    match IoTask::of(task, input.as_bytes()) {
        Ok(task) => task.submit(&pool, &root, MAX_BYTES, move |end| *told.borrow_mut() = Some(end)),
        Err(message) => return Err((OutcomeCode::AppError, message)),
    };
    event_loop.run().unwrap();
    end.take().unwrap()
}

fn read(tree: &TempDir, path: &str) -> Result<String, String> {
    let end = run(tree, READ, &json!({ "path": path }).to_string());
    let text = |(_, bytes): (MediaType, Bytes)| String::from_utf8(bytes.into()).unwrap();
    end.map(text).map_err(|(code, message)| format!("{code}: {message}"))
}

#[test]
fn files_below_the_directory_are_read_by_any_path_that_stays_there() {
    let tree = tree();
    for (path, contents) in [
        ("file", "hello"),
        ("./file", "hello"),
        ("inner/deep", "deep"),
        ("inner/../file", "hello"),
        ("inner//deep", "deep"),
        ("link", "deep"),
        ("inner/up/file", "hello"),
    ] {
        assert_eq!(read(&tree, path).as_deref(), Ok(contents), "{path}");
    }
}

#[test]
fn no_path_leads_out() {
    let tree = tree();
    let outside = tree.path().join("secret");
    for path in
        ["../secret", "inner/../../secret", "/etc/passwd", "/", "out", "absolute", "inner/up/../secret"]
    {
        let error = read(&tree, path).unwrap_err();
        assert!(error.contains("leads out of the directory"), "{path}: {error}");
    }
    let error = read(&tree, outside.to_str().unwrap()).unwrap_err();
    assert!(error.contains("leads out of the directory"), "{error}");
    for path in ["magic/etc/passwd", "magic", "loop", "..", "../root/file", "inner/../.."] {
        assert!(read(&tree, path).is_err(), "{path}");
    }
}

#[test]
fn only_regular_files_are_opened_and_nothing_waits_for_a_writer() {
    let tree = tree();
    for (path, kind) in
        [("fifo", "a FIFO"), ("socket", "a socket"), ("inner", "a directory"), (".", "a directory")]
    {
        let error = read(&tree, path).unwrap_err();
        assert!(error.starts_with("io_error") && error.contains(kind), "{path}: {error}");
        let stat = run(&tree, STAT, &json!({ "path": path }).to_string()).unwrap_err();
        assert!(stat.0 == OutcomeCode::IoError && stat.1.contains(kind), "{path}: {stat:?}");
    }
}

#[test]
fn strange_paths_are_errors() {
    let tree = tree();
    let long = "x".repeat(5000);
    for path in ["", "missing", "file/", "file/x", "fi\0le", "\0", &long, &"inner/".repeat(900)] {
        let error = read(&tree, path).unwrap_err();
        assert!(error.starts_with("io_error"), "{error}");
    }
}

#[test]
fn a_file_that_is_too_long_is_refused_and_one_that_just_fits_is_read() {
    let tree = tree();
    let path = tree.path().join("root/large");
    fs::write(&path, vec![b'x'; MAX_BYTES]).unwrap();
    assert_eq!(read(&tree, "large").map(|text| text.len()), Ok(MAX_BYTES));
    fs::write(&path, vec![b'x'; MAX_BYTES + 1]).unwrap();
    assert!(read(&tree, "large").unwrap_err().contains("more than 1048576 bytes"));
}

#[test]
fn stat_tells_the_size_and_the_mode() {
    let tree = tree();
    let (media_type, bytes) = run(&tree, STAT, r#"{"path":"file"}"#).unwrap();
    let stat: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(media_type, MediaType::JSON);
    assert_eq!(stat["bytes"], 5);
    assert!(
        stat["modified_ms"].as_i64().unwrap() > 1_500_000_000_000
            && stat["mode"].as_str().unwrap().len() == 4
    );
}

#[test]
fn addresses_are_looked_up() {
    let tree = tree();
    let (_, bytes) = run(&tree, LOOK_UP, r#"{"host":"127.0.0.1"}"#).unwrap();
    assert_eq!(&bytes[..], br#"{"addresses":["127.0.0.1"]}"#);
    for host in ["", "a\0b", &"x".repeat(254)] {
        let refused = run(&tree, LOOK_UP, &json!({ "host": host }).to_string()).unwrap_err();
        assert_eq!(refused.0, OutcomeCode::AppError);
    }
}

#[test]
fn an_input_that_is_not_what_the_task_takes_is_an_error_of_the_application() {
    for input in ["", "{}", "[]", r#"{"path":1}"#, r#"{"path":"a","more":1}"#, r#"{"host":"a"}"#] {
        assert!(
            IoTask::of(READ, input.as_bytes()).unwrap_err().starts_with("the input is not what"),
            "{input}"
        );
    }
    assert!(IoTask::of(READ, &[b' '; IO_INPUT_MAX + 1]).unwrap_err().contains("at most 32768"));
    assert!(IoTask::of("fs.write", b"{}").is_err());
}

/// Somebody swaps a directory for a link that leads out, again and again.
#[test]
fn renaming_meanwhile_does_not_let_a_path_out() {
    let tree = tree();
    let root = tree.path().join("root");
    fs::create_dir(tree.path().join("outside")).unwrap();
    fs::write(tree.path().join("outside/deep"), "secret").unwrap();
    symlink("../outside", root.join("decoy")).unwrap();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let (root, is_over) = (root.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let (inner, decoy) = (root.join("inner"), root.join("decoy"));
                rustix::fs::renameat_with(rustix::fs::CWD, inner, rustix::fs::CWD, decoy, exchange).unwrap();
            }
        })
    };
    let opened = Root::open(&root).unwrap();
    let (mut inside, mut refused) = (0, 0);
    while inside < 200 || refused < 200 {
        match opened.open_file("inner/deep") {
            Ok(file) => {
                assert_eq!(io::read_to_string(file).unwrap(), "deep");
                inside += 1;
            }
            Err(_) => refused += 1,
        }
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
}
