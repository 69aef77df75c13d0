/* The shapes of the benchmarks in libuv. Usage: uvbench NAME N
 * Prints one line of JSON, as all programs that are compared do. Built by the benchmarks: cc -O2 uvbench.c -luv -lpthread */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

static uv_loop_t *loop;
static const char *name;
static uint64_t count, done;
static double begun, begun_cpu;

static void check(int result) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", name, uv_strerror(result));
        exit(1);
    }
}

static double seconds(void) { return uv_hrtime() / 1e9; }

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void begin(void) {
    begun = seconds();
    begun_cpu = cpu_seconds();
}

static void report(void) {
    double wall = seconds() - begun, cpu = cpu_seconds() - begun_cpu;
    if (cpu < 1e-9) cpu = 1e-9;
    printf("{\"engine\":\"libuv-%s\",\"bench\":\"%s\",\"n\":%llu,\"wall_s\":%.6f,\"cpu_s\":%.6f,\"per_s\":%.0f,"
           "\"per_cpu_s\":%.0f}\n",
           uv_version_string(), name, (unsigned long long) count, wall, cpu, count / wall, count / cpu);
}

/* Runs the loop to its end, and reports if every callback has run. */
static void run(void) {
    uv_run(loop, UV_RUN_DEFAULT);
    if (done != count) {
        fprintf(stderr, "%s: %llu of %llu callbacks have run\n", name, (unsigned long long) done, (unsigned long long) count);
        exit(1);
    }
    report();
}

/* Iterations. */

static uv_idle_t idle;
static uv_check_t after_poll;

static void on_idle(uv_idle_t *handle) {
    if (++done == count) uv_idle_stop(handle);
}

static void bench_idle(void) {
    uv_idle_init(loop, &idle);
    uv_idle_start(&idle, on_idle);
    begin();
    run();
}

static void do_nothing(uv_idle_t *handle) { (void) handle; }
static void on_readable(uv_poll_t *poll, int status, int events) { (void) poll, (void) status, (void) events; }

static void on_check(uv_check_t *handle) {
    if (++done < count) return;
    uv_check_stop(handle);
    uv_idle_stop(&idle);
}

/* An idle handle keeps the poll from waiting, and a watched pipe lets it ask the kernel, as immediates of Node do. */
static void bench_check(void) {
    static uv_poll_t poll;
    int ends[2];
    if (pipe(ends)) abort();
    check(uv_poll_init(loop, &poll, ends[0]));
    check(uv_poll_start(&poll, UV_READABLE, on_readable));
    uv_unref((uv_handle_t *) &poll);
    uv_check_init(loop, &after_poll);
    uv_check_start(&after_poll, on_check);
    uv_idle_init(loop, &idle);
    uv_idle_start(&idle, do_nothing);
    begin();
    run();
}

/* Timers. */

static uint64_t one(uint64_t number) { return (void) number, 1; }
static uint64_t up_to_a_second(uint64_t number) { return 1 + number * 7919 % 1000; }
static uint64_t up_to_a_minute(uint64_t number) { return 1000 + number * 7919 % 60000; }

static void on_timer(uv_timer_t *handle) { (void) handle, done++; }

static uv_timer_t *start_timers(uint64_t (*delay)(uint64_t)) {
    uv_timer_t *timers = malloc(count * sizeof *timers);
    if (!timers) abort();
    for (uint64_t number = 0; number < count; number++) {
        uv_timer_init(loop, &timers[number]);
        uv_timer_start(&timers[number], on_timer, delay(number), 0);
    }
    return timers;
}

static void bench_timers_same(void) {
    begin();
    start_timers(one);
    run();
}

static void bench_timers_spread(void) {
    begin();
    start_timers(up_to_a_second);
    run();
}

static void bench_timers_cancel(void) {
    begin();
    uv_timer_t *timers = start_timers(up_to_a_minute);
    for (uint64_t number = 0; number < count; number++) uv_timer_stop(&timers[number]);
    report();
}

/* The pool. */

static uint64_t submitted;

static void submit_stat(uv_fs_t *request);

static void on_stat(uv_fs_t *request) {
    uv_fs_req_cleanup(request);
    done++;
    if (submitted < count) submit_stat(request);
}

static void submit_stat(uv_fs_t *request) {
    submitted++;
    check(uv_fs_stat(loop, request, ".", on_stat));
}

static void stat_with(uint64_t in_flight) {
    static uv_fs_t requests[64];
    begin();
    for (uint64_t number = 0; number < in_flight && number < count; number++) submit_stat(&requests[number]);
    run();
}

static void bench_pool_stat_64(void) { stat_with(64); }
static void bench_pool_stat_1(void) { stat_with(1); }

/* Threads. */

static uv_loop_t other_loop;
static uv_async_t here, there;
static uint64_t answered;

static void on_rung_there(uv_async_t *handle) {
    uv_async_send(&here);
    if (++answered == count) uv_close((uv_handle_t *) handle, NULL);
}

static void on_rung_here(uv_async_t *handle) {
    if (++done == count) uv_close((uv_handle_t *) handle, NULL);
    else uv_async_send(&there);
}

static void run_other_loop(void *nothing) {
    (void) nothing;
    uv_run(&other_loop, UV_RUN_DEFAULT);
}

static void bench_async_xthread(void) {
    uv_thread_t thread;
    check(uv_loop_init(&other_loop));
    check(uv_async_init(loop, &here, on_rung_here));
    check(uv_async_init(&other_loop, &there, on_rung_there));
    begin();
    check(uv_thread_create(&thread, run_other_loop, NULL));
    uv_async_send(&there);
    run();
    uv_thread_join(&thread);
}

static void on_rung_by_itself(uv_async_t *handle) {
    if (++done == count) uv_close((uv_handle_t *) handle, NULL);
    else uv_async_send(handle);
}

static void bench_async_self(void) {
    check(uv_async_init(loop, &here, on_rung_by_itself));
    begin();
    uv_async_send(&here);
    run();
}

/* Sockets: a byte there and back, both ends on one loop. */

static uv_tcp_t listener, client, server;
static char bytes[64];

static void lend_bytes(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    (void) handle, (void) size;
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

static void send_byte(uv_stream_t *stream) {
    uv_buf_t byte = uv_buf_init("x", 1);
    check(uv_try_write(stream, &byte, 1));
}

static void on_read_by_server(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
    (void) buffer;
    if (length > 0) send_byte(stream);
    else if (length < 0) uv_close((uv_handle_t *) stream, NULL);
}

static void on_read_by_client(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
    (void) buffer;
    if (length <= 0) return;
    if (++done < count) return send_byte(stream);
    uv_close((uv_handle_t *) stream, NULL);
    uv_close((uv_handle_t *) &listener, NULL);
}

static void on_connection(uv_stream_t *stream, int status) {
    check(status);
    uv_tcp_init(loop, &server);
    check(uv_accept(stream, (uv_stream_t *) &server));
    uv_tcp_nodelay(&server, 1);
    uv_read_start((uv_stream_t *) &server, lend_bytes, on_read_by_server);
}

static void on_connected(uv_connect_t *request, int status) {
    (void) request;
    check(status);
    uv_tcp_nodelay(&client, 1);
    uv_read_start((uv_stream_t *) &client, lend_bytes, on_read_by_client);
    begin();
    send_byte((uv_stream_t *) &client);
}

static void bench_tcp(void) {
    static uv_connect_t request;
    struct sockaddr_in address;
    int length = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &listener);
    check(uv_tcp_bind(&listener, (struct sockaddr *) &address, 0));
    check(uv_listen((uv_stream_t *) &listener, 16, on_connection));
    check(uv_tcp_getsockname(&listener, (struct sockaddr *) &address, &length));
    uv_tcp_init(loop, &client);
    check(uv_tcp_connect(&request, &client, (struct sockaddr *) &address, on_connected));
    run();
}

/* Children. */

static uv_process_t child;

static void start_child(void);

static void on_closed(uv_handle_t *handle) {
    (void) handle;
    if (++done < count) start_child();
}

static void on_exit_of_child(uv_process_t *process, int64_t status, int signal) {
    (void) status, (void) signal;
    uv_close((uv_handle_t *) process, on_closed);
}

static void start_child(void) {
    static char *arguments[] = {"/bin/true", NULL};
    uv_process_options_t options = {.file = arguments[0], .args = arguments, .exit_cb = on_exit_of_child};
    check(uv_spawn(loop, &child, &options));
}

static void bench_spawn(void) {
    begin();
    start_child();
    run();
}

static const struct {
    const char *name;
    void (*run)(void);
} benches[] = {
    {"idle", bench_idle},
    {"check", bench_check},
    {"timers_same", bench_timers_same},
    {"timers_spread", bench_timers_spread},
    {"timers_cancel", bench_timers_cancel},
    {"pool_stat_64", bench_pool_stat_64},
    {"pool_stat_1", bench_pool_stat_1},
    {"async_xthread", bench_async_xthread},
    {"async_self", bench_async_self},
    {"tcp", bench_tcp},
    {"spawn", bench_spawn},
};

int main(int argument_count, char **arguments) {
    loop = uv_default_loop();
    name = argument_count > 1 ? arguments[1] : "";
    count = argument_count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    for (size_t number = 0; count > 0 && number < sizeof benches / sizeof *benches; number++) {
        if (strcmp(name, benches[number].name)) continue;
        benches[number].run();
        return 0;
    }
    fprintf(stderr, "usage: uvbench NAME N\n");
    return 2;
}
