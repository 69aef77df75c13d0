// A worker in JavaScript: offload run --worker-jsonl 'node examples/jsonl/worker.js' average '[1, 2, 6]'
const { createReadStream, writeSync } = require("node:fs");
const say = (line) => writeSync(4, JSON.stringify(line) + "\n");
const average = (numbers) => {
  if (!numbers.every(Number.isFinite)) throw new TypeError("these are no numbers");
  const result = numbers.reduce((sum, number) => sum + number) / numbers.length;
  if (!Number.isFinite(result)) throw new RangeError("the sum is too large"); // JSON has no infinity: it would become null
  return result;
};
say({ hello: { tasks: [{ name: "average", idempotent: true, description: "The average of numbers", example: [1, 2] }] } });
require("node:readline").createInterface({ input: createReadStream(null, { fd: 3 }) }).on("line", (line) => {
  const { job, input } = JSON.parse(line);
  try { say({ job, output: average(input) }); } catch (error) { say({ job, error: String(error) }); }
});
