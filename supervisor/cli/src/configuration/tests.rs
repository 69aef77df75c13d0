//! Properties of every setting are tested over the whole table, so a new setting needs no tests of its own for them.

use super::arguments::{Everywhere, KeyFlags, NumberOfWorkers, Programs, Queue, Supervision};
use super::file::parse_file;
use super::key::{ANY, TextKind, ValueKind};
use super::table::{FILE_TABLES, in_table};
use super::*;
use clap::{Args, Command, FromArgMatches};
use offload_protocol::limits::{CORE_VARIABLE, MARK_VARIABLE, PAYLOAD_MAX_VARIABLE};
use offload_supervisor::limits::SOCKET_PATH_MAX;
use offload_supervisor::workers::orphans::GENERATION_VARIABLE;
use offload_worker::confine;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

fn file(text: &str) -> Result<Layer, String> {
    parse_file(text, Path::new("offload.toml")).map_err(|error| error.to_string())
}

fn environment(name: &str, value: &str) -> Result<Layer, String> {
    let variable = |asked: &str| (asked == name).then(|| OsString::from(value));
    read_environment(TABLE, variable).map_err(|error| error.to_string())
}

/// The flags of all settings, as `serve` has them.
fn all_flags() -> Command {
    let command = Command::new("offload").no_binary_name(true);
    let command = KeyFlags::<Everywhere>::augment_args(command);
    let command = KeyFlags::<NumberOfWorkers>::augment_args(command);
    let command = KeyFlags::<Programs>::augment_args(command);
    let command = KeyFlags::<Queue>::augment_args(command);
    KeyFlags::<Supervision>::augment_args(command)
}

fn flags(words: &[&str]) -> Result<Layer, String> {
    let matches = all_flags().try_get_matches_from(words).map_err(|error| error.to_string())?;
    fn said<C: super::arguments::Choice>(matches: &clap::ArgMatches) -> Layer {
        KeyFlags::<C>::from_arg_matches(matches).unwrap().layer()
    }
    let all =
        said::<Everywhere>(&matches).and(said::<NumberOfWorkers>(&matches)).and(said::<Programs>(&matches));
    Ok(all.and(said::<Queue>(&matches)).and(said::<Supervision>(&matches)))
}

fn resolve(layers: &[Layer]) -> Result<Settings, String> {
    Settings::resolve(layers, None).map_err(|error| error.to_string())
}

fn shown(settings: &Settings, key: &Key) -> (String, Origin) {
    let line = settings.show().into_iter().find(|line| line.key == key.name).expect("every key is shown");
    (line.value, line.origin)
}

/// As it is typed, a value that is within the key's bounds and not its default.
fn another_value(key: &Key) -> String {
    match &key.kind {
        ValueKind::Count(bounds) | ValueKind::Bytes(bounds) | ValueKind::Time(bounds) => {
            let values =
                [*bounds.start(), bounds.start() + 1].map(|number| key.show(Some(&key.of_number(number))));
            values
                .into_iter()
                .find(|value| *value != key.show(key.read(&Values::default()).as_ref()))
                .unwrap()
        }
        ValueKind::Switch => (key.read(&Values::default()) != Some(Value::Switch(true))).to_string(),
        ValueKind::Path | ValueKind::File => "/run/other.sock".to_owned(),
        ValueKind::Texts(TextKind::Address) => "127.0.0.1:8081".to_owned(),
        ValueKind::Texts(TextKind::Host) => "jobs.example".to_owned(),
        ValueKind::Word(words) => words[0].to_owned(),
        ValueKind::Texts(TextKind::Proxy) => "10.0.0.0/8".to_owned(),
        ValueKind::Texts(TextKind::Origin) => "https://app.example".to_owned(),
        ValueKind::Commands => "python3 'my worker.py'".to_owned(),
        ValueKind::TaskLists => "hash,thumb:idempotent".to_owned(),
        ValueKind::Weights => "web=10".to_owned(),
        ValueKind::Routes => "POST '/images/{album}' thumbnail timeout=10s".to_owned(),
        ValueKind::Batches => "thumbnail=8/1ms".to_owned(),
        ValueKind::Programs => "thumb timeout=10s -- convert - png:-".to_owned(),
    }
}

/// A file that says this of this key, and nothing else.
fn file_with(key: &Key, value: &str) -> String {
    let written = match key.kind {
        ValueKind::Count(_) | ValueKind::Switch => value.to_owned(),
        ValueKind::Weights => value.rsplit_once('=').unwrap().1.to_owned(),
        ValueKind::Batches => "{ batch = { max = 8, wait = \"1ms\" } }".to_owned(),
        _ => format!("{value:?}"),
    };
    match key.table_and_name() {
        ("route", None) => {
            let words: Vec<&str> = value.split([' ', '=']).collect();
            let [method, path, task, _, timeout] = words[..] else { panic!("{value}") };
            let path = path.trim_matches('\'');
            format!(
                "[[route]]\nmethod = {method:?}\npath = {path:?}\ntask = {task:?}\ntimeout = {timeout:?}\n"
            )
        }
        ("task", Some("exec")) => {
            "\n[task.thumb]\nexec = \"convert - png:-\"\ntimeout = \"10s\"\n".to_owned()
        }
        ("pool", Some(name)) => format!("\n[[pool]]\n{name} = {written}\n"),
        ("pool.restart", Some(name)) => format!("[[pool]]\n\nrestart = {{ {name} = {written} }}\n"),
        (table, Some(name)) => format!("\n[{table}]\n{name} = {written}\n"),
        (table, None) => format!("\n[{table}]\n{} = {written}\n", value.rsplit_once('=').unwrap().0),
    }
}

fn flag_with(key: &Key, value: &str) -> String {
    format!("--{}={value}", key.flag)
}

#[test]
fn each_key_is_set_by_file_variable_and_flag_and_shown_with_its_origin() {
    for key in TABLE {
        let value = another_value(key);
        let by_file = file(&file_with(key, &value)).unwrap();
        let by_variable = environment(&key.variable(), &value).unwrap();
        let by_flag = flags(&[&flag_with(key, &value)]).unwrap();
        for layer in [by_file, by_variable, by_flag] {
            let origin = layer.origin;
            assert_eq!(layer.values.len(), 1, "{} {origin}", key.name);
            let settings = resolve(&[layer]).unwrap();
            assert_eq!(shown(&settings, key), (value.clone(), origin), "{}", key.name);
            assert_ne!(key.read(&settings.values), key.read(&Values::default()), "{}", key.name);
            let others = settings.show().into_iter().filter(|line| line.origin != Origin::Default).count();
            assert_eq!(others, 1, "{} sets something else, too", key.name);
        }
    }
}

#[test]
fn a_value_out_of_bounds_is_refused_by_each_source_with_its_place_and_the_bounds() {
    for key in TABLE {
        let (ValueKind::Count(bounds) | ValueKind::Bytes(bounds) | ValueKind::Time(bounds)) = &key.kind
        else {
            continue;
        };
        let too_little = bounds.start().checked_sub(1);
        let too_much = Some(*bounds.end()).filter(|most| *most != ANY).map(|most| most + 1);
        for number in [too_little, too_much].into_iter().flatten() {
            let value = key.show(Some(&key.of_number(number)));
            let expected = format!("it must be {}, not {value}", key.bounds().unwrap());
            let in_file = file(&file_with(key, &value)).unwrap_err();
            assert_eq!(in_file, format!("offload.toml:3: {}: {expected}", key.name));
            let in_variable = environment(&key.variable(), &value).unwrap_err();
            assert_eq!(in_variable, format!("{}: {expected}", key.variable()));
            let in_flag = flags(&[&flag_with(key, &value)]).unwrap_err();
            assert!(
                in_flag.contains(&format!("'--{} <", key.flag)) && in_flag.contains(&expected),
                "{in_flag}"
            );
        }
    }
}

#[test]
fn each_field_takes_both_bounds_of_its_key_and_the_core_takes_them_too() {
    for key in TABLE {
        let (ValueKind::Count(bounds) | ValueKind::Bytes(bounds) | ValueKind::Time(bounds)) = &key.kind
        else {
            continue;
        };
        for bound in [*bounds.start(), *bounds.end()] {
            let value = key.of_number(bound);
            let mut layer = Layer::new(Origin::File);
            layer.set(key, value.clone(), String::new());
            if key.name == "pool.short_slots" {
                // Nothing but the most workers goes with the most of these.
                let workers = TABLE.iter().find(|key| key.name == "pool.workers").unwrap();
                layer.set(workers, workers.of_number(256), String::new());
            }
            let settings = resolve(&[layer]).unwrap();
            assert_eq!(key.read(&settings.values), Some(value), "{}", key.name);
        }
    }
}

#[test]
fn each_key_is_in_the_help_in_config_show_and_in_the_reference() {
    let help = all_flags().render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let (reference, document) = (reference(), reference_json());
    let default = resolve(&[]).unwrap();
    for key in TABLE {
        let [flag, variable] = [format!("--{}", key.flag), key.variable()];
        for part in [&flag, &variable, key.about, &key.default()] {
            assert!(help.contains(part), "the help lacks {part}");
        }
        assert_eq!(shown(&default, key).1, Origin::Default);
        let explained =
            reference.split("\n\n").find(|part| part.contains(&format!("({flag}, {variable}, "))).unwrap();
        let name = key.table_and_name().1.unwrap_or("NAME");
        let example = match key.kind {
            ValueKind::Routes => "\n# [[route]]\n".to_owned(),
            ValueKind::Programs => "\n# [task.thumb]\n".to_owned(),
            _ => format!("\n#{name} = "),
        };
        assert!(explained.contains(&example), "{explained}");
        assert!(document.contains(&format!("{:?}", key.name)));
    }
}

/// Keys that can be set by one line of the file.
fn in_one_line() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().filter(|key| ![ValueKind::Routes, ValueKind::Programs].contains(&key.kind))
}

#[test]
fn the_route_in_the_reference_is_one() {
    let text: String =
        reference::ROUTE_EXAMPLE.lines().map(|line| line.trim_start_matches('#').to_owned() + "\n").collect();
    let routes = resolve(&[file(&text).unwrap()]).unwrap().values.routes;
    assert_eq!((routes.len(), routes[0].headers.len(), routes[0].accepts.len()), (1, 1, 1));
    let said = text.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(said, super::routes::FIELDS.len(), "all fields are explained");
}

#[test]
fn the_reference_is_a_configuration_file_that_sets_nothing_and_explains_everything() {
    assert_eq!(file(&reference()), Ok(Layer::new(Origin::File)));
    let set =
        |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
    let all: Vec<_> = reference().lines().map(set).collect();
    let layer = file(&all.join("\n")).unwrap();
    assert_eq!(layer.values.len(), in_one_line().count());
    let settings = resolve(&[layer]).unwrap();
    for key in TABLE.iter().filter(|key| key.has_plain_default()) {
        assert_eq!(key.read(&settings.values), key.read(&Values::default()), "{}", key.name);
    }
}

/// Whoever takes the reference as a template changes one line of it at a time.
#[test]
fn each_line_of_the_reference_is_valid_alone() {
    let reference = reference();
    let is_setting = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line != "#";
    let settings: Vec<&str> = reference.lines().filter(|line| is_setting(line)).collect();
    assert_eq!(settings.len(), in_one_line().count());
    for setting in settings {
        let set = |line: &str| if line == setting { line[1..].to_owned() } else { line.to_owned() };
        let text: Vec<_> = reference.lines().map(set).collect();
        let checked = file(&text.join("\n")).and_then(|layer| resolve(&[layer]));
        assert!(checked.is_ok(), "{setting}: {checked:?}");
    }
}

#[test]
fn the_file_in_the_readme_is_valid() {
    let readme = include_str!("../../README.md");
    let (_, text) = readme.split_once("```toml\n").expect("README has an example of a file");
    let (text, _) = text.split_once("```").unwrap();
    let settings = resolve(&[file(text).unwrap()]).unwrap();
    let from_file: BTreeMap<_, _> = settings
        .show()
        .into_iter()
        .filter(|line| line.origin == Origin::File)
        .map(|line| (line.key, line.value))
        .collect();
    let keys = ["clients", "pool.command", "pool.max_rss", "pool.run_timeout", "pool.workers"];
    assert!(keys.iter().all(|key| from_file.contains_key(key)), "{from_file:?}");
    let images = "env=MODEL=/srv/model dir=/srv/images open_files=500 -- python3 worker.py";
    assert_eq!(from_file["pool.command"], format!("{images}; builtin"), "these are two programs");
}

#[test]
fn names_flags_and_variables_are_those_of_one_key() {
    let names: BTreeSet<_> = TABLE.iter().map(|key| key.name).collect();
    let flags: BTreeSet<_> = TABLE.iter().map(|key| key.flag).collect();
    let variables: BTreeSet<_> = TABLE.iter().map(Key::variable).collect();
    assert_eq!([names.len(), flags.len(), variables.len()], [TABLE.len(); 3]);
    assert!(TABLE.iter().all(|key| FILE_TABLES.contains(&key.table_and_name().0)));
}

/// A program that a worker starts may be `offload` itself: what it is told as a worker's must not configure it.
#[test]
fn what_workers_are_told_in_their_environment_is_no_setting() {
    let told = [
        MARK_VARIABLE,
        CORE_VARIABLE,
        PAYLOAD_MAX_VARIABLE,
        GENERATION_VARIABLE,
        confine::OPEN_FILES_VARIABLE,
        confine::STACK_VARIABLE,
        confine::FILE_SIZE_VARIABLE,
        confine::MEMORY_VARIABLE,
    ];
    for key in TABLE {
        assert!(!told.contains(&key.variable().as_str()), "{} means two things", key.variable());
    }
}

#[test]
fn a_flag_goes_before_the_environment_before_the_file_before_the_default() {
    let key = TABLE.iter().find(|key| key.name == "pool.workers").unwrap();
    let layers = [
        flags(&["--workers", "1"]).unwrap(),
        environment("OFFLOAD_WORKERS", "2").unwrap(),
        file("[[pool]]\nworkers = 3").unwrap(),
    ];
    let decided = |layers: &[Layer]| shown(&resolve(layers).unwrap(), key);
    assert_eq!(decided(&layers), ("1".to_owned(), Origin::Flag));
    assert_eq!(decided(&layers[1..]), ("2".to_owned(), Origin::Environment));
    assert_eq!(decided(&layers[2..]), ("3".to_owned(), Origin::File));
    assert_eq!(decided(&[]).1, Origin::Default);
}

#[test]
fn what_does_not_go_together_is_told_with_the_place_of_the_one_that_cannot_be() {
    for (text, expected) in [
        (
            "[supervisor]\nmax_bytes = \"1MiB\"\nmax_payload = \"2MiB\"",
            "offload.toml:3: supervisor.max_payload: 2MiB is over max_bytes, 1MiB: the largest job could never be queued",
        ),
        (
            "[[pool]]\nrestart = { backoff_max = \"1s\", backoff_min = \"10s\" }",
            "offload.toml:2: pool.restart.backoff_min: 10s is over backoff_max, 1s",
        ),
        (
            "[[pool]]\nworkers = 2\nshort_slots = 2",
            "offload.toml:3: pool.short_slots: 2 of 2 workers: none would be left for long jobs",
        ),
        (
            "[[pool]]\ncommand = \"a\"\nworkers = 1\n[[pool]]\ncommand = \"b\"",
            "offload.toml:3: pool.workers: 1 is too few for 2 worker programs: each needs a worker",
        ),
    ] {
        assert_eq!(resolve(&[file(text).unwrap()]).unwrap_err(), expected);
    }
    let exec =
        [flags(&["--workers", "1"]).unwrap(), file("[task.up]\nexec = [\"tr\", \"a-z\", \"A-Z\"]").unwrap()];
    let said = resolve(&exec).unwrap_err();
    assert!(
        said.starts_with("--workers: 1 is too few for 2 worker programs") && said.contains("exec tasks"),
        "{said}"
    );
    let both =
        [flags(&["--max-payload", "2MiB"]).unwrap(), environment("OFFLOAD_MAX_BYTES", "1MiB").unwrap()];
    assert!(resolve(&both).unwrap_err().starts_with("--max-payload: 2MiB is over max_bytes, 1MiB"));
}

#[test]
fn a_default_gives_way_to_a_value_that_somebody_chose() {
    let core = |words: &[&str]| resolve(&[flags(words).unwrap()]).unwrap().values.pool.core;
    let little = core(&["--max-bytes=1MiB"]);
    assert_eq!((little.max_payload, little.max_bytes), (1 << 20, 1 << 20));
    let much = core(&["--max-payload=1GiB"]);
    assert_eq!((much.max_payload, much.max_bytes), (1 << 30, 1 << 30));
    let soon = core(&["--backoff-max=1ms"]);
    assert_eq!((soon.backoff_min, soon.backoff_max), (Duration::from_millis(1), Duration::from_millis(1)));
    let late = core(&["--backoff-min=1h"]);
    assert_eq!(late.backoff_max, Duration::from_secs(3600));
    let many = core(&["--worker=a"; 200]);
    assert_eq!(many.workers, 200);
}

#[test]
fn what_the_file_says_in_vain_is_told_with_who_decided() {
    let written = file("[[pool]]\nmax_attempts = 2\nspares = 0\nrun_timeout = \"1s\"").unwrap();
    let environment = environment("OFFLOAD_MAX_ATTEMPTS", "4").unwrap();
    let flags = flags(&["--spares=0", "--run-timeout=2s"]).unwrap();
    let overruled = resolve(&[flags, environment, written]).unwrap().overruled();
    let told: Vec<_> =
        overruled.iter().map(|one| (&*one.setting, &*one.in_effect, &*one.configured, &*one.why)).collect();
    assert_eq!(
        told,
        [
            ("pool.run_timeout", "2s", "1s", "a flag says otherwise"),
            ("pool.max_attempts", "4", "2", "the environment says otherwise"),
        ]
    );
}

#[test]
fn settings_that_need_a_restart_are_those_that_no_reload_reads() {
    let fixed: Vec<_> = resolve(&[]).unwrap().fixed().into_iter().map(|setting| setting.key).collect();
    let (http, others): (Vec<_>, Vec<_>) = fixed.into_iter().partition(|key| key.starts_with("http."));
    assert_eq!(others, ["supervisor.socket", "pool.linger", "pool.affinity", "io.threads", "io.root"]);
    let all_of_http = in_table("http").chain(in_table("http.tls"));
    assert!(http.iter().eq(all_of_http.map(|key| &key.name)), "{http:?}");
}

#[test]
fn a_socket_is_demanded_only_by_who_needs_it() {
    let settings = resolve(&[]).unwrap();
    assert!(settings.socket().unwrap_err().to_string().contains("--socket"));
    let too_long = Settings::resolve(&[], Some("x".repeat(SOCKET_PATH_MAX + 1).into())).unwrap();
    assert!(too_long.socket().unwrap_err().to_string().contains("at most 107"));
}

#[test]
fn a_socket_path_that_the_kernel_cannot_take_is_refused_wherever_it_stands() {
    for (path, expected) in [
        ("", "is empty"),
        ("\\u0000abstract", "has a zero byte"),
        (&"x".repeat(SOCKET_PATH_MAX + 1), "at most 107"),
    ] {
        let said = file(&format!("[supervisor]\nsocket = \"{path}\"")).unwrap_err();
        assert!(said.starts_with("offload.toml:2: supervisor.socket: ") && said.contains(expected), "{said}");
    }
    assert!(environment("OFFLOAD_SOCKET", "").unwrap_err().starts_with("OFFLOAD_SOCKET: "));
    assert!(flags(&["--socket="]).unwrap_err().contains("'--socket <PATH>'"));
    assert!(flags(&["--socket", &"x".repeat(SOCKET_PATH_MAX)]).is_ok());
}

#[test]
fn flags_that_may_be_given_several_times_add_up() {
    let layer =
        flags(&["--worker", "a b", "--weight=web=10", "--worker=c", "--weight", "nightly=1"]).unwrap();
    let values = resolve(&[layer]).unwrap().values;
    assert_eq!(values.commands, [vec!["a", "b"], vec!["c"]]);
    assert_eq!(values.pool.core.weights, [("nightly".to_owned(), 1), ("web".to_owned(), 10)].into());
    assert!(flags(&["--workers=1", "--workers=2"]).is_err());
}

#[test]
fn a_client_is_given_two_shares_by_no_source() {
    assert!(environment("OFFLOAD_WEIGHTS", "a=1,a=2").unwrap_err().contains("\"a\" is given two shares"));
    let words = ["--weight", "a=1", "--weight", "a=2"];
    let matches = all_flags().try_get_matches_from(words).unwrap();
    let error = KeyFlags::<Supervision>::from_arg_matches(&matches).unwrap_err();
    assert_eq!(error.to_string(), "error: --weight: \"a\" is given two shares\n");
    assert!(file("[clients]\na = 1\na = 2").is_err());
}

#[test]
fn a_pool_without_a_command_beside_others_runs_the_built_in_tasks() {
    let commands = |text: &str| resolve(&[file(text).unwrap()]).unwrap().values.commands;
    let (own, builtin) = (vec!["a".to_owned()], vec!["builtin".to_owned()]);
    let both = [own.clone(), builtin.clone()];
    assert_eq!(commands("[[pool]]\nworkers = 1\n[[pool]]\ncommand = \"a\"\nworkers = 1"), both);
    assert_eq!(commands("[[pool]]\ncommand = \"a\"\n[[pool]]\n[[pool]]"), both);
    assert_eq!(commands("[[pool]]\ncommand = \"builtin\"\n[[pool]]\nspares = 0"), [builtin]);
    assert_eq!(commands("[[pool]]\ncommand = \"a\"\nspares = 0"), [own]);
    assert!(commands("[[pool]]\nworkers = 2\n[[pool]]").is_empty());
    let too_few = file("[[pool]]\nworkers = 1\n\n[[pool]]\ncommand = \"a\"").unwrap();
    assert_eq!(
        resolve(&[too_few]).unwrap_err(),
        "offload.toml:2: pool.workers: 1 is too few for 2 worker programs: each needs a worker"
    );
}

#[test]
fn the_largest_payload_that_is_shown_is_the_one_that_counts_and_the_setting_that_bounds_it_is_known() {
    let with = |words: &[&str]| {
        let settings = resolve(&[flags(words).unwrap()]).unwrap();
        let shown = settings.show().into_iter().find(|line| line.key == "supervisor.max_payload").unwrap();
        (shown.value, settings.payload_setting())
    };
    for (words, shown, setting) in [
        (&[][..], "64MiB", "--max-payload"),
        (&["--max-payload=1KiB"], "1KiB", "--max-payload"),
        (&["--max-bytes=1"], "1B", "--max-bytes"),
        (&["--max-bytes=1KiB", "--max-payload=1KiB"], "1KiB", "--max-payload and --max-bytes"),
    ] {
        assert_eq!(with(words), (shown.to_owned(), setting), "{words:?}");
    }
}

#[test]
fn the_socket_is_read_from_a_file_whatever_else_that_says() {
    let read = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offload.toml");
        std::fs::write(&path, text).unwrap();
        super::read_key_of_file(super::table::socket_key(), &ConfigFile::named(&path))
            .map_err(|error| error.to_string())
    };
    let socket = |text: &str| resolve(&[read(text).unwrap()]).unwrap().values.socket;
    let mistakes = "[supervisor]\nsocket = \"/run/x\"\nmax_jobs = 0\nbananas = 1\n[[supervizor]]\n[pool]\n";
    assert_eq!(socket(mistakes), Some("/run/x".into()));
    for without in ["", "[supervisor]\nmax_jobs = 3", "supervisor = 3"] {
        assert_eq!(socket(without), None, "{without}");
    }
    for (text, expected) in [
        ("[supervisor]\nsocket = \"\"", ":2: supervisor.socket: the path of the socket is empty"),
        ("[supervisor]\nsocket = 3", ":2: supervisor.socket: a path is expected"),
        ("[supervisor\n", ":1: "),
    ] {
        assert!(read(text).unwrap_err().contains(expected), "{text}");
    }
}
