// An HTTP application in JavaScript, which knows nothing of offload (npm install express):
//   offload run --worker-http 'env PORT={port} node examples/http/server.js' --tasks average average '[1, 2, 6]'
const express = require("express");
const app = express();

app.post("/average", express.json(), (request, response) => {
  const numbers = request.body;
  if (!Array.isArray(numbers) || numbers.length === 0) return response.status(422).send("no numbers");
  response.json(numbers.reduce((sum, number) => sum + number) / numbers.length);
});

app.listen(process.env.PORT, "127.0.0.1");
