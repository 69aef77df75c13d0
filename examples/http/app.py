# An HTTP application in Python, which knows nothing of offload (pip install fastapi uvicorn):
#   offload run --worker-http 'uvicorn --app-dir examples/http app:app --uds {socket}' --tasks average average '[1, 2, 6]'
from fastapi import FastAPI, HTTPException

app = FastAPI()


@app.post("/average")
def average(numbers: list[float]) -> float:
    if not numbers:
        raise HTTPException(422, "no numbers")
    return sum(numbers) / len(numbers)
