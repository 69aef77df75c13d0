//! The reference of all settings: a configuration file in which every key is explained and none is set. It can be read
//! on a terminal, put into a document, or used as a template.

use super::arguments::value_name;
use super::key::{Key, ValueKind};
use super::table::{FILE_TABLES, ROUTE, TASKS, in_file_order, in_table};
use serde_json::{Value, json};
use std::fmt::Write;

/// Longest line of an explanation, in characters.
const WIDTH: usize = 100;

/// The reference as a configuration file.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    for table in FILE_TABLES {
        if !text.is_empty() {
            text.push('\n');
        }
        begin(table, &mut text);
        in_table(table).for_each(|key| add(key, &mut text));
    }
    text
}

/// What the template says before the reference.
const ABOUT_TEMPLATE: [&str; 4] = [
    "Configuration of offload. Nothing in here is set: to set a key, take away the # before it. Then `offload config check` \
     finds mistakes, and `offload config show` says what is in effect.",
    "A flag counts first, then an environment variable, then this file, then the default. Behind each key: its flag, its variable, its \
     bounds, its default.",
    "Times are written as in \"250ms\", \"10s\", \"5m\", \"24h\"; sizes as numbers of bytes, or as in \"64KiB\", \"512MiB\", \"1GiB\".",
    "A supervisor that runs reads it again on `offload reload`, except for keys that need a restart.",
];

/// The reference as a file to begin with: it says how to use it.
pub(crate) fn template() -> String {
    let mut text = String::new();
    ABOUT_TEMPLATE.iter().for_each(|paragraph| comment(paragraph, &mut text));
    text + "\n" + &reference()
}

/// The reference as a document: an object for each key.
pub(crate) fn reference_json() -> String {
    let keys: Vec<Value> = in_file_order().map(document).collect();
    format!("{}\n", Value::from(keys))
}

fn document(key: &Key) -> Value {
    json!({
        "key": key.name,
        "variable": key.variable(),
        "flag": format!("--{}", key.flag),
        "value": value_name(key),
        "default": key.default(),
        "bounds": key.bounds(),
        "needs_restart": key.needs_restart,
        "about": key.about,
    })
}

const ABOUT_POOLS: &str = "There may be several of these, told apart by `name = \"...\"`, each for a worker program (one without a \
                           command is for `builtin`). Their numbers of workers add up, and the workers go to the programs in turn: \
                           with 6 and 2, two programs have 4 each. All other keys hold for all programs, and have to agree; only \
                           the command, env, dir and open_files are of one program.";

/// All fields of a route. Each line is a comment, because no line of a table means anything without the first three.
pub(super) const ROUTE_EXAMPLE: &str = "\
#
# [[route]]
# method = \"POST\"                # GET (and HEAD), POST, PUT, PATCH or DELETE
# path = \"/images/{album}\"       # {album} becomes metadata of the job
# task = \"thumbnail\"             # the body of the request is its input
# query = [\"width\", \"fit\"]      # parameters of the query that become metadata, too; others are ignored
# timeout = \"10s\"                # run timeout, whatever the client says; default: the client's, or run_timeout
# max_body = \"8MiB\"              # at most max_payload, which is the default
# auth = \"token\"                 # or \"none\": no token needed; Offload-* fields, except Offload-Stream, Prefer and
#                                 # Idempotency-Key are ignored
# accepts = [\"image/*\"]          # other media types are refused with 415; default: all
# mode = \"sync\"                  # or \"async\": answer 202 with the job's address
# priority = 0                    # whatever the client says; default: the client's
# cancel_on_disconnect = true      # default: that of [http]
# headers = { Cache-Control = \"no-store\" }    # of responses with a status of 200 to 299
";

/// What a pool may say of its program, whatever its kind.
const SURROUNDINGS_EXAMPLE: &str = "
# Of the programs of this pool alone; as a flag, in front of the command: --worker 'env=A=b dir=/srv -- python3 worker.py'.
# env = { MODEL = \"/srv/model\" } # beside PATH, HOME, LANG=C.UTF-8 and TZ=UTC
# dir = \"/srv/images\"           # the folder that it is started in; default: the supervisor's
# open_files = 128              # from 16 to 4096
";

/// All fields of a task that is a program. Each line is a comment, because no line of it means anything without the first two.
pub(super) const TASK_EXAMPLE: &str = "\
#
# [task.thumb]
# exec = [\"convert\", \"-\", \"-thumbnail\", \"200\", \"png:-\"]   # or a text; no shell is involved
# timeout = \"10s\"                # then it is ended: timeout; run_timeout and the client's hold, too
# memory = \"1GiB\"                # of it and all that it starts; if it uses more it is ended: worker_oom
# file_size = \"1GiB\"             # of each file that it writes
# env = { LANG = \"de_DE.UTF-8\" } # beside PATH, HOME, LANG=C.UTF-8 and TZ=UTC
# dir = \"/srv/pictures\"          # default: the supervisor's
# success = [0]                   # the exit codes that mean success; with --exec-task, as success=0 success=3
# idempotent = false              # true: run again if its worker ends
# accepts = [\"image/*\"]          # what `offload tasks` says that it takes; default: anything
# produces = \"image/png\"         # default: text if it is UTF-8, otherwise bytes
";

fn begin(table: &str, text: &mut String) {
    let heading = match table {
        "pool" => {
            comment(ABOUT_POOLS, text);
            "[[pool]]".to_owned()
        }
        // An empty one would be a mistake.
        ROUTE => return,
        table => format!("[{table}]"),
    };
    let _ = writeln!(text, "{heading}");
}

fn comment(paragraph: &str, text: &mut String) {
    for line in wrapped(paragraph) {
        let _ = writeln!(text, "# {line}");
    }
}

fn add(key: &Key, text: &mut String) {
    let mut facts = vec![format!("--{}", key.flag), key.variable()];
    facts.extend(key.bounds());
    facts.extend(key.needs_restart.then(|| "needs a restart".to_owned()));
    facts.push(format!("default: {}", key.default()));
    let _ = writeln!(text);
    comment(&format!("{}.", key.about), text);
    comment(&format!("({})", facts.join(", ")), text);
    if key.kind == ValueKind::Routes {
        return text.push_str(ROUTE_EXAMPLE);
    }
    if key.kind == ValueKind::Programs {
        return text.push_str(TASK_EXAMPLE);
    }
    let name = key.table_and_name().1.unwrap_or("NAME");
    let _ = writeln!(text, "#{name} = {}", key.example());
    if key.name == TASKS {
        text.push_str(SURROUNDINGS_EXAMPLE);
    }
}

/// Wraps `text` into lines of at most [`WIDTH`] characters; a longer word gets a line of its own.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= WIDTH - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
