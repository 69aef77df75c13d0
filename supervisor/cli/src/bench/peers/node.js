'use strict';
// One strategy of Node.js, measured as `offload bench compare` measures its own: `node node.js STRATEGY TASK WIDTH INPUT_FILE`.
// It says on a line that it is ready, with the answer of the task. For each line {"window_ms": N} it takes a sample and answers with
// a line. It ends with its standard input.
//
//   prober (a thread)            main thread
//   a message each millisecond --> notes how late it is, from when it was due
//                                  jobs, one after another    <-- or -->   threads of piscina, a job in each

const { pbkdf2Sync } = require('node:crypto');
const { once } = require('node:events');
const { readFileSync } = require('node:fs');
const { createInterface } = require('node:readline');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

const now = () => Number(process.hrtime.bigint()) / 1e6;
const BUDGET_MS = 1;
const STRETCHES = 10;

/* The tasks: what a job computes from the text of its input, at once, and in steps that give undefined until there is an answer. */

const SEGMENT = 32 << 10;

class Primes {
  constructor(n) {
    this.positions = Math.floor((n + 1) / 2);
    [this.start, this.count, this.largest, this.base] = [0, n >= 2 ? 1 : 0, n >= 2 ? 2 : null, []];
    const root = Math.floor(Math.sqrt(n));
    for (let odd = 3; odd <= root; odd += 2) if (this.base.every((prime) => prime * prime > odd || odd % prime !== 0)) this.base.push(odd);
    this.next = this.base.map((prime) => (prime * prime - 1) / 2);
    this.segment = new Uint8Array(SEGMENT);
  }

  /** Position i stands for the number 2 i + 1. */
  step() {
    const { segment, start } = this;
    const end = Math.min(start + SEGMENT, this.positions);
    segment.fill(0);
    if (start === 0) segment[0] = 1;
    for (let at = 0; at < this.base.length; at++) {
      let next = this.next[at];
      for (; next < end; next += this.base[at]) segment[next - start] = 1;
      this.next[at] = next;
    }
    for (let at = 0; at < end - start; at++) {
      if (segment[at] === 0) {
        this.count += 1;
        this.largest = 2 * (start + at) + 1;
      }
    }
    this.start = end;
    return end >= this.positions ? { count: this.count, largest: this.largest } : undefined;
  }
}

/** How many values there are, how deep, and how long the longest array is. */
const measure = (value, found, depth) => {
  found.values += 1;
  if (value === null || typeof value !== 'object') return;
  found.depth = Math.max(found.depth, depth + 1);
  if (Array.isArray(value)) {
    found.largest_array = Math.max(found.largest_array, value.length);
    for (const each of value) measure(each, found, depth + 1);
  } else {
    for (const key in value) measure(value[key], found, depth + 1);
  }
};
const measured = (text) => {
  const found = { values: 0, depth: 0, largest_array: 0 };
  measure(JSON.parse(text), found, 0);
  return found;
};

/** The end of the value at this position of an array. */
const endOf = (text, at) => {
  for (let depth = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 34) {
      for (at++; text.charCodeAt(at) !== 34; at++) if (text.charCodeAt(at) === 92) at++;
    } else if (code === 91 || code === 123) depth += 1;
    else if (code === 93 || code === 125) { if (depth-- === 0) return at; } else if (code === 44 && depth === 0) return at;
  }
  throw new Error('the array has no end');
};

class Elements {
  constructor(text) {
    [this.text, this.position, this.elements] = [text, 1, 0];
    this.found = { values: 1, depth: 1, largest_array: 0 };
  }

  step() {
    const end = endOf(this.text, this.position);
    measure(JSON.parse(this.text.slice(this.position, end)), this.found, 1);
    this.elements += 1;
    this.position = end + 1;
    if (this.text.charCodeAt(end) === 44) return undefined;
    return { ...this.found, largest_array: Math.max(this.found.largest_array, this.elements) };
  }
}

class Average {
  constructor(n) {
    [this.n, this.added, this.sum] = [n, 0, 0];
  }

  step() {
    const end = Math.min(this.added + 1000, this.n);
    while (this.added < end) this.sum += ++this.added;
    return this.added >= this.n ? this.sum / this.n : undefined;
  }
}

const finish = (steps) => {
  for (;;) {
    const answer = steps.step();
    if (answer !== undefined) return answer;
  }
};
const pbkdf2 = (text) => {
  const { password, salt, iterations, length } = JSON.parse(text);
  return pbkdf2Sync(password, salt, iterations, length, 'sha256').toString('hex');
};
const TASKS = {
  average: { whole: (text) => finish(new Average(Number(text))), steps: (text) => new Average(Number(text)) },
  json: { whole: measured, steps: (text) => new Elements(text) },
  primes: { whole: (text) => finish(new Primes(Number(text))), steps: (text) => new Primes(Number(text)) },
  pbkdf2: { whole: pbkdf2 },
};

/** What a thread of piscina does. */
module.exports = ({ task, text }) => TASKS[task].whole(text);

/* The prober, on a thread of its own. */

const probe = () => {
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  parentPort.postMessage('here');
  parentPort.on('message', (probes) => {
    const start = now();
    for (let number = 1; number <= probes; number++) {
      const wait = start + number - now();
      if (wait > 0) Atomics.wait(sleeper, 0, 0, wait);
      parentPort.postMessage(start + number);
    }
    parentPort.postMessage(null);
  });
};

/** Waits in microseconds, exact to about 1 %: how often there was each. */
class Waits {
  constructor() {
    this.counts = new Map();
  }

  note(us) {
    const step = us < 256 ? 1 : 2 ** (Math.floor(Math.log2(us)) - 7);
    const rounded = Math.max(0, Math.round(us / step) * step);
    this.counts.set(rounded, (this.counts.get(rounded) ?? 0) + 1);
  }
}

/* A sample. */

const sample = (strategy, prober, windowMs, expected) => new Promise((resolve, reject) => {
  const [waits, lags, stretches] = [new Waits(), new Waits(), new Array(STRETCHES).fill(0)];
  const state = { jobs: 0, isOver: false, end: null };
  const start = now();
  const cpu = process.cpuUsage();
  let last = start;
  const stretch = (time) => Math.min(STRETCHES - 1, Math.floor(((time - start) / windowMs) * STRETCHES));
  const timer = setInterval(() => {
    const time = now();
    const late = Math.max(0, (time - last - 1) * 1000);
    lags.note(late);
    for (let at = stretch(last); at <= stretch(time); at++) stretches[at] = Math.max(stretches[at], Math.round(late));
    last = time;
  }, 1);
  const finishWhenDone = () => {
    if (!state.isOver || state.jobs < strategy.width || state.isTold) return;
    state.isTold = true;
    clearInterval(timer);
    prober.off('message', onProbe);
    const used = process.cpuUsage(cpu);
    resolve({
      jobs: state.jobs, seconds: (now() - start) / 1e3, seconds_to_last: (state.end - start) / 1e3,
      waits_us: [...waits.counts], timer_us: [...lags.counts], stretches_us: stretches, cpu_s: (used.user + used.system) / 1e6,
    });
  };
  const onProbe = (due) => {
    if (due !== null) return waits.note((now() - due) * 1000);
    state.isOver = true;
    finishWhenDone();
  };
  const goesOn = () => !state.isOver || state.jobs < strategy.width;
  const onAnswer = (answer) => {
    if (JSON.stringify(answer) !== expected) return reject(new Error(`another answer: ${JSON.stringify(answer)}`));
    if (!goesOn()) return undefined;
    state.jobs += 1;
    state.end = now();
    return finishWhenDone();
  };
  prober.on('message', onProbe);
  strategy.start(onAnswer, goesOn, reject);
  prober.postMessage(windowMs);
});

const inline = (task, text) => ({
  width: 1,
  start(onAnswer, goesOn) {
    const next = () => {
      onAnswer(task.whole(text));
      if (goesOn()) setImmediate(next);
    };
    setImmediate(next);
  },
});

const partitioned = (task, text) => ({
  width: 1,
  start(onAnswer, goesOn) {
    let steps = task.steps(text);
    const turn = () => {
      const end = now() + BUDGET_MS;
      do {
        const answer = steps.step();
        if (answer !== undefined) {
          onAnswer(answer);
          if (!goesOn()) return;
          steps = task.steps(text);
          break;
        }
      } while (now() < end);
      setImmediate(turn);
    };
    setImmediate(turn);
  },
});

const piscina = (Piscina, name, text, width) => {
  const pool = new Piscina({ filename: __filename, minThreads: width, maxThreads: width });
  const pending = new Set();
  const run = () => {
    const one = pool.run({ task: name, text });
    const forget = () => pending.delete(one);
    pending.add(one);
    one.then(forget, forget);
    return one;
  };
  return {
    width,
    ready: () => Promise.all(Array.from({ length: width }, run)),
    // What is still computed at the end of a sample would slow down whoever comes next.
    settle: () => Promise.allSettled(pending),
    start(onAnswer, goesOn, reject) {
      const next = () => run().then((answer) => {
        onAnswer(answer);
        if (goesOn()) next();
      }).catch(reject);
      for (let job = 0; job < width; job++) next();
    },
  };
};

const load = () => {
  try {
    const found = require(require.resolve('piscina', { paths: [process.cwd()] }));
    return found.Piscina ?? found.default ?? found;
  } catch {
    return null;
  }
};

const main = async () => {
  const [, , name, taskName, width, file] = process.argv;
  const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
  const [task, text] = [TASKS[taskName], readFileSync(file, 'utf8')];
  const Piscina = name === 'piscina' ? load() : undefined;
  if (Piscina === null) return say({ missing: 'piscina' });
  const strategy = { inline, partitioned }[name]?.(task, text) ?? piscina(Piscina, taskName, text, Number(width));
  await strategy.ready?.();
  const prober = new Worker(__filename, { workerData: { isProber: true } });
  await once(prober, 'message');
  const answer = task.whole(text);
  const bytes = name === 'piscina' ? Buffer.byteLength(text) + Buffer.byteLength(JSON.stringify(answer)) : 0;
  say({ ready: true, version: `Node.js ${process.version}`, bytes_of_a_job: bytes, answer });
  for await (const line of createInterface({ input: process.stdin })) {
    const taken = await sample(strategy, prober, JSON.parse(line).window_ms, JSON.stringify(answer));
    await strategy.settle?.();
    say(taken);
  }
  process.exit(0);
};

if (isMainThread) {
  main().catch((error) => {
    process.stdout.write(`${JSON.stringify({ error: String(error?.message ?? error) })}\n`, () => process.exit(1));
  });
} else if (workerData?.isProber) {
  probe();
}
