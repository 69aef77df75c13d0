# A worker in Python: offload run --worker-jsonl 'python3 examples/jsonl/worker.py' average '[1, 2, 6]'
import json
tasks = [{"name": "average", "idempotent": True, "description": "The average of numbers", "example": [1, 2]}]
jobs, answers = open(3), open(4, "w", buffering=1)
print(json.dumps({"hello": {"tasks": tasks}}), file=answers)
for line in jobs:
    job = json.loads(line, parse_int=float)  # Python reads no integers of more than 4,300 digits
    try:
        said = {"job": job["job"], "output": sum(job["input"]) / len(job["input"])}
        answer = json.dumps(said, allow_nan=False)  # JSON has no infinity: that is an error of this job
    except Exception as error:
        answer = json.dumps({"job": job["job"], "error": repr(error)})
    print(answer, file=answers)
