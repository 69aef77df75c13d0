// An Express application with a native crash: it knows nothing of offload but that a request may say which attempt it is.
const { createHash } = require("node:crypto");
const express = require("express");
const app = express();
app.use(express.json());

function digest(text, dies) {
  if (dies) process.abort();
  return { sha256: createHash("sha256").update(text).digest("hex") };
}

app.post("/work", (request, response) => response.json(digest(request.body.text, request.body.dies)));
app.post("/again", (request, response) => {
  const { text, dies } = request.body;
  response.json(digest(text, dies && request.get("Offload-Attempt") === "1"));
});

app.listen(process.env.PORT, "127.0.0.1");
