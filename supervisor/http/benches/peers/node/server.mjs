// node:http in front of piscina, two workers, the same jobs.
import { createServer } from 'node:http'
import { Piscina } from 'piscina'

const pool = new Piscina({ filename: new URL('./worker.mjs', import.meta.url).href, minThreads: 2, maxThreads: 2 })
createServer((request, response) => {
  if (request.url === '/hello') return response.end('ok\n')
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
