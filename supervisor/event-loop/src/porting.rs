//! For people who port a program from libuv or Node: what its functions are called here. There is no code in this module.
//!
//! Three things differ everywhere:
//!
//! - **Nothing is initialised and then started.** One call registers a callback and begins; what it returns is the name of
//!   the handle ([`TimerId`], [`HandleId`]) or the source itself ([`Stream`]).
//! - **There is no `data` field.** A callback owns what it captures, and gets the running loop as `&mut` [`Context`].
//! - **Handles need not be closed before the loop is dropped.** Dropping the loop drops them all, and tells nobody.
//!
//! | libuv: the loop | here |
//! |---|---|
//! | `uv_loop_init`, `uv_loop_configure` | [`EventLoop::new`], [`EventLoop::with`] a [`LoopConfig`] |
//! | `uv_loop_close` | drop the [`EventLoop`] |
//! | `uv_run` | [`Context::run`], [`Context::run_mode`] with a [`RunMode`] |
//! | `uv_stop` | [`LoopHandle::stop`], [`Remote::stop`] from another thread |
//! | `uv_loop_alive` | [`LoopHandle::is_alive`]; [`LoopHandle::why_alive`] names what keeps it alive |
//! | `uv_backend_fd`, `uv_backend_timeout` | [`EventLoop::backend_fd`], [`EventLoop::backend_timeout`] |
//! | `uv_now`, `uv_update_time`, `uv_hrtime` | [`LoopHandle::now`], [`LoopHandle::update_time`], `std::time::Instant::now` |
//! | `uv_walk`, `uv_print_all_handles` | [`LoopHandle::handles`] |
//! | `uv_metrics_info`, `uv_metrics_idle_time` | [`LoopHandle::metrics`] |
//! | `uv_loop_fork` | nothing: make a loop after the fork |
//!
//! | libuv: every handle | here |
//! |---|---|
//! | `uv_close` | [`LoopHandle::close`] by its name, or the `close` of a source, for example [`Stream::close`] |
//! | `uv_is_closing` | [`Stream::is_closed`]; a name that was closed gives [`LoopError::AlreadyClosed`] |
//! | `uv_is_active` | [`LoopHandle::is_active`], [`Stream::is_active`] |
//! | `uv_ref`, `uv_unref`, `uv_has_ref` | [`LoopHandle::ref_`], [`LoopHandle::unref`], [`LoopHandle::is_referenced`] |
//! | `uv_handle_get_type`, comparing handles | [`HandleInfo::what`], [`HandleInfo::id`], [`Stream::handle_id`] |
//! | `uv_fileno`, buffer sizes | [`Stream::descriptor`], and a call of your own on it |
//!
//! | libuv: timers, hooks, watchers, signals, threads | here |
//! |---|---|
//! | `uv_timer_start` | [`LoopHandle::set_timeout`], [`LoopHandle::set_interval`] |
//! | `uv_timer_stop`, `uv_timer_again` | [`LoopHandle::clear`]; clear it and set another |
//! | `uv_timer_set_repeat`, `uv_timer_get_due_in` | [`LoopHandle::set_repeat`], [`LoopHandle::due_in`] |
//! | `uv_idle_start`, `uv_prepare_start` | [`LoopHandle::idle`], [`LoopHandle::prepare`] |
//! | `uv_check_start` | [`LoopHandle::check`] |
//! | `uv_idle_stop`, `uv_poll_stop`, `uv_signal_stop` and so on | [`LoopHandle::pause`], and [`LoopHandle::resume`] |
//! | `uv_poll_start` | [`LoopHandle::watch`], [`LoopHandle::set_interest`] |
//! | `uv_signal_start` | [`LoopHandle::on_signal`]; for one shot, close it in its callback |
//! | `uv_async_init`, `uv_async_send` | [`Remote::notifier`], [`Notifier::notify`]; does not keep the loop alive |
//! | `uv_queue_work`, `uv_cancel` | [`IoHandle::submit`], [`IoHandle::cancel`] |
//! | `uv_fs_stat`, reading a file | [`IoHandle::fs_stat`], [`IoHandle::fs_read`]; others: [`IoHandle::submit`] |
//! | `uv_getaddrinfo`, `uv_random` | [`IoHandle::dns_lookup`], [`IoHandle::random_bytes`] |
//!
//! | libuv: sources | here |
//! |---|---|
//! | `uv_read_start`, `uv_read_stop` | [`Stream::read_start`], [`Stream::read_stop`] |
//! | `uv_write`, `uv_try_write`, `uv_shutdown` | [`Stream::write`], [`Stream::try_write`], [`Stream::shutdown`] |
//! | `uv_stream_get_write_queue_size` | [`Stream::queued_bytes`]; the queue has a bound: [`Stream::set_write_limit`] |
//! | `uv_tcp_connect`, `uv_pipe_connect` | [`Stream::connect_tcp`], [`Stream::connect_unix`] |
//! | `uv_tcp_bind`, `uv_listen` | [`TcpOptions::bind`], [`Listener::tcp`], [`Listener::unix`] |
//! | `uv_accept` | nothing: [`Listener::accept_start`] hands out streams |
//! | `uv_tcp_nodelay`, `uv_tcp_keepalive` | [`Stream::set_nodelay`], [`Stream::set_keep_alive`], [`TcpOptions`] |
//! | `uv_tcp_getsockname`, `uv_tcp_getpeername` | [`Stream::local_address`], [`Stream::peer_address`] |
//! | `uv_tcp_open`, `uv_pipe_open`, `uv_tty_init` | [`Stream::from_descriptor`] |
//! | `uv_pipe`, `uv_socketpair` | [`Stream::pipe`], [`Stream::pair`] |
//! | `uv_udp_bind`, `uv_udp_connect` | [`UdpSocket::bind`], [`UdpOptions::bind`], [`UdpSocket::connect`] |
//! | `uv_udp_send`, `uv_udp_try_send` | [`UdpSocket::send_to`], [`UdpSocket::try_send_to`] |
//! | `uv_udp_recv_start`, `uv_udp_recv_stop` | [`UdpSocket::receive_start`], [`UdpSocket::receive_stop`] |
//! | `uv_udp_set_membership` | [`UdpSocket::join_multicast`], [`UdpSocket::leave_multicast`] |
//! | `uv_spawn`, its standard streams | [`Child::spawn`], [`Child::take_stdin`] and so on |
//! | the exit callback, `uv_process_kill` | [`Child::on_exit`], [`Child::kill`] |
//! | `uv_fs_event_*`, `uv_fs_poll_*`, `uv_tty_set_mode`, `uv_write2`, `uv_tcp_close_reset` | nothing |
//!
//! | Node | here |
//! |---|---|
//! | `setTimeout`, `setInterval` | [`LoopHandle::set_timeout`], [`LoopHandle::set_interval`] |
//! | `setImmediate` | [`LoopHandle::set_immediate`] |
//! | `clearTimeout` and so on, `unref`, `ref` | [`LoopHandle::clear`], [`LoopHandle::unref`], [`LoopHandle::ref_`] |
//! | `process.nextTick`, `queueMicrotask` | [`LoopHandle::next_tick`], [`LoopHandle::queue_microtask`] |
//! | an `async` function, `await` | [`LoopHandle::spawn`], `.await` |
//! | `uncaughtException` | [`Context::set_panic_handler`] |
//! | `monitorEventLoopDelay`, `process.getActiveResourcesInfo` | [`LoopHandle::metrics`], [`LoopHandle::why_alive`] |

#[expect(unused_imports, reason = "the documentation names them, and rustdoc checks the names")]
use crate::{
    Child, Context, EventLoop, HandleId, HandleInfo, Listener, LoopConfig, LoopError, LoopHandle, Notifier,
    Remote, RunMode, Stream, TcpOptions, TimerId, UdpOptions, UdpSocket, io_pool::IoHandle,
};
