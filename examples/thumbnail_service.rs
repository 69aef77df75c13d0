//! Thumbnails over HTTP: worker processes decode and shrink pictures, and the loop answers everybody else meanwhile.
//!
//! `cargo run --release -p examples --bin thumbnail_service`, then
//! `curl --data-binary @photo.jpg http://127.0.0.1:8080/thumbnails > small.png`.

use offload_http::{Address, Server};
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, PoolConfig, Program};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The supervisor starts this same program again, as `PROGRAM worker`: then it is one of the workers.
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }
    let mut event_loop = EventLoop::new()?;
    let mut pool = PoolConfig::with(Program::builtin(false));
    pool.core.run_timeout = Duration::from_secs(10);
    let service = Service::start(ServiceConfig::with(pool), &mut event_loop)?;
    let server = Server::new(&service, &event_loop);
    server.get("/health", |_, _| async { "fine\n" });
    // A body that is no picture is answered with 422 and the reason; one that takes too long, with 504.
    server.post("/thumbnails", |request, cx| async move { cx.offload("thumbnail", request.body()).await });
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8080);
    println!("listening on {}", server.listen(&Address::Tcp(([127, 0, 0, 1], port).into()))?);
    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}
