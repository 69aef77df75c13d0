# A worker in bash with jq: offload run --worker-jsonl 'bash examples/jsonl/worker.sh' average '[1, 2, 6]'
tasks='[{"name": "average", "idempotent": true, "description": "The average of numbers", "example": [1, 2]}]'
jq --compact-output --null-input --argjson tasks "$tasks" '{hello: {tasks: $tasks}}' >&4
while IFS= read -r line <&3; do
  jq --compact-output '{job, output: (.input | add / length)}' <<<"$line" >&4 ||
    jq --compact-output '{job, error: "these are no numbers"}' <<<"$line" >&4
done
