//! The shapes in tokio, on a runtime of one thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_blocking, spawn_local, yield_now};

use crate::meter::Meter;

const POOL_THREADS: usize = 4;

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(POOL_THREADS).build().expect("the system has descriptors")
}

pub(crate) fn yields(n: u64) -> Meter {
    runtime().block_on(async {
        let meter = Meter::start();
        for _ in 0..n {
            yield_now().await;
        }
        meter
    })
}

pub(crate) fn tasks(n: u64) -> Meter {
    LocalSet::new().block_on(&runtime(), async {
        let (meter, count) = (Meter::start(), Rc::new(Cell::new(0)));
        for _ in 0..n {
            let count = Rc::clone(&count);
            spawn_local(async move { count.set(count.get() + 1) });
        }
        while count.get() < n {
            yield_now().await;
        }
        meter
    })
}

pub(crate) fn timers(n: u64, delay: fn(u64) -> Duration) -> Meter {
    LocalSet::new().block_on(&runtime(), async {
        let (meter, count, all) = (Meter::start(), Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        for number in 0..n {
            let (count, all) = (Rc::clone(&count), Rc::clone(&all));
            spawn_local(async move {
                tokio::time::sleep(delay(number)).await;
                count.set(count.get() + 1);
                if count.get() == n {
                    all.notify_one();
                }
            });
        }
        all.notified().await;
        meter
    })
}

pub(crate) fn stats(n: u64, in_flight: usize) -> Meter {
    runtime().block_on(async {
        let (meter, mut left, mut running) = (Meter::start(), n, VecDeque::new());
        while left > 0 || !running.is_empty() {
            while left > 0 && running.len() < in_flight {
                running.push_back(spawn_blocking(|| std::fs::metadata(".").is_ok()));
                left -= 1;
            }
            if let Some(first) = running.pop_front() {
                assert!(first.await.expect("it does not panic"));
            }
        }
        meter
    })
}

pub(crate) fn pingpong_of_threads(n: u64) -> Meter {
    let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (heard, answer) = (Arc::clone(&there), Arc::clone(&back));
    let other = std::thread::spawn(move || {
        runtime().block_on(async {
            for _ in 0..n {
                heard.notified().await;
                answer.notify_one();
            }
        });
    });
    let meter = runtime().block_on(async {
        let meter = Meter::start();
        for _ in 0..n {
            there.notify_one();
            back.notified().await;
        }
        meter
    });
    other.join().expect("it does not panic");
    meter
}

async fn echo(listener: TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}

async fn ping(n: u64) -> std::io::Result<Meter> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    tokio::spawn(echo(listener));
    stream.set_nodelay(true)?;
    let (meter, mut buffer) = (Meter::start(), [0; 64]);
    for _ in 0..n {
        stream.write_all(b"x").await?;
        assert_eq!(stream.read(&mut buffer).await?, 1);
    }
    Ok(meter)
}

pub(crate) fn tcp(n: u64) -> Meter {
    runtime().block_on(ping(n)).expect("loopback works")
}

pub(crate) fn children(n: u64) -> Meter {
    runtime().block_on(async {
        let meter = Meter::start();
        for _ in 0..n {
            assert!(Command::new("/bin/true").status().await.expect("it is there").success());
        }
        meter
    })
}
