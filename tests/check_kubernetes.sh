#!/bin/sh
# The DaemonSet and the sidecar against Kubernetes' API, and their configurations against ours.
: "${B:=build}"
ini=$(mktemp)
trap 'rm -f "$ini"' EXIT
for f in kubernetes kubernetes-sidecar; do
    /usr/bin/python3 tests/manifest.py dist/$f.yaml "$ini" || echo "not ok manifest-$f"
    if "$B/ebpfprofiler" check-config "$ini"; then echo "ok configuration-is-valid-$f"; else echo "not ok configuration-is-valid-$f"; fi
done
