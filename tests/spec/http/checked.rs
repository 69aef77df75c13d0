//! What `config check` says of the interface is what `serve` makes of it.

use std::os::unix::fs::symlink;
use tests::harness::{Daemon, PATIENCE, private_folder, run_offload};

fn route(task: &str) -> String {
    format!("[[route]]\nmethod = 'POST'\npath = '/a'\ntask = '{task}'\n")
}

#[test]
fn what_serve_would_refuse_the_check_refuses_with_the_same_words() {
    let folder = private_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, own) = (path("offload.toml"), path("o.sock"));
    std::fs::write(path("file"), "mine").unwrap();
    symlink(folder.path(), path("link")).unwrap();
    let listen = |path: String| format!("[http]\nlisten = ['127.0.0.1:0', 'unix:{path}']\n");
    for (text, reason) in [
        (listen(path("file")), "no socket of this user"),
        (listen(path("none/h.sock")), "is not there"),
        (listen(own.clone()), "is there twice: it is the supervisor's own socket"),
        (listen(path("link/o.sock")), "is there twice: it is the supervisor's own socket"),
        (
            format!("[http]\nlisten = ['unix:{}', 'unix:{}']\n", path("h.sock"), path("link/h.sock")),
            "is there twice: it is the socket",
        ),
        (listen(path("o.sock.lock")), "and the socket unix:"),
        (listen(path("http.token")), "and the file of the token"),
        (
            format!("[http]\nlisten = ['unix:{}', 'unix:{}']\n", path("h.sock"), path("h.sock.lock")),
            "is there twice: it is the lock of unix:",
        ),
        (
            format!("[http]\nlisten = ['127.0.0.1:0']\naccess_log = '{own}'\n"),
            "is there twice: it is the supervisor's own socket, and the access log",
        ),
        (
            format!("[http]\nlisten = ['127.0.0.1:0']\ntoken_file = '{own}.lock'\n"),
            "is there twice: it is the lock of the supervisor's own socket, and the file of the token",
        ),
        (
            format!(
                "[http]\nlisten = ['127.0.0.1:0']\ntoken_file = '{0}'\naccess_log = '{0}'\n",
                path("one")
            ),
            "is there twice: it is the file of the token, and the access log",
        ),
        (
            format!("[http]\nlisten = ['127.0.0.1:0']\ntoken_file = '{}/token'\n", path("file")),
            "/file is no folder",
        ),
        (
            // A service manager may open the sockets.
            format!("[http]\naccess_log = '{}'\n", path("http.token")),
            "is there twice: it is the file of the token, and the access log",
        ),
        (
            "[http]\npublic = true\nlisten = ['0.0.0.0:17', '127.0.0.1:17']\n".to_owned(),
            "0.0.0.0:17 and 127.0.0.1:17 overlap",
        ),
        (
            "[http]\npublic = true\nlisten = ['127.0.0.1:17', '[::]:17']\n".to_owned(),
            "127.0.0.1:17 and [::]:17 overlap",
        ),
        ("[http]\nlisten = ['127.0.0.1:0']\nhosts = ['*']\n".to_owned(), "no name of a machine"),
        ("[http]\nlisten = ['127.0.0.1:0']\nhosts = ['*.example']\n".to_owned(), "no name of a machine"),
        (format!("[http]\nlisten = ['127.0.0.1:0']\n{}", route("a b")), "'a b' names no task"),
        (format!("[http]\nlisten = ['127.0.0.1:0']\n{}", route("2nd")), "'2nd' names no task"),
    ] {
        std::fs::write(&file, &text).unwrap();
        for arguments in [
            &["--socket", &own, "config", "check", &file][..],
            &["--socket", &own, "--config", &file, "serve", "--workers", "1"],
        ] {
            let refused = run_offload(arguments);
            assert!(
                refused.code == 2 && refused.stderr.contains(reason),
                "{arguments:?} {text}: {refused:?}"
            );
        }
    }
    for name in ["file.lock", "one", "o.sock", "o.sock.lock", "http.token"] {
        assert!(!folder.path().join(name).exists(), "{name} is made, and then it is in the way");
    }
}

#[test]
fn the_access_log_is_no_file_that_the_supervisor_reads_by_whatever_path() {
    let folder = private_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, own, key) = (path("offload.toml"), path("o.sock"), path("key"));
    std::fs::write(&key, "secret").unwrap();
    std::fs::write(path("certificate"), "public").unwrap();
    for (target, link) in
        [(&key, "link"), (&file, "link of the file"), (&path("http.token"), "leads to nothing")]
    {
        symlink(target, path(link)).unwrap();
    }
    std::fs::hard_link(&key, path("second name")).unwrap();
    let text = |log: &str, certificate: &str| {
        let tls = format!("tls = {{ certificate = '{}', key = '{key}' }}", path(certificate));
        format!("[http]\nlisten = ['127.0.0.1:0']\naccess_log = '{}'\n{tls}\n", path(log))
    };
    for (log, what) in [
        ("key", "the key for TLS"),
        ("certificate", "the certificate for TLS"),
        ("offload.toml", "the configuration file"),
        ("link", "the key for TLS"),
        ("second name", "the key for TLS"),
        ("link of the file", "the configuration file"),
        ("leads to nothing", "the file of the token"),
    ] {
        std::fs::write(&file, text(log, "certificate")).unwrap();
        let told = format!("{} is there twice: it is {what}, and the access log", path(log));
        for arguments in [
            &["--socket", &own, "config", "check", &file][..],
            &["--socket", &own, "--config", &file, "serve", "--workers", "1"],
        ] {
            let refused = run_offload(arguments);
            assert!(refused.code == 2 && refused.stderr.contains(&told), "{arguments:?} {log}: {refused:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "secret");
    // One file may have both.
    std::fs::write(&file, text("access.log", "key")).unwrap();
    let refused = run_offload(&["config", "check", &file]);
    assert!(refused.code == 2 && refused.stderr.contains("yours alone"), "{refused:?}");
}

#[test]
fn the_check_says_that_it_cannot_see_a_descriptor_that_serve_is_given() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let path = file.to_str().expect("a path of ours");
    std::fs::write(&file, "[http]\nlisten = ['127.0.0.1:0', 'fd:99']\n").unwrap();
    let checked = run_offload(&["config", "check", path]).ok();
    assert!(checked.stderr.contains("offload.toml:2: http.listen: not checked: fd:99;"), "{checked:?}");
    assert_eq!(run_offload(&["-q", "config", "check", path]).ok().stderr, "");
}

#[test]
fn what_is_set_while_http_is_answered_nowhere_is_told_and_hinders_nothing() {
    let folder = private_folder();
    let file = folder.path().join("offload.toml");
    let path = file.to_str().expect("a path of ours");
    for (text, line, keys) in [
        ("[http]\npage = true\n", 2, "http.page"),
        (&*route("echo"), 1, "route"),
        ("[http]\ncors = ['https://a.example']\nhosts = ['a.example']\n", 3, "http.hosts, http.cors"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (first, because) = (keys.split(',').next().unwrap_or(keys), "because HTTP is answered nowhere");
        let told = format!("offload.toml:{line}: {first}: nothing comes of {keys}, {because}");
        let checked = run_offload(&["config", "check", path]).ok();
        assert!(checked.stderr.contains(&told), "{text}: {checked:?}");
        assert_eq!(run_offload(&["-q", "config", "check", path]).ok().stderr, "");
        let daemon = Daemon::start(&["--config", path, "--workers", "1"]);
        assert!(daemon.stderr.find(|line| line.contains(&told), PATIENCE).is_some(), "{text}");
    }
    std::fs::write(&file, "[http]\nlisten = ['127.0.0.1:0']\npage = true\n").unwrap();
    assert_eq!(run_offload(&["config", "check", path]).ok().stderr, "");
}
