"""A FastAPI application with a native crash: it knows nothing of offload but that a request may say which attempt it is."""

import ctypes
import hashlib

from fastapi import FastAPI, Request

app = FastAPI()


def digest(text: str, dies: bool) -> dict:
    if dies:
        ctypes.string_at(0)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest()}


@app.post("/work")
async def work(request: Request) -> dict:
    body = await request.json()
    return digest(body["text"], body["dies"])


@app.post("/again")
async def again(request: Request) -> dict:
    body = await request.json()
    return digest(body["text"], body["dies"] and request.headers["Offload-Attempt"] == "1")
