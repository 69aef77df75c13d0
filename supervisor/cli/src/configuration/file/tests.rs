//! Tests of what is written in a file, right and wrong.

use super::super::reference::TASK_EXAMPLE;
use super::super::{Settings, Values};
use super::*;

fn parse(text: &str) -> Result<Layer, String> {
    parse_file(text, Path::new("offload.toml")).map_err(|error| error.to_string())
}

fn values(text: &str) -> Values {
    Settings::resolve(&[parse(text).unwrap()], None).unwrap().values
}

#[test]
fn numbers_are_written_as_toml_has_them() {
    let layer = parse("[supervisor]\nmax_payload = 1_048_576\nmax_bytes = 0x4000_0000").unwrap();
    assert_eq!(layer.values["supervisor.max_payload"].value, Value::Number(1 << 20));
    assert_eq!(layer.values["supervisor.max_bytes"].value, Value::Number(1 << 30));
}

#[test]
fn an_empty_file_sets_nothing() {
    assert_eq!(parse(""), Ok(Layer::new(Origin::File)));
}

#[test]
fn an_unknown_key_is_told_with_file_line_and_the_nearest_known_one() {
    for (text, expected) in [
        (
            "\n[supervisor]\nmax_job = 3\n",
            "offload.toml:3: unknown key \"max_job\" in [supervisor]; did you mean \"max_jobs\"?",
        ),
        (
            "[[pool]]\nworkers = 1\n[[pool]]\nwrokers = 2",
            "offload.toml:4: unknown key \"wrokers\" in [[pool]]; did you mean \"workers\"?",
        ),
        (
            "[supervizor]\n",
            "offload.toml:1: unknown key \"supervizor\" as a table; did you mean \"supervisor\"?",
        ),
        ("[io]\nbananas = 2", "offload.toml:2: unknown key \"bananas\" in [io]; known are threads, root"),
        (
            "\n[pool]\nworkers = 2\n",
            "offload.toml:2: [pool] is written [[pool]], with two brackets, because there may be several",
        ),
        (
            "[[io]]\nthreads = 2\n",
            "offload.toml:1: [[io]] is written [io], with one bracket, because there is only one",
        ),
        (
            "[[pool]]\nrestart = { backof_min = \"1s\" }",
            "offload.toml:2: unknown key \"backof_min\" in restart of [[pool]]; did you mean \"backoff_min\"?",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected);
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_told_with_its_line_and_its_key() {
    for (text, expected) in [
        (
            "[supervisor]\n\nmax_jobs = \"many\"",
            "3: supervisor.max_jobs: a whole number is expected, not the text \"many\"",
        ),
        (
            "[supervisor]\nmax_jobs = -1",
            "2: supervisor.max_jobs: -1 is not a whole number from 0 on, or too large",
        ),
        (
            "[supervisor]\nmax_jobs = 1.5",
            "2: supervisor.max_jobs: a whole number is expected, not the number 1.5",
        ),
        (
            "[supervisor]\ndrain_timeout = 10",
            "2: supervisor.drain_timeout: a duration such as \"10s\" is expected, not the number 10",
        ),
        (
            "[supervisor]\nmax_bytes = true",
            "2: supervisor.max_bytes: a size such as \"64MiB\" is expected, not true",
        ),
        ("[supervisor]\nsocket = []", "2: supervisor.socket: a path is expected, not a list"),
        ("[[pool]]\naffinity = 1", "2: pool.affinity: true or false is expected, not the number 1"),
        ("[[pool]]\ncommand = {}", "2: pool.command: a text or a list of words is expected, not a table"),
        ("[[pool]]\ncommand = [1]", "2: pool.command: each word of a command is a text"),
        ("[[pool]]\ncommand = []", "2: pool.command: an empty command"),
        ("[[pool]]\nname = 1979-05-27", "2: pool.name: a text is expected, not the time 1979-05-27"),
        ("[[pool]]\nrestart = 3", "2: pool.restart: a table is expected, not the number 3"),
        ("pool = [3]", "1: pool: a table is expected, not the number 3"),
        ("supervisor = 3", "1: supervisor: a table is expected, not the number 3"),
        ("[clients]\na = 1\nb = \"x\"", "3: clients: b: a whole number is expected, not the text \"x\""),
        ("[clients]\na = 0", "2: clients: the share of client \"a\" must be from 1 to 1000, not 0"),
    ] {
        assert_eq!(parse(text).unwrap_err(), format!("offload.toml:{expected}"));
    }
    let message = parse("[supervisor]\ndrain_timeout = \"10\"").unwrap_err();
    assert!(
        message.contains("2: supervisor.drain_timeout: \"10\"") && message.contains("250ms"),
        "{message}"
    );
    assert!(parse("\n[supervisor\n").unwrap_err().starts_with("offload.toml:2: "));
}

#[test]
fn a_key_in_the_wrong_table_is_told_with_the_right_one() {
    for (text, expected) in [
        ("max_jobs = 3", "1: unknown key \"max_jobs\" as a table; it is a key of [supervisor]"),
        ("[http]\nrun_timeout = \"1s\"", "2: unknown key \"run_timeout\" in [http]; it is a key of [[pool]]"),
        (
            "[http]\ntoken = \"x\"",
            "2: unknown key \"token\" in [http]; write it to a file of mode 0600, and name that as token_file",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), format!("offload.toml:{expected}"));
    }
}

#[test]
fn several_pools_add_their_commands_and_workers() {
    let layer =
        parse("[[pool]]\ncommand = \"a\"\nworkers = 2\n[[pool]]\ncommand = [\"b\", \"c d\"]\nworkers = 3")
            .unwrap();
    assert_eq!(layer.values["pool.workers"].value, Value::Number(5));
    let commands = [vec!["a".to_owned()], vec!["b".to_owned(), "c d".to_owned()]].to_vec();
    assert_eq!(layer.values["pool.command"].value, Value::Commands(commands));
    let message = parse("[[pool]]\nworkers = 200\n[[pool]]\nworkers = 100").unwrap_err();
    assert_eq!(message, "offload.toml:4: pool.workers: it must be from 1 to 256, not 300");
}

#[test]
fn several_pools_cannot_differ_in_what_they_share() {
    assert!(parse("[[pool]]\nspares = 1\n[[pool]]\nspares = 1").is_ok());
    let message = parse("[[pool]]\nspares = 1\n[[pool]]\nname = \"b\"\nspares = 0").unwrap_err();
    assert_eq!(
        message,
        "offload.toml:5: pool.spares: 0 here and 1 in a pool before it; it holds for all pools"
    );
}

#[test]
fn two_pools_do_not_have_one_name() {
    assert!(parse("[[pool]]\nname = \"a\"\n[[pool]]\nname = \"b\"\n[[pool]]\n[[pool]]").is_ok());
    let message = parse("[[pool]]\nname = \"a\"\n[[pool]]\n\nname = \"a\"").unwrap_err();
    assert_eq!(message, "offload.toml:5: pool.name: \"a\" is the name of a pool before it, too");
    assert!(
        parse("[[pool]]\nname = \"\"").unwrap_err().starts_with("offload.toml:2: pool.name: it is empty")
    );
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
        let message = read_file(&ConfigFile::named(path)).unwrap_err().to_string();
        assert!(message.ends_with("it is no regular file"), "{message}");
    }
}

#[test]
fn a_file_without_end_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    std::fs::write(&path, "#".repeat(CONFIGURATION_FILE_MAX as usize + 1)).unwrap();
    assert!(
        read_file(&ConfigFile::named(&path)).unwrap_err().to_string().contains("at most 1048576 are read")
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message =
        read_file(&ConfigFile::named(Path::new("/nonexistent/offload.toml"))).unwrap_err().to_string();
    assert!(message.starts_with("cannot read /nonexistent/offload.toml: "), "{message}");
}

#[test]
fn routes_are_read_and_a_wrong_one_is_told_with_the_line_of_what_is_wrong() {
    let good = "[[route]]\nmethod = 'POST'\npath = '/a/{x}'\ntask = 'echo'\n";
    let layer = parse(&format!(
        "{good}[[route]]\nmethod = 'GET'\npath = '/b'\ntask = 't'\ntimeout = '1s'\nmax_body = 1024\nauth = 'none'\n\
         accepts = ['image/*', 'text/plain']\nmode = 'async'\npriority = -3\nheaders = {{ X-A = 'b', x-c = 'd' }}"
    ))
    .unwrap();
    let Value::Routes(routes) = &layer.values["route"].value else { panic!("{layer:?}") };
    assert_eq!(routes.len(), 2);
    assert_eq!((routes[1].max_body, routes[1].priority), (Some(1024), Some(-3)));
    assert_eq!((routes[1].accepts.len(), routes[1].headers.len()), (2, 2));
    for (field, expected) in [
        ("timeout = 10", "5: route.timeout: a text is expected, not the number 10"),
        ("timeout = '0s'", "5: route.timeout: it must be at least 1ms"),
        ("priority = 11", "5: route.priority: it must be from -10 to 10"),
        ("auth = 'all'", "5: route.auth: \"all\" is neither token nor none"),
        ("headers = 'x'", "5: route.headers: a table of texts is expected, not the text \"x\""),
        ("headers = { 'A:b' = 'c' }", "5: route.headers: \"A:b\" is no name of a header field"),
        ("headers = { Location = '/' }", "5: route.headers: location is for the server itself to set"),
        (
            "accepts = []",
            "5: route.accepts: [] names no media type: name at least one, or leave the key out, and any is accepted",
        ),
        ("accepts = [1]", "5: route.accepts: a text is expected, not the number 1"),
        ("acepts = 'a/b'", "5: unknown key \"acepts\" in [[route]]; did you mean \"accepts\"?"),
        (good, "7: route.path: a route before it is for POST /a/{x}, too"),
        ("[[route]]\nmethod = 'POST'", "5: route: path is missing: a route has a method, a path and a task"),
        (
            "[[route]]\nmethod = 'POST'\npath = '/v1/x'\ntask = 't'",
            "7: route.path: /v1 is the supervisor's own",
        ),
    ] {
        assert_eq!(parse(&format!("{good}{field}")).unwrap_err(), format!("offload.toml:{expected}"));
    }
    let one = parse("[route]\npath = '/'").unwrap_err();
    assert!(one.starts_with("offload.toml:1: [route] is written [[route]]"), "{one}");
}

#[test]
fn the_task_in_the_reference_is_one() {
    let text: String =
        TASK_EXAMPLE.lines().map(|line| line.trim_start_matches('#').to_owned() + "\n").collect();
    let programs = values(&text).programs;
    assert_eq!(programs["thumb"].words[0], "convert");
    let said = text.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(said, super::super::programs::FIELDS.len(), "all fields are explained");
}

#[test]
fn a_task_of_the_file_may_be_a_program_and_mistakes_are_told_with_their_lines() {
    let text = "[task.a]\nexec = \"sort -u\"\nbatch = { max = 2 }\nmemory = 1048576\nsuccess = [0, 1]\nenv = { A = \"b c\" }\n\
                idempotent = true\n[task.b]\nbatch = { max = 3 }\n";
    let values = values(text);
    let program = &values.programs["a"];
    assert_eq!(
        (program.words.join(" "), program.memory, program.idempotent),
        ("sort -u".to_owned(), Some(1 << 20), true)
    );
    assert_eq!((program.success.as_slice(), program.environment["A"].as_str()), (&[0, 1][..], "b c"));
    assert_eq!((values.programs.len(), values.pool.core.batches.len()), (1, 2));
    for (text, expected) in [
        ("[task.a]\nexec = []", ":2: task.a.exec: an empty command"),
        ("[task.a]\nexec = 3", ":2: task.a.exec: a text is expected"),
        ("[task.a]\ntimeout = \"1s\"", "task a: exec is missing"),
        (
            "[task.a]\nexec = \"x\"\ntimeot = \"1s\"",
            ":3: unknown key \"timeot\" in [task.a]; did you mean \"timeout\"?",
        ),
        ("[task.a]\nexec = \"x\"\nsuccess = [256]", ":3: task.a.success"),
        ("[task.a]\nexec = \"x\"\nenv = \"A=b\"", ":3: task.a.env: a table of texts"),
        ("[task.a]\nexec = \"x\"\naccepts = []", ":3: task.a.accepts: [] names no media type"),
        ("[task]\na = 1", ":2: task.a: a table is expected"),
        ("[task.\"2a\"]\nexec = \"x\"", "cannot be the name of a task: 1 to 64 ASCII letters"),
    ] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn where_http_is_answered_may_be_written_in_the_table_of_the_supervisor() {
    let listens = |text: &str| parse(text).map(|layer| format!("{layer:?}").contains("127.0.0.1:8080"));
    assert_eq!(listens("[supervisor]\nhttp = \"127.0.0.1:8080\""), Ok(true));
    assert_eq!(listens("[http]\nlisten = [\"127.0.0.1:8080\"]"), Ok(true));
    let twice = parse("[supervisor]\nhttp = \"127.0.0.1:1\"\n[http]\nlisten = \"127.0.0.1:2\"").unwrap_err();
    assert!(twice.contains("supervisor.http says the same: write one of the two"), "{twice}");
}
