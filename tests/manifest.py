#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds manifests against Kubernetes' API: the models of its Python client are generated from the
API's OpenAPI definitions, and know each field's name and type and which ones are required.

    manifest.py FILE CONFIG

Writes the configuration that it holds to CONFIG.

Then what we promise of ours. Prints ok or not ok for each.
"""
import datetime
import re
import sys

import yaml
from kubernetes.client import models

bad = 0


def say(good, name, why=""):
    global bad
    bad |= not good
    print(f"ok {name}" if good else f"not ok {name}: {why}")


def fits(value, kind, where):
    """An object of the API's model of this kind; AssertionError says what does not fit."""
    m = re.fullmatch(r"list\[(.*)\]", kind)
    if m:
        assert isinstance(value, list), f"{where}: expected a list"
        return [fits(v, m[1], f"{where}[{i}]") for i, v in enumerate(value)]
    m = re.fullmatch(r"dict\(str, (.*)\)", kind)
    if m:
        assert isinstance(value, dict), f"{where}: expected keys and values"
        assert all(isinstance(k, str) for k in value), f"{where}: a key is no text"
        return {k: fits(v, m[1], f"{where}.{k}") for k, v in value.items()}
    plain = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": datetime.datetime}
    if kind in plain:
        assert isinstance(value, plain[kind]) and (kind == "bool" or not isinstance(value, bool)), \
            f"{where}: {value!r} is no {kind}"
        return value
    if kind == "object":  # int or string, such as 10%
        return value
    model = getattr(models, kind)
    assert isinstance(value, dict), f"{where}: expected an object ({kind})"
    names = {v: k for k, v in model.attribute_map.items()}
    unknown = value.keys() - names.keys()
    assert not unknown, f"{where}: {kind} has no {', '.join(unknown)}"
    made = {names[k]: fits(v, model.openapi_types[names[k]], f"{where}.{k}") for k, v in value.items()}
    try:
        return model(**made)
    except ValueError as e:
        raise AssertionError(f"{where}: {e}") from e


def sees_slips(daemon_set):
    """The check itself: slips that it has to see."""
    for path, value in ((("spec", "template", "spec", "hostPid"), True),
                        (("spec", "template", "spec", "hostPID"), "true"),
                        (("spec", "template", "spec", "terminationGracePeriodSeconds"), "15")):
        d = yaml.safe_load(yaml.safe_dump(daemon_set))
        at = d
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        try:
            fits(d, "V1DaemonSet", "DaemonSet")
            say(False, f"a-slip-in-{path[-1]}-is-seen", value)
        except AssertionError:
            say(True, f"a-slip-in-{path[-1]}-is-seen")


def runs_as_promised(pod, name):
    """The profiler's container has what the unit file gives it, and no more."""
    c = next(c for c in pod.containers if c.name == "ebpfprofiler")
    say({m.name for m in c.volume_mounts} == {v.name for v in pod.volumes}, f"each-volume-is-mounted-{name}")
    unit = re.search(r"^CapabilityBoundingSet=(.*)$", open("dist/ebpfprofiler.service").read(), re.M)
    say({"CAP_" + n for n in c.security_context.capabilities.add} == set(unit[1].split()),
        f"capabilities-are-the-unit-file's-{name}")
    say(c.security_context.capabilities.drop == ["ALL"] and not c.security_context.privileged,
        f"and-no-others-{name}")


def main():
    kinds = {("v1", "Namespace"): "V1Namespace", ("v1", "ConfigMap"): "V1ConfigMap",
             ("apps/v1", "DaemonSet"): "V1DaemonSet", ("v1", "Pod"): "V1Pod"}
    docs = list(yaml.safe_load_all(open(sys.argv[1], encoding="utf-8")))
    objects = {}
    for d in docs:
        kind = d.get("kind")
        try:
            objects[kind] = fits(d, kinds[d["apiVersion"], kind], kind)
            say(True, f"{kind}-is-as-the-api-has-it")
        except AssertionError as e:
            say(False, f"{kind}-is-as-the-api-has-it", e)
    if "DaemonSet" in objects:
        sees_slips(docs[-1])
        ds = objects["DaemonSet"]
        say(ds.spec.selector.match_labels.items() <= ds.spec.template.metadata.labels.items(),
            "selector-finds-its-pods")
        say(ds.spec.template.spec.host_pid, "host-pid")
        runs_as_promised(ds.spec.template.spec, "on-a-node")
    else:
        pod = objects["Pod"].spec
        say(pod.share_process_namespace and not pod.host_pid, "pids-of-the-pod")
        runs_as_promised(pod, "in-a-pod")
    open(sys.argv[2], "w", encoding="utf-8").write(objects["ConfigMap"].data["ebpfprofiler.ini"])
    sys.exit(bad)


main()
