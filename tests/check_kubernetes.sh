#!/bin/sh
# The DaemonSet against Kubernetes' API, and its configuration against ours.
: "${B:=build}"
ini=$(mktemp)
trap 'rm -f "$ini"' EXIT
/usr/bin/python3 tests/manifest.py dist/kubernetes.yaml "$ini" || echo "not ok manifest"
if "$B/ebpfprofiler" check-config "$ini"; then echo "ok configuration-is-valid"; else echo "not ok configuration-is-valid"; fi
