//! A compute-heavy web service: the loop answers, and worker processes compute.
//!
//! `cargo run --release -p examples --bin http_service`, then `curl -d 1000000 http://127.0.0.1:8080/primes`.

use offload_http::{Address, Server};
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, PoolConfig, Program};
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The supervisor starts this same program again, as `PROGRAM worker`: then it is one of the workers.
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }

    let mut event_loop = EventLoop::new()?;
    let service =
        Service::start(ServiceConfig::with(PoolConfig::with(Program::builtin(false))), &mut event_loop)?;
    let server = Server::new(&service, &event_loop);
    server.get("/hello", |_, _| async { "hello\n" });
    server.post("/primes", |request, cx| async move { cx.offload("primes", request.body()).await });
    server.post("/echo", |request, cx| async move { cx.offload("echo", request.body()).await });
    server.mount_api(offload_http::api::Access::default());
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8080);
    println!("listening on {}", server.listen(&Address::Tcp(([127, 0, 0, 1], port).into()))?);
    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}
