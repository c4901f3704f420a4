#!/bin/sh
# Starts the pods of mesh.yaml and waits for them: the launcher of `linerate mesh --size N -- packaging/kubernetes/start.sh`, which
# sets LINERATE_ROOT. The Secret and the Job are removed at the end, also after a signal.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${LINERATE_ROOT:?start this by \`linerate mesh --size N -- $0\`}"
trap 'kubectl delete --ignore-not-found --wait=false job/linerate-mesh secret/linerate-mesh >&2' EXIT
trap 'exit 143' TERM INT
# The line is passed by standard input: arguments can be read by every user of this machine.
printf '{"apiVersion":"v1","kind":"Secret","metadata":{"name":"linerate-mesh"},"stringData":{"root":"%s"}}' "$LINERATE_ROOT" |
    kubectl apply -f - >&2
kubectl create -f "$here/mesh.yaml" >&2
# In the background: a shell handles a signal when the program that it waits for has ended.
kubectl wait --for=condition=complete --timeout=3600s job/linerate-mesh >&2 &
wait $!
