//! A web service with a task of its own, in one program: the loop answers, and its workers, which are this program again, compute.
//!
//! `cargo run --release -p examples --bin own_service`, then `curl -d '"to be or not to be"' http://127.0.0.1:8080/words`.

use offload_http::{Address, Server};
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, PoolConfig, Program};
use offload_worker::{Task, Worker};
use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    // The service starts this same program again, as `PROGRAM worker`. So this branch comes first.
    if argument.as_deref() == Some("worker") {
        return Ok(Worker::new().with(words()).serve());
    }
    let mut event_loop = EventLoop::new()?;
    let pool = PoolConfig::with(Program::own("words", &["worker"]));
    let service = Service::start(ServiceConfig::with(pool), &mut event_loop)?;
    let server = Server::new(&service, &event_loop);
    server.post("/words", |request, cx| async move { cx.offload("words", request.body()).await });
    let port = argument.and_then(|port| port.parse().ok()).unwrap_or(8080);
    println!("listening on {}", server.listen(&Address::Tcp(([127, 0, 0, 1], port).into()))?);
    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}

/// JSON in and out. A task that cannot fail has `Infallible` as its error.
fn words() -> Task {
    Task::json("words", |text: String, _| Ok::<_, Infallible>(text.split_whitespace().count())).idempotent()
}
