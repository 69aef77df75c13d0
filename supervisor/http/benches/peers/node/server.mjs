// node:http in front of piscina, two workers, the same jobs.
import { createServer } from 'node:http'
import { Piscina } from 'piscina'

const pool = new Piscina({ filename: new URL('./worker.mjs', import.meta.url).href, minThreads: 2, maxThreads: 2 })

// How late a timer of 10 ms was, each time since it was last asked, in microseconds.
let late = []
const watch = () => {
  const due = performance.now() + 10
  setTimeout(() => {
    late.push(Math.max(0, performance.now() - due) * 1000)
    watch()
  }, 10)
}
watch()

// The 99th percentile.
const takeLag = () => {
  const all = late.sort((one, other) => one - other)
  late = []
  return String(all[Math.ceil(all.length * 0.99) - 1] ?? 0)
}

createServer((request, response) => {
  if (request.url === '/hello') return response.end('ok\n')
  if (request.url === '/lag') return response.end(takeLag())
  const parts = []
  request.on('data', part => parts.push(part))
  request.on('end', async () => {
    try {
      response.end(await pool.run(Buffer.concat(parts).toString(), { name: request.url.slice(1) }))
    } catch (error) {
      response.writeHead(500).end(String(error))
    }
  })
}).listen(Number(process.argv[2]), '127.0.0.1')
