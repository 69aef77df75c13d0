//! The messages that the `offload` supervisor exchanges with its workers and its clients, and their encoding. This crate does
//! no I/O: bytes go in and messages come out, or the other way round.
//!
//! | module | has |
//! |---|---|
//! | [`messages`] | every message, by direction |
//! | [`frame`] | how a stream of bytes is cut into messages with their payloads |
//! | [`codec`] | how the header of a message is encoded |
//! | [`outbox`] | messages that wait to be written |
//! | [`nouns`] | the types that messages consist of: outcomes, reports, offers of tasks |
//! | [`greeting`] | versions: how an end of another one is recognized |
//! | [`limits`] | every bound |
//!
//! # PROTOCOL
//!
//! This section is all that is needed to write a worker in another language. `examples/worker.py` is one in plain Python.
//!
//! A **task** is something that a worker can do, by name; a **job** is one call of it, with an input; an **attempt** is one run
//! of a job. A **stepped** task runs in steps, between which another job may run. A **checkpoint** is a copy of its state, from
//! which another attempt can go on.
//!
//! ## How a worker is started
//!
//! A worker is a program. Its **standard input (descriptor 0)** is one end of a Unix stream socket, which it both reads and
//! writes. Standard output and standard error carry no protocol: the supervisor writes their lines into its log. When a
//! read returns 0 bytes, the supervisor is gone, and the worker has to exit. The supervisor prepares the process, and the worker
//! need do nothing for it: a clean environment (`PATH`, `HOME`, `LANG`, `TZ`, and `OFFLOAD_...`), 128 open files, a process group of
//! its own. A script that starts the worker must end with `exec`, so that the worker takes its place.
//!
//! The environment variable `OFFLOAD_PAYLOAD_MAX` has the length of the longest payload that the supervisor accepts, in
//! bytes, as a decimal number. Welcome says the same.
//!
//! `vectors.json` beside this crate has frames with their meaning, and frames that have to be refused, to test a library in any
//! language. Each vector has its `direction`, what it is `about`, the `frame` in hexadecimal, and either its `meaning` (message,
//! number, fields by name, payload in hexadecimal) or the `error`.
//!
//! ## Frames
//!
//! Both sides send frames, one after another. A frame is one message with its payload:
//!
//! ```text
//! offset  size  field
//! 0       4     H, length of the header in bytes, 1 to 16,384
//! 4       4     P, length of the payload in bytes, at most OFFLOAD_PAYLOAD_MAX (64 MiB unless configured), except where
//!               a message has a bound of its own
//! 8       H     header: the message, see below
//! 8+H     P     payload: raw bytes that the supervisor never looks at
//! ```
//!
//! ## Headers
//!
//! A header is the number of the message as `u32`, then its fields in the order of the tables below, without padding. It
//! ends where the last field ends. All integers, also H and P, are unsigned and little-endian.
//!
//! | type | bytes |
//! |---|---|
//! | `u16`, `u32`, `u64` | 2, 4, 8 |
//! | `bool` | 1: 0 or 1 |
//! | `text` | its length in bytes as `u64`, then that many bytes of UTF-8 |
//! | `list` | the number of its elements as `u64`, then the elements |
//! | `magic` | 8: ASCII characters |
//! | `usage` | three `u64`: the attempt's user CPU time in us, its system CPU time in us, the process's peak resident memory in bytes; 0 if unknown |
//!
//! Messages without an entry in the last column have no payload (P = 0). Those from number 6 on to the worker, and from number 10
//! on from it, belong to capabilities, which most workers do without.
//!
//! | to the worker | number | fields | payload |
//! |---|---|---|---|
//! | Welcome | 0 | major `u16`, minor `u16`, capabilities `u64`, longest payload in bytes `u64` | |
//! | Run | 1 | job `u64`, attempt `u32`, task `text`, media type `text`, timeout in ms `u64`, time to the deadline in ms `u64`, metadata `list` of pairs `text`, `text` | the input |
//! | Cancel | 2 | job `u64` | |
//! | Drain | 3 | | |
//! | Resume | 4 | job `u64` | a checkpoint; only for a task that offered `checkpoints` |
//! | Yield | 5 | job `u64` | |
//! | Credit (`parts`) | 6 | job `u64`, bytes `u64` | |
//! | Segment (`segments`) | 7 | segment `u32`, length in bytes `u64`, use `u32`: 0 inputs, 1 outputs | |
//! | SegmentGone (`segments`) | 8 | segment `u32` | |
//! | InputIn (`segments`) | 9 | job `u64`, segment `u32`, offset `u64`, length `u64` | |
//! | OutputRead (`segments`) | 10 | segment `u32` | |
//! | InputFile (`files`) | 11 | job `u64`, length in bytes `u64` | |
//! | Batch (`batches`) | 12 | jobs `u32` | |
//!
//! | from the worker | number | fields | payload |
//! |---|---|---|---|
//! | Hello | 0 | magic `OFFLOADW`, major `u16` = 3, minor `u16` = 0, capabilities `u64` (0: none), library `text` of at most 64 bytes | |
//! | Offer | 1 | see below | the example, then the schema |
//! | Ready | 2 | | |
//! | Started | 3 | job `u64`, attempt `u32` | |
//! | Finished | 4 | job `u64`, attempt `u32`, run time in ns `u64`, media type `text`, `usage` | the output |
//! | Failed | 5 | job `u64`, attempt `u32`, run time in ns `u64`, kind `u32`, message `text` of at most 1024 bytes, `usage` | |
//! | Skipped | 6 | job `u64` | |
//! | Progress | 7 | job `u64`, attempt `u32`, done `u64`, total `u64` (0: unknown) | |
//! | Checkpoint | 8 | job `u64`, attempt `u32` | a state, at most 65,536 bytes |
//! | Yielded | 9 | job `u64`, attempt `u32`, run time in ns `u64`, `usage` | a state, at most 65,536 bytes |
//! | Part (`parts`) | 10 | job `u64`, attempt `u32` | a part of the output, 1 to 65,536 bytes |
//! | SegmentReady (`segments`) | 11 | segment `u32` | |
//! | SegmentLeft (`segments`) | 12 | segment `u32` | |
//! | OutputIn (`segments`) | 13 | job `u64`, segment `u32`, offset `u64`, length `u64` | |
//! | OfferBatch (`batches`) | 14 | most jobs `u32`, wait in us `u32` | |
//! | Program (`programs`) | 15 | news `u32`; of 2: job `u64`, attempt `u32`; of 3: of another job `bool`, how `text` of at most 1024 bytes | |
//!
//! - An **Offer** is one task: name `text`, idempotent `bool`, lane `u32` = 0, stepped `bool`, checkpoints `bool`, the longest
//!   time between two Progress messages in ms `u32` (0: no promise); description `text` of at most 256 bytes, accepted media
//!   types `list` of at most 8 `text` (`*/*` and `image/*` stand for several), returned media type `text` (`*/*`: any), streams
//!   `bool` (it sends its output in parts), memory that a job needs in bytes `u64` (0: unknown), exclusive `bool` (a job should have its machine to
//!   itself); length of the example in bytes `u32`, length of the schema in bytes `u32`. The payload is an input that the task
//!   can be tried with, and a JSON Schema of its input; both may be empty, and together they have at most 65,536 bytes. `lane` is
//!   reserved. Media types, memory and exclusive are shown to people; the supervisor decides nothing by them.
//! - A **name** is 1 to 64 ASCII letters, digits, `.`, `_` or `-`, and begins with a letter. A worker offers at most 4,096
//!   tasks, in at most 1 MiB; the workers of a program together at most 16,384 different ones.
//! - A **media type** says what a payload is, as in HTTP: 1 to 127 bytes of ASCII, `type/subtype` and perhaps parameters, such
//!   as `image/png`. Text is `text/plain; charset=utf-8`, and bytes of no stated kind are `application/octet-stream`.
//! - The **timeout** is how long the attempt may run, counted from Started, before the worker is killed. The **time to the
//!   deadline** counts from when Run was sent: then nobody wants the answer any more. 0 means that there is no such limit.
//! - **Metadata** is what the client attached to the job, such as a trace context (`traceparent`): at most 16 pairs; a key is 1
//!   to 64 of `a-z`, `0-9`, `.`, `_` and `-` and occurs once, a value has at most 256 bytes and no control characters.
//! - `kind` says how a task failed: 0 it returned an error, 1 it panicked. With the capability `ends`, of the program that the worker
//!   ran for the job: 2 and an `i32` it exited with this code, 3 and an `i32` it was ended by this signal, 4 it ran too long,
//!   5 it used too much memory. With the capability `reasons`: 6 it returned an error on purpose, and wrote the message for whoever
//!   called it. The messages of all other kinds may say anything, such as a path, so clients that need no token (routes of the HTTP
//!   server with `auth = "none"`) are not told them. To a supervisor without the capability, send 0.
//! - `news` says what has become of the program that the worker stands in front of, and that lives as long as the worker: 0 it was
//!   stopped; 1 it goes on; 2 it has not taken one byte of the job that was started, so that job counts as not started; 3 it broke
//!   its rules. For 3, the job that runs is blamed, unless the `bool` says that another job was the reason. After 2 and 3 the worker
//!   ends.
//!
//! For example, Started for job 7, attempt 1, is these 24 bytes:
//!
//! ```text
//! 10 00 00 00   00 00 00 00   03 00 00 00   07 00 00 00 00 00 00 00   01 00 00 00
//! H = 16        P = 0         Started       job                       attempt
//! ```
//!
//! ## Order
//!
//! ```text
//! worker                                supervisor
//!   | --- Hello ------------------------->|   once, as the first message
//!   |<----------------------- Welcome --- |   once. A worker without capabilities may ignore it
//!   | --- Offer ------------------------->|   one for each task; do not wait for Welcome if you do not need it
//!   | --- Ready ------------------------->|   within the start-up limit (default 10 s)
//!   |<--------------------------- Run --- |   one or several; run them one after another, in this order
//!   | --- Started ----------------------->|   must be written to the socket BEFORE the task runs: if the process ends
//!   |                                     |   later, this job is blamed. If it cannot be written, do not run the task
//!   | --- Finished or Failed ------------>|   exactly one for each Started, with the same job and attempt
//!   |<------------------------ Cancel --- |   nobody wants the answer. If the job has not started, either send Skipped
//!   |                                     |   when its turn comes, or run it. If it runs, go on, or end it early and answer
//!   |                                     |   as usual: the answer is thrown away. If it has ended, ignore the Cancel
//!   |<------------------------- Drain --- |   finish all jobs that were given, then exit with code 0
//! ```
//!
//! That is all that most tasks need. A Skipped without a Cancel is a violation. Any task may send Progress between Started and
//! Finished, and those that offered it may do more:
//!
//! ```text
//!   | --- Progress ---------------------->|   how far the job is; if the offer promised it, at least as often as that, or
//!   |                                     |   the worker counts as hanging and is killed
//!   | --- Checkpoint -------------------->|   `checkpoints`: a state from which another attempt can go on
//!   | --- Started, Finished or Failed --->|   `stepped`: another job that was given may run between two steps. It ends
//!   |                                     |   before the next step of the first one
//!   |<------------------------- Yield --- |   another job needs the worker: send Yielded when the step ends. Ignore it if
//!   |                                     |   you cannot do that, or if the job has ended
//!   | --- Yielded ----------------------->|   in place of Finished: another attempt goes on from its payload
//!   |<------------------- Resume, Run --- |   that attempt: Resume, with the state, comes right before its Run
//! ```
//!
//! Whatever is not described on this page is a violation of the protocol: another order, an unknown number, a job that the worker
//! was not given, a length over its limit. The worker is killed with SIGKILL, and the job that ran ends as `worker_protocol` or is
//! retried. A job that was given and certainly not started goes back to the queue. One that may have begun is retried if that is
//! allowed, and otherwise ends as `indeterminate`. Nobody is blamed for either.
//!
//! Exit code 64 before Hello means that it is pointless to start this program again.
//!
//! | the supervisor waits for | at most (unless configured otherwise) | then |
//! |---|---|---|
//! | Ready, from the start of the process | 10 s | SIGKILL; the start has failed |
//! | Started, from Run or from the answer to the job before | 10 s | as below; no job is blamed |
//! | the rest of a frame | 2 s | SIGKILL |
//! | an answer, from Cancel | 100 ms | SIGTERM to the process group, and SIGKILL 500 ms later |
//! | an answer, from Started | the job's timeout | the job ends as `timeout`; Cancel, and then as above |
//! | Progress, where it is promised | the promised time and 1 s more | SIGKILL; `timeout` |
//! | the end of a process that has closed its socket | 500 ms | SIGKILL |
//!
//! ## Versions and capabilities
//!
//! Both ends must speak the same major version. The number and the first three fields of Hello are the same in every version,
//! so an end of another version is recognized. A worker of another major version is ended: the log and `offload status` say which
//! versions met and what to do. Its program is not started again before `offload reload`, and until then its jobs are rejected
//! with that sentence.
//!
//! From version 3 on, whatever is added is a **capability**: one bit of the capabilities in Hello and Welcome. Hello states what
//! the worker has, and Welcome what both ends have: bits that the supervisor does not know are ignored and not in Welcome. The
//! messages and fields of a capability may be used only if its bit is in Welcome, so a worker that wants to use one waits for
//! Welcome first. So old workers go on working under a new supervisor and new ones under an old supervisor of the same major
//! version, and a worker that sets no bit needs to know nothing about capabilities. A higher minor version only adds some; do not
//! compare it.
//!
//! | bit | capability | between supervisor and worker | between client and supervisor |
//! |---|---|---|---|
//! | 0 (value 1) | `parts`: outputs in parts | Part, Credit | `stream` in the options of Submit, Part |
//! | 1 (value 2) | `prefetch`: the next job may lie in a tray while the worker runs another one | a descriptor with Welcome | - |
//! | 2 (value 4) | `segments`: large payloads may lie in shared memory | Segment, InputIn, OutputIn, ... | - |
//! | 3 (value 8) | `files`: an input may be a file, whose descriptor is passed on | InputFile | InputFile, SendInput |
//! | 4 (value 16) | `lingering`: after a job that came alone, the worker may poll for the next one for up to 50 us before it sleeps | nothing | - |
//! | 5 (value 32) | `batches`: several jobs of one task may run together | OfferBatch, Batch | - |
//! | 6 (value 64) | `ends`: a failure says how the program ended that the worker ran | further values of `kind` in Failed | - |
//! | 11 (value 2048) | `programs`: what becomes of the program behind a worker | Program | - |
//! | 12 (value 4096) | `reasons`: a failure says that its message is meant for callers | a further value of `kind` in Failed | - |
//!
//! ## Outputs in parts
//!
//! With the capability `parts`, a task may answer as it goes:
//!
//! ```text
//!   | --- Part, Part, ... --------------->|   between Started and Finished, 1 to 65,536 bytes each. The payload of Finished
//!   |                                     |   comes behind all parts, and may be empty
//!   |<------------------------ Credit --- |   so many bytes more may be sent
//! ```
//!
//! An attempt may send 262,144 bytes of parts without credit. Each part uses up as many bytes as it has; each Credit for the job
//! adds some. A worker whose credit is too small for a part waits for Credit, and looks out for Cancel meanwhile: the run
//! timeout goes on. Sending more than the credit is a violation. So a worker that sends little needs not read Credit at all.
//! Credit for a job that has ended is ignored. A task whose offer has `stepped` sends no parts.
//!
//! In short: state bit 0 in Hello, read Welcome and check the bit there. At each Started, `credit = 262144`. Before each part, while
//! `credit` is less than its length, read messages: Credit for this job adds to it, and after Cancel send Failed and no more
//! parts. Then send Part, and subtract its length. Part of job 7, attempt 1, with the two bytes `1` and line feed is
//!
//! ```text
//! 10 00 00 00   02 00 00 00   0a 00 00 00   07 00 00 00 00 00 00 00   01 00 00 00   31 0a
//! H = 16        P = 2         Part          job                       attempt       payload
//! ```
//!
//! A client that asked for a stream gets the parts as they come, and if many wait for it, some of them joined to one; for all
//! others the supervisor puts them together to one output, which has to be within the longest payload. A client that reads slowly makes the task wait, and nothing else. As soon as such a
//! client has been sent a part, the job is never run again, also if its task is idempotent. If the job fails, the client keeps the
//! parts that it has, and its own message Finished says how the job ended and how many bytes they are together.
//!
//! ## Prefetch
//!
//! With the capability `prefetch`, a worker has a **tray**: a pair of sockets for packets (`SOCK_SEQPACKET`) in which at most one
//! job lies. The worker's end of it comes with the first byte of Welcome (`SCM_RIGHTS`), if Welcome has the bit. A worker with
//! `prefetch`, `segments` or `files` always reads its socket with `recvmsg` and `MSG_CMSG_CLOEXEC`; descriptors come in the order of the
//! messages that they belong to.
//!
//! ```text
//!   Finished or Failed is ready, and no Run
//!   that was read already waits  ---------------> recv on the tray, without waiting (MSG_DONTWAIT)
//!                                                   | a packet of at most 65,536 bytes: a whole frame, a Run like any other.
//!                                                   |   Send the answer and Started in one write, which saves a wake-up;
//!                                                   |   then run it
//!                                                   '-> nothing: send the answer, wait for the supervisor as usual
//! ```
//!
//! The supervisor takes the packet back whenever it likes, from the same end, and the kernel gives it to exactly one of the two.
//! So do not wait for the tray, do not look into it while a job runs, and do not write to it. There is at most one packet, and
//! none while the supervisor sends jobs the other way. A worker that has taken a packet has been given its job and starts it at
//! once; a Cancel may come later, as for any job. An answer of more than 32 KiB is sent before the worker looks.
//!
//! ## Segments
//!
//! With the capability `segments`, payloads of 64 KiB and more may lie in shared memory, a *segment*, instead of behind the header.
//! A worker without it is sent none of these messages and may skip this section.
//!
//! ```text
//! worker                                supervisor
//!   |<----------------------- Segment --- |   at any time. A descriptor comes with its first byte (SCM_RIGHTS, so read the
//!   |                                     |   socket with recvmsg): map the whole length (MAP_SHARED; inputs PROT_READ,
//!   |                                     |   outputs PROT_READ | PROT_WRITE), and close the descriptor
//!   | --- SegmentReady ------------------>|   it is mapped. If it cannot be: SegmentLeft
//!   |<------------------ InputIn, Run --- |   the input is in the segment, and the payload of Run is empty
//!   | --- Started ----------------------->|   as ever
//!   | --- OutputIn, Finished ------------>|   the output is in a segment, and the payload of Finished is empty
//!   |<-------------------- OutputRead --- |   the output was read: the segment for outputs may be written again. It comes before
//!   |                                     |   the next Run, unless that Run is in the tray already. It does not come for an
//!   |                                     |   output that is in the segment for inputs
//!   |<------------------- SegmentGone --- |   unmap it; ignore it if it was left already
//!   | --- SegmentLeft ------------------->|   it will not be used any more
//! ```
//!
//! - There are at most two segments: one for inputs, which the worker must not write, and one for outputs.
//! - Any payload may also be sent as ever, in both directions. So nobody waits for a segment: if it is in use or too short, the
//!   payload goes behind the header. A worker never asks for a segment for its outputs: it gets one when it has sent two large ones
//!   within four seconds.
//! - An output may be anywhere in the segment for outputs; byte 64 is a good place to begin. It may also be a part of the
//!   segment with the input of its own job, such as the input itself: then nothing has to be copied.
//! - Once the job is answered, the supervisor may overwrite its input. If the worker still needs the input, it says SegmentLeft
//!   before the answer (SegmentLeft, OutputIn, Finished), and keeps the segment to itself. A worker that does so four times gets
//!   no more segments.
//! - A place outside of its segment, a segment that was not given or has been left, an OutputIn without its Finished, and an
//!   OutputIn before the last one was read are violations.
//! - Say SegmentReady or SegmentLeft as soon as no job runs. A worker without a job that says neither for two seconds is ended.
//! - When a segment is gone, one OutputIn in it may still arrive, from a worker that had not heard of it. A second one is a
//!   violation.
//!
//! ## Files
//!
//! With it, an input may be a regular file. Its descriptor travels instead of its bytes, from the client to the worker, and only
//! the worker reads it. A worker without it is sent none of these messages and may skip this section.
//!
//! ```text
//! client                          supervisor                          worker
//!   | --- InputFile, Submit -------->|                                   |   a descriptor comes with the first byte of
//!   |                                |                                   |   InputFile. Submit is the next message, with the
//!   |                                |                                   |   same ticket and no payload
//!   |<------------------ SendInput --|                                   |   either: the file cannot be used
//!   | --- Submit, with the bytes --->|                                   |     and the job comes again as any other
//!   |<------------------- Accepted --|                                   |   or: it is in the queue
//!   |                                | --- InputFile, Run -------------->|     a descriptor comes with the first byte of
//!   |                                |<----------------------- Started --|     InputFile. Read the file after Started is
//!   |                                |                                   |     written: its file system may hang
//! ```
//!
//! - The worker reads the whole file from its start, without moving the offset of the descriptor (`pread`), which all others that
//!   have it share. Do not map it: whoever can write the file may truncate it at any time. If the file has not the length that
//!   InputFile says, or cannot be read, the job fails with an error (Failed, kind 0).
//! - The descriptor stays with the job until that has ended, and another attempt gets it again. The file is not copied: what it
//!   has when an attempt reads it is the input of that attempt. If its name is given to another file meanwhile, the job keeps the
//!   one that was opened.
//! - A client gets **SendInput** if not all workers of the task take files, if too many are open already (in all, or for this
//!   client), if the job has an idempotency key, or if it is detached and no worker has offered the task yet. So a client keeps its
//!   file open until it has Accepted or Rejected. It sends InputFile only if the file is regular and it can read it; files of up to
//!   65,536 bytes are not worth it.
//! - Any other message between InputFile and its Submit, a payload with that Submit, a descriptor with another message, several
//!   with one, and descriptors of anything but regular files that can be read are violations: the supervisor says so in Goodbye
//!   and closes the connection. A descriptor that is sent before Welcome has come may get lost: then the answer is SendInput.
//! - All workers of the task have to take files. An accepted job that waits when one comes that does not, as after a reload, ends
//!   as `unsupported`: submit it again with its bytes.
//! - The input is not kept with a dead letter, so such a job cannot be retried from there.
//!
//! ## Batches
//!
//! With it, a task may get several jobs at once, because that is cheaper than one after another. A worker says so right behind the
//! Offer of the task, once it has read in Welcome that the supervisor has the capability: OfferBatch, with the most jobs (2 to 32) and
//! for how long the first one is to wait for others (at most 1,000,000 us). The task has to be idempotent, must not work in
//! steps, and promises no progress.
//!
//! ```text
//! worker                                supervisor
//!   | --- Offer, OfferBatch ------------->|
//!   |<------- Batch, Run, Run, ..., Run --|   to a worker without jobs. Batch says how many Run follow, of this task
//!   | --- Started ----------------------->|   of the first of these jobs: it stands for all of them
//!   | --- Finished, Failed, ... --------->|   one for each of them, in any order
//! ```
//!
//! - The jobs of a batch have the same timeout, which counts for all of them together. Their inputs have at most 32,768 bytes, and
//!   are never in a segment or a file. A Run without Batch is a batch of one job.
//! - Each answer says which part of the run time and of the CPU time falls to its job. What is answered stays answered, whatever
//!   becomes of the others.
//! - A Cancel of one of the jobs may come at any time: its answer is thrown away. Skipped is not an answer to it. If it is not answered
//!   in time, with the others or before them, the process is ended, and the others run again in halves. The time is the longest of
//!   100 ms, what the batch has run by then, and what is left of twice the time that its jobs usually take.
//! - A worker whose task fails as a whole, as by a panic, finds out whose fault it is, by running halves of the batch until one job is
//!   left, and answers the others as usual. The SDK does so.
//! - If the process ends, nobody is blamed, because nobody knows whose fault it is. The jobs without an answer run again: each half of
//!   them on its own, down to one job on a worker, which is blamed. So it is for a batch that exceeds its timeout.
//!
//! ## Clients
//!
//! Clients speak the same frames over the supervisor's local socket, with the messages [`messages::ToSupervisor`] and
//! [`messages::ToClient`]. Its path is the first of these that is there:
//!
//! 1. what the flag `--socket`, the variable `OFFLOAD_SOCKET` or the key `socket` of the configuration file names, in this order;
//! 2. `$XDG_RUNTIME_DIR/offload/offload.sock`, if the variable is set to an absolute path;
//! 3. `/run/user/UID/offload/offload.sock`, if there is the folder `/run/user/UID`, with the number of the user for `UID`;
//! 4. `$HOME/.offload/offload.sock`.
//!
//! ```text
//! client                                supervisor
//!   | --- Hello ------------------------->|   within 5 s, with the magic OFFLOADC
//!   |<----------------------- Welcome --- |   or Goodbye, with a sentence and a code that say why not
//!   | --- Submit ------------------------>|   with a ticket, a number that every answer to this request repeats
//!   |<--------- Accepted or Rejected --- |
//!   |<---------------- Part, Part ... --- |   if it asked for a stream
//!   |<---------------------- Finished --- |   exactly one for each Accepted
//! ```
//!
//! A client that asks for nothing and waits for nothing for 60 s is disconnected. What is said above of versions, capabilities, media types and metadata holds for clients too. The number of a
//! message is its position in the enum, counted from 0, and its fields have the order and the types that are written there.
//! A value of another enum is its position as `u32`. An `Option` is one byte: 0 for none, or 1 followed by the value. `u128` has
//! 16 bytes, `i8` one. A `MediaType` is a `text`, `Labels` a `list` of at most 8 `text` of 1 to 64 bytes without spaces, and
//! `Metadata` a `list` of pairs.

mod capabilities;
pub mod codec;
pub mod frame;
pub mod greeting;
pub mod limits;
pub mod messages;
pub mod nouns;
pub mod outbox;
mod requests;
mod tickets;
#[cfg(test)]
mod vectors;
