'use strict';
// The shapes of the benchmarks in Node. Usage: node bench.js NAME N
// Prints one line of JSON, as all programs that are compared do.
const childProcess = require('child_process');
const fs = require('fs');
const net = require('net');
const { Worker, isMainThread, parentPort } = require('worker_threads');

const [name, count] = [process.argv[2], Number(process.argv[3])];

let begunCpu, begun;
function begin() {
  begunCpu = process.cpuUsage();
  begun = process.hrtime.bigint();
}

function report() {
  const wall = Number(process.hrtime.bigint() - begun) / 1e9;
  const usage = process.cpuUsage(begunCpu);
  const cpu = Math.max(usage.user + usage.system, 1) / 1e6;
  console.log(JSON.stringify({
    engine: 'node-' + process.versions.node, bench: name, n: count, wall_s: wall, cpu_s: cpu,
    per_s: Math.round(count / wall), per_cpu_s: Math.round(count / cpu),
  }));
}

// Calls `finished`, or reports, after `count` calls.
function counted(finished = report) {
  let calls = 0;
  return () => { if (++calls === count) finished(); };
}

// A callback that registers itself again, `count` times.
function chain(register) {
  let calls = 0;
  const step = () => { if (++calls === count) report(); else register(step); };
  begin();
  register(step);
}

function batch(register) {
  const step = counted();
  begin();
  for (let number = 0; number < count; number++) register(step, number);
}

function stats(inFlight) {
  const step = counted();
  let submitted = 0;
  const submit = () => {
    submitted++;
    fs.stat('.', () => { step(); if (submitted < count) submit(); });
  };
  begin();
  for (let number = 0; number < inFlight && number < count; number++) submit();
}

const benches = {
  immediate_chain: () => chain(setImmediate),
  immediate_batch: () => batch((step) => setImmediate(step)),
  nexttick_chain: () => chain(process.nextTick),
  microtask_chain: () => chain(queueMicrotask),
  await_chain: async () => {
    begin();
    for (let number = 0; number < count; number++) await null;
    report();
  },
  timers_same: () => batch((step) => setTimeout(step, 1)),
  timers_spread: () => batch((step, number) => setTimeout(step, 1 + (number * 7919) % 1000)),
  timers_cancel: () => {
    const timers = new Array(count);
    begin();
    for (let number = 0; number < count; number++) timers[number] = setTimeout(() => {}, 1000 + (number * 7919) % 60000);
    timers.forEach(clearTimeout);
    report();
  },
  pool_stat_64: () => stats(64),
  pool_stat_1: () => stats(1),
  messageport_pingpong: () => {
    const worker = new Worker(__filename);
    const step = counted(() => { report(); worker.terminate(); });
    let begunYet = false;
    worker.on('message', () => {
      if (begunYet) step(); else begin();
      begunYet = true;
      worker.postMessage(0);
    });
    worker.postMessage(0);
  },
  tcp_pingpong: () => {
    const server = net.createServer((socket) => {
      socket.setNoDelay();
      socket.on('data', (bytes) => socket.write(bytes));
    });
    server.listen(0, '127.0.0.1', () => {
      const client = net.connect(server.address().port, '127.0.0.1');
      const step = counted(() => { report(); client.destroy(); server.close(); });
      client.setNoDelay();
      client.on('connect', () => { begin(); client.write('x'); });
      client.on('data', () => { step(); if (!client.destroyed) client.write('x'); });
    });
  },
  spawn_true: () => chain((step) => childProcess.spawn('/bin/true', { stdio: 'ignore' }).on('exit', step)),
};

if (!isMainThread) {
  parentPort.on('message', (message) => parentPort.postMessage(message));
} else if (Object.hasOwn(benches, name) && count > 0) {
  benches[name]();
} else {
  console.error('usage: node bench.js NAME N');
  process.exitCode = 2;
}
