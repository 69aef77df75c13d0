//! A front of another kind (a protocol of text lines) beside the one for the local socket. It uses only the service, which
//! shows that a new front needs no change in other files.
//!
//! ```text
//!   submit TASK LENGTH     NUMBER send, and the client sends so many bytes; or NUMBER failed CODE for want of room
//!   patient TASK LENGTH    the same, but NUMBER send comes when there is room
//!      after the bytes     NUMBER accepted JOB, and at its end NUMBER ok OUTPUT or NUMBER failed CODE
//!   cancel JOB             NUMBER document JSON
//!   jobs ROWS AFTER        NUMBER rows JOB=STATE..., as many of them as ROWS, and perhaps next PLACE
//!   drain                  NUMBER document JSON, when all is over
//! ```
//!
//! `NUMBER` is the number of the line that is answered.

use offload_protocol::messages::View;
use offload_protocol::nouns::OutcomeCode;
use offload_supervisor::event_loop::{EventLoop, HandleId, Interest, LoopHandle};
use offload_supervisor::service::{OnReply, Reply, Service, ServiceConfig, Session, Submission};
use offload_supervisor::views::{Page, Row};
use offload_supervisor::{Finished, Job, Level, PoolConfig, Program, ServerEnd};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use tests::harness::{PATIENCE, offload};

/// The front: its clients, by the number of their sessions.
struct LineFront {
    me: Weak<RefCell<LineFront>>,
    service: Service,
    handle: LoopHandle,
    clients: BTreeMap<u64, Client>,
}

struct Client {
    session: Session,
    socket: UnixStream,
    watcher: HandleId,
    input: Vec<u8>,
    lines: u64,
    reading: Reading,
}

enum Reading {
    Line,
    WaitsForRoom(Body),
    Body(Body),
}

#[derive(Clone)]
struct Body {
    number: u64,
    task: String,
    length: usize,
}

impl LineFront {
    fn start(service: Service, handle: LoopHandle) -> Rc<RefCell<LineFront>> {
        let front = Rc::new_cyclic(|me: &Weak<RefCell<LineFront>>| {
            let (me, clients) = (me.clone(), BTreeMap::new());
            RefCell::new(LineFront { me, service, handle, clients })
        });
        let me = Rc::downgrade(&front);
        // Every answer is written when it is given, so all connections can be closed at the end.
        front.borrow().service.on_end(move |_last_answers| {
            LineFront::with(&me, |front| {
                let all: Vec<u64> = front.clients.keys().copied().collect();
                all.into_iter().for_each(|id| front.disconnect(id));
            });
        });
        front
    }

    fn with(me: &Weak<RefCell<LineFront>>, deed: impl FnOnce(&mut LineFront)) {
        if let Some(front) = me.upgrade() {
            deed(&mut front.borrow_mut());
        }
    }

    fn connect(&mut self, socket: UnixStream, name: &str) {
        let me = self.me.clone();
        let on_reply: OnReply = Rc::new(move |ticket, reply| {
            LineFront::with(&me, |front| front.answer(ticket.session, ticket.number, reply));
        });
        let session = self.service.open(Some(std::process::id()), on_reply);
        session.introduce(name);
        let (id, me) = (session.id(), self.me.clone());
        let on_readable = move |_: &mut _, _| LineFront::with(&me, |front| front.read(id));
        let watcher = self.handle.watch(socket.try_clone().unwrap(), Interest::READ, on_readable).unwrap();
        let (input, reading) = (Vec::new(), Reading::Line);
        self.clients.insert(id, Client { session, socket, watcher, input, lines: 0, reading });
    }

    /// All that is held for the client goes with its session. When nobody is left, there is nothing to wait for.
    fn disconnect(&mut self, id: u64) {
        if let Some(client) = self.clients.remove(&id) {
            self.handle.close(client.watcher, |_| ()).unwrap();
        }
        if self.clients.is_empty() {
            self.service.stop();
        }
    }

    fn read(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut chunk = vec![0; 1 << 16];
        match client.socket.read(&mut chunk) {
            Ok(0) | Err(_) => return self.disconnect(id),
            Ok(count) => client.input.extend_from_slice(&chunk[..count]),
        }
        match client.reading.body() {
            Some(body) if client.input.len() < body.length => {
                client.session.account().set_arriving(client.input.len() as u64);
            }
            Some(body) => self.submit(id, body),
            None => {
                while let Some(line) = self.next_line(id) {
                    self.request(id, &line);
                }
            }
        }
    }

    fn next_line(&mut self, id: u64) -> Option<String> {
        let client = self.clients.get_mut(&id)?;
        let end = client.input.iter().position(|&byte| byte == b'\n')?;
        client.lines += 1;
        String::from_utf8(client.input.drain(..=end).collect()).ok()
    }

    fn request(&mut self, id: u64, line: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (number, words) = (client.lines, line.split_whitespace().collect::<Vec<_>>());
        let reply = match *words {
            [verb @ ("submit" | "patient"), task, length] => {
                let body = Body { number, task: task.to_owned(), length: length.parse().unwrap() };
                client.reading = Reading::WaitsForRoom(body);
                return self.make_room(id, verb == "patient");
            }
            ["cancel", job] => Some(self.service.cancel(job)),
            ["jobs", rows, ref after @ ..] => {
                let page = self.page_of_jobs(number, rows.parse().unwrap(), after.first().unwrap_or(&""));
                return self.write(id, &page);
            }
            ["drain"] => client.session.drain(number, None),
            _ => panic!("{line}"),
        };
        reply.into_iter().for_each(|reply| self.answer(id, number, reply));
    }

    /// Rows are values, of which this front writes two fields. It ends a page by a rule of its own.
    fn page_of_jobs(&self, number: u64, mut room: usize, after: &str) -> String {
        let write = |row| {
            let Row::Job(job) = row else { panic!("{row:?}") };
            room = room.checked_sub(1)?;
            Some(format!("{}={}", job.job, job.state))
        };
        match self.service.page(View::Jobs, "", after, usize::MAX, write) {
            Ok(Page { rows, next: None }) => format!("{number} rows {}", rows.join(" ")),
            Ok(Page { rows, next: Some(next) }) => format!("{number} rows {} next {next}", rows.join(" ")),
            Err(error) => format!("{number} failed {}", error.code),
        }
    }

    fn make_room(&mut self, id: u64, may_wait: bool) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Reading::WaitsForRoom(body) = &client.reading else { return };
        let Body { number, length, .. } = *body;
        if client.session.account().has_room(length as u64) {
            client.reading = Reading::Body(body.clone());
            return self.write(id, &format!("{number} send"));
        }
        if may_wait {
            let me = self.me.clone();
            return self.service.when_room(move |_| LineFront::with(&me, |front| front.make_room(id, true)));
        }
        client.reading = Reading::Line;
        let refusal = client.session.refuse_input(length);
        self.answer(id, number, refusal);
    }

    fn submit(&mut self, id: u64, Body { number, task, .. }: Body) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let job = Job::new(task).input(std::mem::take(&mut client.input));
        client.reading = Reading::Line;
        client.session.account().set_arriving(0);
        let reply = client.session.submit(number, Submission { job, detach: false, is_let_in: true });
        self.answer(id, number, reply);
    }

    fn answer(&mut self, id: u64, number: u64, reply: Reply) {
        let line = match reply {
            Reply::Accepted { job } => format!("{number} accepted {job}"),
            Reply::Report(report) => match report.finished.report.error {
                None => format!("{number} ok {}", String::from_utf8_lossy(&report.finished.output)),
                Some(error) => format!("{number} failed {}", error.code),
            },
            Reply::Refusal(error) => format!("{number} failed {}", error.code),
            // This front asks for no streams.
            Reply::News | Reply::SendInput => return,
            Reply::Document(document) => {
                format!("{number} document {}", String::from_utf8_lossy(&document.to_json()))
            }
        };
        self.write(id, &line);
    }

    /// The answers of this test fit into the socket's buffer.
    fn write(&mut self, id: u64, line: &str) {
        if let Some(client) = self.clients.get_mut(&id) {
            let _ = writeln!(client.socket, "{line}");
        }
    }
}

impl Reading {
    fn body(&self) -> Option<Body> {
        if let Reading::Body(body) = self { Some(body.clone()) } else { None }
    }
}

/// The other end of a connection.
struct Caller {
    socket: BufReader<UnixStream>,
    lines: u64,
}

impl Caller {
    fn ask(&mut self, line: &str) -> u64 {
        writeln!(self.socket.get_mut(), "{line}").unwrap();
        self.lines += 1;
        self.lines
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Submits a job. Returns its number and its id.
    fn submit(&mut self, verb: &str, task: &str, input: &[u8]) -> (u64, String) {
        let number = self.ask(&format!("{verb} {task} {}", input.len()));
        assert_eq!(self.line(), format!("{number} send"));
        (number, self.send(number, input))
    }

    fn send(&mut self, number: u64, input: &[u8]) -> String {
        self.socket.get_mut().write_all(input).unwrap();
        let accepted = self.line();
        accepted.strip_prefix(&format!("{number} accepted ")).expect(&accepted).to_owned()
    }

    fn cancel(&mut self, job: &str) {
        let number = self.ask(&format!("cancel {job}"));
        let answer = self.line();
        assert!(answer.starts_with(&format!("{number} document ")) && answer.contains("true"), "{answer}");
    }
}

/// One worker, and room for a megabyte. Two clients of the line front do what the test says, on a thread; then the loop has
/// ended, and how is returned.
fn with_two_clients(test: impl FnOnce(Caller, Caller) + Send + 'static) -> ServerEnd {
    let mut event_loop = EventLoop::new().unwrap();
    let words = vec![offload().to_str().unwrap().to_owned(), "worker".to_owned()];
    let mut pool = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    (pool.core.workers, pool.core.spares) = (1, 0);
    (pool.core.max_payload, pool.core.max_bytes) = (1 << 20, 1 << 20);
    let config = ServiceConfig { io_threads: 1, ..ServiceConfig::with(pool) };
    let service = Service::start(config, &mut event_loop).unwrap();
    let front = LineFront::start(service.clone(), event_loop.handle().clone());
    let [one, other] = ["one", "other"].map(|name| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        front.borrow_mut().connect(ours, name);
        Caller { socket: BufReader::new(theirs), lines: 0 }
    });
    let clients = std::thread::spawn(move || test(one, other));
    event_loop.run().unwrap();
    clients.join().unwrap();
    service.end()
}

#[test]
fn a_front_whose_requests_are_single_jobs_needs_no_session() {
    let mut event_loop = EventLoop::new().unwrap();
    let words = vec![offload().to_str().unwrap().to_owned(), "worker".to_owned()];
    let mut pool = PoolConfig { log: Level::Quiet, ..PoolConfig::with(Program::command(words)) };
    (pool.core.workers, pool.core.spares) = (1, 0);
    let service =
        Service::start(ServiceConfig { io_threads: 1, ..ServiceConfig::with(pool) }, &mut event_loop)
            .unwrap();
    let asker = service.asker(None, "one");
    let ended = Rc::new(RefCell::new(Vec::new()));
    let run = |job: Job| {
        let (ended, service_at_end) = (Rc::clone(&ended), service.clone());
        service.run(&asker, job, false, move |report| {
            let Finished { report, output } = *report.finished;
            ended.borrow_mut().push((report.outcome, output));
            if ended.borrow().len() == 2 {
                service_at_end.stop();
            }
        })
    };
    let refused = run(Job::new("echo").idempotency_key("once")).err();
    assert!(refused.is_some_and(|error| error.code == OutcomeCode::Unsupported));
    let account = service.account(&asker);
    assert_eq!((asker.name(), account.name(), account.has_room(5)), ("one", "one", true));
    let mut waiting = run(Job::new("echo").input("hello").stream()).ok().unwrap();
    let given_up = run(Job::new("sleep").input("3600000")).ok().unwrap();
    drop(given_up);
    event_loop.run().unwrap();
    waiting.ended();
    let ended = ended.take();
    assert_eq!(ended[0].0, OutcomeCode::Cancelled, "it was given up before it began");
    assert_eq!((ended[1].0, &*ended[1].1), (OutcomeCode::Ok, &b"hello"[..]));
}

#[test]
fn another_front_runs_jobs_cancels_them_and_sees_the_drain() {
    let end = with_two_clients(|mut client, mut other| {
        let (number, _) = client.submit("submit", "echo", b"hello");
        assert_eq!(client.line(), format!("{number} ok hello"));
        let (number, job) = client.submit("submit", "sleep", b"3600000");
        other.cancel(&job);
        assert_eq!(client.line(), format!("{number} failed cancelled"));
        let number = client.ask("drain");
        let last = client.line();
        assert!(
            last.starts_with(&format!("{number} document ")) && last.contains("\"cancelled\":0"),
            "{last}"
        );
        assert_eq!(client.line() + &other.line(), "", "the connections are closed");
    });
    assert_eq!(end, ServerEnd::Done);
}

#[test]
fn another_front_writes_lists_in_its_own_way_and_ends_each_page_where_it_likes() {
    let end = with_two_clients(|mut client, mut other| {
        let (_, first) = client.submit("submit", "sleep", b"3600000");
        let (_, second) = client.submit("submit", "sleep", b"3600000");
        let (_, third) = client.submit("submit", "sleep", b"3600000");
        for job in [&third, &first] {
            other.cancel(job);
            assert!(client.line().ends_with(" failed cancelled"));
        }
        let number = other.ask("jobs 2");
        let page = other.line();
        let expected = format!("{number} rows {second}=");
        assert!(page.starts_with(&expected), "what lives is listed before what has ended: {page}");
        let (_, next) = page.split_once(" next ").expect("there is one more");
        let number = other.ask(&format!("jobs 2 {next}"));
        assert_eq!(other.line(), format!("{number} rows {first}=cancelled"));
        let number = other.ask("jobs 2 nowhere");
        assert_eq!(other.line(), format!("{number} failed bad_request"));
        other.cancel(&second);
        other.ask("drain");
        other.line();
    });
    assert_eq!(end, ServerEnd::Done);
}

#[test]
fn another_front_refuses_what_there_is_no_room_for_and_what_a_client_held_is_released_when_it_is_gone() {
    let end = with_two_clients(|mut client, mut other| {
        let (_, sleeps) = client.submit("submit", "sleep", b"3600000");
        let input = vec![b'x'; 400_000];
        client.submit("submit", "echo", &input);
        let number = client.ask(&format!("submit echo {}", input.len()));
        assert_eq!(client.line(), format!("{number} failed overloaded"));
        // There is none for the other one either, who waits for it. When this is answered, that has been read.
        let number = other.ask(&format!("patient echo {}", input.len()));
        client.ask("cancel nobody");
        client.line();
        drop(client);
        assert_eq!(other.line(), format!("{number} send"));
        other.send(number, &input);
        // It has gone with its client if it had not started by then.
        other.ask(&format!("cancel {sleeps}"));
        let answers = [other.line(), other.line()];
        let length = format!("{number} ok ").len() + input.len();
        assert!(answers.iter().any(|answer| answer.len() == length), "no answer has the input");
        other.ask("drain");
        other.line();
    });
    assert_eq!(end, ServerEnd::Done);
}
