//! The table of all settings. The file, the variables, the flags and their help, `config show`, `config reference`,
//! messages and the report of a reload are all generated from it. To add a setting, add an entry here, a field with its
//! default in `CoreConfig` (or [`Values`]), and the code that uses it.
//!
//! Settings of one group are in the order of the help; settings of one table of the file are in the order of `config
//! show`.

mod together;

use super::Values;
use super::http_checks::{LISTEN, addresses_go_together, routes_go_together};
use super::key::ValueKind::{
    Batches, Bytes, Commands, Count, File, Path, Programs, Routes, Switch, TaskLists, Texts, Time, Weights,
    Word,
};
use super::key::{ANY, Access, Group, Key, TextKind, key};
use crate::limits::{CONFIGURED_JOBS_MAX, HTTP_CONNECTIONS_MAX, IO_THREADS_MAX, WORKER_PATIENCE_MS};
use offload_core::limits::{ATTEMPTS_MAX, PROMISE_BYTES, WORKERS_MAX};
use offload_protocol::limits::PAYLOAD_MAX_CEILING;
use together::{
    backoff_max_over_min, backoff_min_is_within_max, backoff_min_within_max, bytes_for_the_largest_payload,
    each_program_has_a_worker, long_jobs_have_a_slot, payload_within_bytes,
    the_largest_payload_can_be_queued, workers_for_each_program,
};

/// The setting that says where the supervisor is.
pub(crate) const SOCKET: &str = "supervisor.socket";
/// The setting that says which programs the workers run.
pub(crate) const COMMAND: &str = "pool.command";
/// The setting that says which programs with JSON Lines run.
pub(crate) const JSONL: &str = "pool.jsonl";
/// The setting that says which HTTP applications run.
pub(crate) const HTTP: &str = "pool.http";
/// The setting that says which tasks these have, in the same order.
pub(crate) const TASKS: &str = "pool.tasks";
/// The command that stands for the built-in worker.
pub(crate) const BUILTIN: &str = "builtin";
/// The longest input or output; by default it gives way to the memory for all of them.
pub(super) const MAX_PAYLOAD: &str = "supervisor.max_payload";
/// The setting that a pool for one batch has another default for.
pub(crate) const SPARES: &str = "pool.spares";

/// How a line of the access log is written.
pub(crate) const ACCESS_LOG_FORMATS: [&str; 3] = ["common", "combined", "json"];

/// The tables of the file, in its order.
pub(crate) const FILE_TABLES: [&str; 9] =
    ["supervisor", "clients", TASK, "pool", "pool.restart", "io", "http", "http.tls", ROUTE];

/// The table of a route over HTTP, of which there may be several.
pub(super) const ROUTE: &str = "route";
/// The table of the tasks, each of which is a table in it.
pub(super) const TASK: &str = "task";

/// The field of the [`Values`] in which a setting is kept.
macro_rules! field {
    ($($field:ident).+) => {
        Access { get: |values| &values.$($field).+, get_mut: |values| &mut values.$($field).+ }
    };
}

/// See the module's documentation.
pub(crate) static TABLE: &[Key] = &[
    key(SOCKET, "socket", Path, field!(socket), "Local socket of the supervisor, in a folder of mode 0700")
        .in_group(Group::Everywhere)
        .by_default(
            "$XDG_RUNTIME_DIR/offload/offload.sock if that variable is set; else \
             /run/user/UID/offload/offload.sock if the folder /run/user/UID is there; else \
             $HOME/.offload/offload.sock",
            "/run/user/1000/offload/offload.sock",
        )
        .that_needs_a_restart(),
    key(
        COMMAND,
        "worker",
        Commands,
        field!(commands),
        "Worker program with its arguments: one that speaks the protocol of workers, as \
         examples/worker.py does, or `builtin`; may be given several times",
    )
    .in_group(Group::Programs)
    .by_default(BUILTIN, BUILTIN)
    .without_it("built-in")
    .added_up(),
    key(
        JSONL,
        "worker-jsonl",
        Commands,
        field!(jsonl_commands),
        "Program with its arguments that reads and writes JSON Lines on descriptors 3 and 4, as \
         examples/jsonl/worker.py does; may be given several times, and beside --worker",
    )
    .in_group(Group::Programs)
    .for_example("python3 examples/jsonl/worker.py")
    .added_up(),
    key(
        HTTP,
        "worker-http",
        Commands,
        field!(http_commands),
        "HTTP application with its arguments, which listens at {socket} or at {port}; needs --tasks; may be given several times",
    )
    .in_group(Group::Programs)
    .for_example("uvicorn app:app --uds {socket}")
    .added_up(),
    key(
        TASKS,
        "tasks",
        TaskLists,
        field!(http_tasks),
        "Tasks of an HTTP application, each POST /NAME: NAME, NAME:idempotent or NAME:produces=TYPE; once for each --worker-http",
    )
    .in_group(Group::Programs)
    .for_example("extract,thumb:idempotent:produces=image/png")
    .added_up(),
    key(
        "pool.workers",
        "workers",
        Count(1..=WORKERS_MAX as u64),
        field!(pool.core.workers),
        "Worker processes",
    )
    .in_group(Group::NumberOfWorkers)
    .by_default("the logical cores that this process may use", "4")
    .added_up()
    .giving_way(workers_for_each_program)
    .that_goes_with(each_program_has_a_worker),
    key(
        SPARES,
        "spares",
        Count(0..=1),
        field!(pool.core.spares),
        "Spare worker processes, ready to replace one that dies: 0 or 1",
    ),
    key(
        "pool.run_timeout",
        "run-timeout",
        Time(1..=ANY),
        field!(pool.core.run_timeout),
        "Timeout of each attempt, unless the job has its own",
    ),
    key(
        "pool.max_attempts",
        "max-attempts",
        Count(1..=ATTEMPTS_MAX as u64),
        field!(pool.core.max_attempts),
        "Maximum attempts of a job whose task is idempotent, the first one included",
    ),
    key(
        "supervisor.drain_timeout",
        "drain-timeout",
        Time(0..=ANY),
        field!(pool.core.drain_timeout),
        "Time that jobs have to finish after SIGTERM, SIGINT or another signal to end",
    ),
    key(
        "supervisor.max_jobs",
        "max-jobs",
        Count(1..=CONFIGURED_JOBS_MAX),
        field!(pool.core.max_jobs),
        "Maximum queued jobs",
    )
    .in_group(Group::Queue),
    key(
        "supervisor.max_bytes",
        "max-bytes",
        Bytes(1..=ANY),
        field!(pool.core.max_bytes),
        "Maximum bytes held for clients: inputs, checkpoints and outputs not yet delivered",
    )
    .in_group(Group::Queue)
    .giving_way(bytes_for_the_largest_payload),
    key(
        MAX_PAYLOAD,
        "max-payload",
        Bytes(1..=PAYLOAD_MAX_CEILING as u64),
        field!(pool.core.max_payload),
        "Maximum input or output of one job, up to 1GiB",
    )
    .in_group(Group::Queue)
    .giving_way(payload_within_bytes)
    .that_goes_with(the_largest_payload_can_be_queued),
    key(
        "pool.restart.backoff_min",
        "backoff-min",
        Time(1..=ANY),
        field!(pool.core.backoff_min),
        "Backoff after the first failed start of a worker; each further one doubles it",
    )
    .giving_way(backoff_min_within_max)
    .that_goes_with(backoff_min_is_within_max),
    key(
        "pool.restart.backoff_max",
        "backoff-max",
        Time(1..=ANY),
        field!(pool.core.backoff_max),
        "Maximum backoff, before up to a quarter is added at random",
    )
    .giving_way(backoff_max_over_min),
    key(
        "pool.restart.max_restarts",
        "max-restarts",
        Count(1..=u32::MAX as u64),
        field!(pool.core.max_restarts),
        "Failed starts in a row after which jobs are rejected until a worker says hello",
    ),
    key(
        "pool.restart.window",
        "restart-window",
        Time(0..=ANY),
        field!(pool.core.window),
        "A worker that exits within this time without having done a job counts as a failed start",
    ),
    key(
        "pool.hello_timeout",
        "hello-timeout",
        Time(WORKER_PATIENCE_MS),
        field!(pool.core.hello_timeout),
        "Maximum time from the start of a worker process to its hello",
    ),
    key(
        "pool.hang_timeout",
        "hang-timeout",
        Time(WORKER_PATIENCE_MS),
        field!(pool.core.hang_timeout),
        "Kill a worker that is stopped (SIGSTOP), or that promised to report progress and does not, \
         after this",
    ),
    key(
        "pool.max_jobs_per_worker",
        "max-jobs-per-worker",
        Count(1..=ANY),
        field!(pool.core.max_jobs_per_worker),
        "Replace a worker after N jobs, or up to a quarter more at random; it is given no more",
    )
    .for_example("1000")
    .without_it("never"),
    key(
        "pool.max_rss",
        "max-rss",
        Bytes(1..=ANY),
        field!(pool.core.max_rss),
        "Replace a worker whose resident memory exceeds this",
    )
    .for_example("1GiB")
    .without_it("never"),
    key(
        "pool.max_age",
        "max-age",
        Time(1..=ANY),
        field!(pool.core.max_age),
        "Replace a worker of this age, or up to a quarter older at random",
    )
    .for_example("24h")
    .without_it("never"),
    key("pool.linger", "linger", Switch, field!(pool.linger), "Look for answers before going to sleep")
        .by_default("true with at least two cores", "true")
        .that_needs_a_restart(),
    key("pool.affinity", "affinity", Switch, field!(pool.affinity), "Bind each worker to one core")
        .that_needs_a_restart(),
    key(
        "pool.short_slots",
        "short-slots",
        Count(0..=WORKERS_MAX as u64 - 1),
        field!(pool.core.short_slots),
        "Slots of each program that are reserved for short jobs (under 10 ms) while some arrive",
    )
    .for_example("0")
    .without_it("a quarter")
    .that_goes_with(long_jobs_have_a_slot),
    key(
        "supervisor.max_jobs_per_client",
        "max-jobs-per-client",
        Count(1..=CONFIGURED_JOBS_MAX),
        field!(pool.core.max_jobs_per_client),
        "Maximum queued jobs of one client",
    )
    .for_example("1000")
    .without_it("nine tenths of max_jobs"),
    key(
        "supervisor.keep_results",
        "keep-results",
        Time(0..=ANY),
        field!(pool.core.keep_results),
        "Keep the result of a detached job for this long after its end, or until it is collected",
    ),
    key(
        "supervisor.keep_keys",
        "keep-keys",
        Time(0..=ANY),
        field!(pool.core.keep_keys),
        "Keep an idempotency key and the result of its job for this long after the job's end, or for `keep_results` if that is longer",
    ),
    key(
        "supervisor.keep_dead_letters",
        "keep-dead-letters",
        Time(0..=ANY),
        field!(pool.core.keep_dead_letters),
        "Keep a dead letter for this long",
    ),
    key(
        "supervisor.max_kept_bytes",
        "max-kept-bytes",
        Bytes(2 * PROMISE_BYTES..=ANY),
        field!(pool.core.max_kept_bytes),
        "Maximum bytes of kept results and keys, beside the outputs of the jobs that run when it is reached; one client gets as much \
         of it as it leaves free",
    ),
    key(
        "clients",
        "weight",
        Weights,
        field!(pool.core.weights),
        "Scheduling weight of the client NAME, 1 to 1000; may be given several times",
    )
    .with_variable("OFFLOAD_WEIGHTS")
    .for_example("10")
    .without_it("1 each"),
    key(
        TASK,
        "batch",
        Batches,
        field!(pool.core.batches),
        "Most jobs of TASK that run together, 1 to 32, and how long the first one waits for others, up to 1s; lowers what its \
         workers offer; may be given several times",
    )
    .with_variable("OFFLOAD_BATCHES")
    .for_example("{ batch = { max = 8, wait = \"2ms\" } }")
    .without_it("what workers offer"),
    key(
        "task.exec",
        "exec-task",
        Programs,
        field!(programs),
        "Task that is a program: NAME, what is said of it, as in timeout=10s (see `config reference`; a list is said word by word, as in \
         success=0 success=3), `--` and the command, which is started once for each job; may be given several times",
    )
    .in_group(Group::Programs)
    .for_example("thumb timeout=10s -- convert - -thumbnail 200 png:-"),
    key(
        "io.threads",
        "io-threads",
        Count(1..=IO_THREADS_MAX),
        field!(io_threads),
        "Threads for blocking work",
    )
    .that_needs_a_restart(),
    key(
        "io.root",
        "io-root",
        File,
        field!(pool.io_root),
        "Folder below which fs.read and fs.stat read files, without a worker: the one that is there at the start; with it there is dns.lookup",
    )
    .in_group(Group::Queue)
    .for_example("/srv/files")
    .that_needs_a_restart(),
    key(
        LISTEN,
        "http",
        Texts(TextKind::Address),
        field!(http.listen),
        "Also answer HTTP at HOST:PORT (a literal address), unix:PATH or fd:N; may be given several times",
    )
    .for_example("127.0.0.1:8080")
    .that_goes_with(addresses_go_together)
    .that_needs_a_restart(),
    key(
        "http.public",
        "http-public",
        Switch,
        field!(http.is_public),
        "Allow HTTP addresses that other machines can reach; without TLS, anybody on the way can read the token",
    )
    .that_needs_a_restart(),
    key(
        "http.token_file",
        "http-token-file",
        File,
        field!(http.token_file),
        "File of mode 0600 with the token, or two (old and new), one a line; a reload reads it again",
    )
    .by_default("http.token beside the socket, made at the first start", "/etc/offload/http.token")
    .that_needs_a_restart(),
    key(
        "http.hosts",
        "http-host",
        Texts(TextKind::Host),
        field!(http.hosts),
        "Further `Host` name or IPv4 address that requests may be sent to (always: localhost, loopback); others get 403; \
         may be given several times",
    )
    .for_example("jobs.example")
    .that_needs_a_restart(),
    key(
        "http.cors",
        "http-cors",
        Texts(TextKind::Origin),
        field!(http.origins),
        "Origin whose pages may call the HTTP interface and read its answers, or `*`: any page, but only routes with \
         auth = \"none\"; may be given several times",
    )
    .for_example("https://app.example")
    .that_needs_a_restart(),
    key(
        "http.max_connections",
        "http-connections",
        Count(1..=HTTP_CONNECTIONS_MAX),
        field!(http.max_connections),
        "Maximum HTTP connections",
    )
    .that_needs_a_restart(),
    key("http.page", "http-page", Switch, field!(http.has_page), "Serve a page for browsers at / of each --http address")
        .that_needs_a_restart(),
    key(
        "http.trusted_proxies",
        "http-trusted-proxy",
        Texts(TextKind::Proxy),
        field!(http.trusted_proxies),
        "Address or network of a proxy whose Forwarded or X-Forwarded-For names the client; may be given several times",
    )
    .for_example("10.0.0.0/8")
    .that_needs_a_restart(),
    key(
        "http.access_log",
        "access-log",
        File,
        field!(http.access_log),
        "File with a line for each HTTP request; to rotate it, rename it and reload",
    )
    .for_example("/var/log/offload/access.log")
    .that_needs_a_restart(),
    key(
        "http.access_log_format",
        "access-log-format",
        Word(&ACCESS_LOG_FORMATS),
        field!(http.access_log_format),
        "Format of the access log: common, combined or json",
    )
    .that_needs_a_restart(),
    key(
        "http.cancel_on_disconnect",
        "http-cancel-on-disconnect",
        Switch,
        field!(http.cancels_on_disconnect),
        "Cancel the job if its HTTP client disconnects before the answer; `false` lets it finish",
    )
    .that_needs_a_restart(),
    key(
        "http.tls.certificate",
        "http-tls-certificate",
        File,
        field!(http.tls.certificate),
        "PEM file with the certificate of this server and those that sign it: HTTP over TCP is then HTTPS; a reload reads \
         it and its key again",
    )
    .for_example("/etc/offload/tls.crt")
    .that_needs_a_restart(),
    key(
        "http.tls.key",
        "http-tls-key",
        File,
        field!(http.tls.key),
        "PEM file of mode 0600 with the key of the certificate, without a passphrase",
    )
    .for_example("/etc/offload/tls.key")
    .that_needs_a_restart(),
    key(
        ROUTE,
        "http-route",
        Routes,
        field!(routes),
        "Also run TASK for requests of this METHOD and PATH; {names} in the path become metadata of the job; options \
         follow, as in timeout=10s (see `config reference`); may be given several times",
    )
    .for_example("POST /hash/{album} sha256 auth=none")
    .that_goes_with(routes_go_together),
];

/// The key that clients need.
pub(crate) fn socket_key() -> &'static Key {
    TABLE.iter().find(|key| key.name == SOCKET).expect("it is in the table")
}

/// The key of the programs of workers.
pub(super) fn command_key() -> &'static Key {
    TABLE.iter().find(|key| key.name == COMMAND).expect("it is in the table")
}

/// All keys, grouped by table of the file.
pub(crate) fn in_file_order() -> impl Iterator<Item = &'static Key> {
    FILE_TABLES.into_iter().flat_map(in_table)
}

/// The keys of one table of the file.
pub(crate) fn in_table(table: &'static str) -> impl Iterator<Item = &'static Key> {
    TABLE.iter().filter(move |key| key.table_and_name().0 == table)
}
