'use strict';
// The shapes of long work in Node. Usage: node long_work.js NAME N
// Prints one line of JSON, as all programs that are compared do.
const crypto = require('crypto');
const fs = require('fs');
const milliseconds = () => Number(process.hrtime.bigint()) / 1e6;
const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const [name, n] = [process.argv[2], Number(process.argv[3])];
const begun = milliseconds();
const report = (extra) => console.log(JSON.stringify({
  engine: 'node-' + process.versions.node, bench: name, n, wall_s: (milliseconds() - begun) / 1e3,
  cpu_s: process.cpuUsage().user / 1e6, ...extra }));

function averageDirectly() {
  let sum = 0;
  for (let number = 1; number <= n; number++) sum += number;
  return sum / n;
}

function averageInImmediates(done) {
  let sum = 0;
  const step = (number) => {
    sum += number;
    if (number === n) done(sum / n); else setImmediate(step, number + 1);
  };
  step(1);
}

function compareAverages(turnsLeft, directly, inSteps) {
  if (turnsLeft === 0) return report({ ratio: middle(inSteps) / middle(directly) });
  const start = milliseconds();
  const expected = averageDirectly();
  directly.push(milliseconds() - start);
  const startOfSteps = milliseconds();
  averageInImmediates((average) => {
    inSteps.push(milliseconds() - startOfSteps);
    if (average !== expected) throw new Error('another average');
    compareAverages(turnsLeft - 1, directly, inSteps);
  });
}

// Eight tasks of n ms of work each on the pool of four threads, in so many parts, with file stats meanwhile.
function longTasks(parts) {
  // In processor time, so that other load does not make the tasks shorter.
  const trial = () => {
    const start = process.cpuUsage();
    crypto.pbkdf2Sync('p', 's', 20000, 32, 'sha1');
    return process.cpuUsage(start).user / 1e3;
  };
  const rounds = Math.max(1, Math.floor(20000 / Math.min(trial(), trial(), trial()) * n / parts));
  const latencies = [];
  let tasksLeft = 8;
  const part = (partsLeft) => crypto.pbkdf2('p', 's', rounds, 32, 'sha1', () => {
    if (partsLeft > 1) part(partsLeft - 1); else tasksLeft -= 1;
  });
  for (let task = 0; task < 8; task++) part(parts);
  const stat = () => {
    const asked = milliseconds();
    fs.stat('.', () => {
      latencies.push(milliseconds() - asked);
      if (tasksLeft > 0) setTimeout(stat, 5);
    });
  };
  stat();
  process.on('exit', () => report({ stats: latencies.length, stat_max_ms: Math.max(...latencies) }));
}

if (name === 'average_immediates') compareAverages(3, [], []);
else if (name === 'long_whole') longTasks(1);
else if (name === 'long_in_parts') longTasks(100);
else process.exitCode = 2;
