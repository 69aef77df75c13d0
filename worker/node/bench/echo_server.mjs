/** Answers whatever comes with the same bytes, on the Unix socket that its argument names. */

import net from 'node:net';

net.createServer((socket) => socket.on('data', (bytes) => socket.write(bytes))).listen(process.argv[2], () => process.send?.('listening'));
