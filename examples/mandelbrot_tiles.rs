//! A map of the Mandelbrot set: each tile is a job for a worker process, and a counter shows how late the loop is meanwhile.
//!
//! `cargo run --release -p examples --bin mandelbrot_tiles`, then open http://127.0.0.1:8080 in a browser: drag to pan, use the
//! wheel, or + and -, to zoom.

use offload_http::{Address, Failure, IntoResponse, Json, Output, RequestContext, Response, Server};
use offload_supervisor::service::{Service, ServiceConfig};
use offload_supervisor::{EventLoop, PoolConfig, Program};
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;

const PAGE: &str = include_str!("mandelbrot_tiles.html");
const TILE: u32 = 256;
/// At level 0, one tile shows so much of the plane.
const PLANE: f64 = 4.0;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The supervisor starts this same program again, as `PROGRAM worker`: then it is one of the workers.
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(offload_worker::builtin::serve(false));
    }
    let mut event_loop = EventLoop::new()?;
    let pool = PoolConfig::with(Program::builtin(false));
    let service = Service::start(ServiceConfig::with(pool), &mut event_loop)?;
    let server = Server::new(&service, &event_loop);
    server.get("/", |_, _| async { page() });
    server.get("/tiles/{level}/{x}/{y}", |request, cx| async move {
        let number = |name| request.parameter(name).and_then(|text| text.parse::<u32>().ok());
        match (number("level"), number("x"), number("y")) {
            (Some(level @ 0..=31), Some(x), Some(y)) => tile(&cx, level, x, y).await.into_response(),
            _ => offload_http::StatusCode::NOT_FOUND.into_response(),
        }
    });
    server.get("/lag", |_, cx| async move {
        let metrics = cx.event_loop().metrics();
        Json(json!({"p50_us": metrics.lag.p50_us, "p99_us": metrics.lag.p99_us, "iterations": metrics.iterations}))
    });
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8080);
    println!("listening on {}", server.listen(&Address::Tcp(([127, 0, 0, 1], port).into()))?);
    event_loop.run()?;
    Ok(ExitCode::SUCCESS)
}

fn page() -> Response {
    let mut page = PAGE.into_response();
    let html = offload_http::http::HeaderValue::from_static("text/html; charset=utf-8");
    page.headers_mut().insert("content-type", html);
    page
}

/// Column x and row y of the tiles of this level, counted from the upper left. A browser that goes on cancels its jobs: it closes
/// their connections.
async fn tile(cx: &RequestContext, level: u32, x: u32, y: u32) -> Result<Output, Failure> {
    let width = PLANE / f64::from(1_u32 << level);
    let corner = (-PLANE / 2.0 - 0.5, PLANE / 2.0);
    let middle = |place: u32| (f64::from(place) + 0.5) * width;
    let view = json!({
        "x": (corner.0 + middle(x)).clamp(-4.0, 4.0), "y": (corner.1 - middle(y)).clamp(-4.0, 4.0), "scale": width,
        "width": TILE, "height": TILE, "iterations": 200 + 100 * level,
    });
    cx.offload("mandelbrot", view.to_string()).await
}
