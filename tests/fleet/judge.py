# SPDX-License-Identifier: Apache-2.0
"""What servers ask of a profile, as rules over a request: each function raises Broken, or returns what
the request says in one common form, so that envelopes can be compared with what is in them.

    judge.py PROTOCOL FILE...       judges bodies, prints them in that form

Bodies are decoded by Google's protobuf with the .proto files beside this one. A rule has the reader that
breaks without it at its side.
"""
import base64
import collections
import gzip
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = os.path.dirname(os.path.abspath(__file__))
Taken = collections.namedtuple("Taken", "service container host profiles")
# samples: {(stack, labels): value}; stack: (frame...), leaf first; frame: (functions, file, address)
Plain = collections.namedtuple("Plain", "type unit period time duration samples comments")


class Broken(Exception):
    pass


def require(condition, rule):
    if not condition:
        raise Broken(rule)


def load():
    out = subprocess.run(["protoc", "--proto_path=" + HERE, "--descriptor_set_out=/dev/stdout",
                          "pprof.proto", "push.proto", "otlp.proto"], check=True, stdout=subprocess.PIPE)
    pool = descriptor_pool.DescriptorPool()
    for f in descriptor_pb2.FileDescriptorSet.FromString(out.stdout).file:
        pool.Add(f)
    factory = message_factory.MessageFactory(pool)
    return lambda name: factory.GetPrototype(pool.FindMessageTypeByName("fleet." + name))


message = load()
PPROF, PUSH, EXPORT = message("pprof.Profile"), message("push.PushRequest"), message(
    "otlp.ExportProfilesServiceRequest")
PARTIAL = message("otlp.ExportProfilesServiceResponse")


def decode(kind, data):
    try:
        m = kind.FromString(data)
    except Exception as e:  # also text that is no UTF-8: Pyroscope refuses the whole profile
        raise Broken("decodes: %s" % e) from None
    clean = kind()
    clean.CopyFrom(m)
    clean.DiscardUnknownFields()
    require(clean.ByteSize() == m.ByteSize(), "has no unknown field")
    return m


# --- pprof


def pprof_ids(p):
    n = len(p.string_table)
    require(n and p.string_table[0] == "", "text 0 is empty (Parca)")
    for table in (p.mapping, p.location, p.function):
        require([e.id for e in table] == list(range(1, len(table) + 1)), "ids count 1, 2, 3 (Parca)")
    texts = [x for t in p.sample_type for x in (t.type, t.unit)]
    texts += [x for m in p.mapping for x in (m.filename, m.build_id)]
    texts += [x for f in p.function for x in (f.name, f.system_name, f.filename)]
    texts += [x for s in p.sample for l in s.label for x in (l.key, l.str, l.num_unit)]
    texts += list(p.comment) + [p.period_type.type, p.period_type.unit, p.default_sample_type, p.doc_url]
    require(all(0 <= x < n for x in texts), "texts are in the table")
    require(all(l.mapping_id <= len(p.mapping) for l in p.location), "mappings are in the table")
    require(all(0 < i.function_id <= len(p.function) for l in p.location for i in l.line),
            "functions are in the table")
    require(all(0 < i <= len(p.location) for s in p.sample for i in s.location_id),
            "locations are in the table (Parca)")


def pprof_head(p):
    text = p.string_table
    types = [text[t.type] for t in p.sample_type]
    require(types and all(types), "has sample types")
    require(not any("-" in t for t in types), "no - in a type (Pyroscope)")
    require(text[p.default_sample_type] in types, "default type is one of its own (pprof, speedscope)")
    require(p.HasField("period_type") and text[p.period_type.type], "has a period type (collector)")
    require(p.period > 0, "has a period (collector)")
    require(p.time_nanos > 0 and p.duration_nanos > 0, "has a time and a duration")
    require(p.doc_url == 0 or text[p.doc_url].startswith("http"), "doc_url is none")


def pprof_mappings(p):
    text = p.string_table
    for m in p.mapping:
        require(m.memory_start < m.memory_limit, "a mapping has a range (standalone pprof)")
        require(re.fullmatch("[0-9a-f]*", text[m.build_id]), "build ids are hex (Pyroscope)")
    for l in p.location:
        m = p.mapping[l.mapping_id - 1] if l.mapping_id else None
        require(m or l.line or l.address, "a frame has something")
        if m:
            require(m.memory_start <= l.address < m.memory_limit, "an address is in its mapping (pprof)")
            require(m.has_functions == bool(l.line), "named and unnamed frames apart (Pyroscope)")


def pprof_samples(p):
    text = p.string_table
    for s in p.sample:
        require(len(s.value) == len(p.sample_type), "a value per type")
        require(all(v >= 0 for v in s.value) and any(s.value), "no sample of nothing (Pyroscope)")
        keys = [l.key for l in s.label]
        require(len(keys) == len(set(keys)), "one value per label (collector)")
        for l in s.label:
            require(not (l.str and l.num), "a label is text or number")
            require(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_.]*", text[l.key]), "label names (Pyroscope)")
        require(len(s.label) <= 100, "labels of a sample (Pyroscope)")


def pprof_plain(p):
    text = p.string_table

    def frame(i):
        l = p.location[i - 1]
        names = tuple((text[p.function[f.function_id - 1].name], f.line) for f in l.line)
        return names, text[p.mapping[l.mapping_id - 1].filename] if l.mapping_id else "", l.address

    profiles = []
    for k, t in enumerate(p.sample_type):
        samples = collections.Counter()
        for s in p.sample:
            labels = tuple(sorted((text[l.key], text[l.str] if l.str else l.num) for l in s.label))
            if s.value[k]:
                samples[(tuple(frame(i) for i in s.location_id), labels)] += s.value[k]
        profiles.append(Plain(text[t.type], text[t.unit], p.period, p.time_nanos, p.duration_nanos, samples,
                              tuple(text[c] for c in p.comment)))
    return profiles


def judge_pprof(data):
    require(data[:2] == b"\x1f\x8b", "is gzip")
    raw = gzip.decompress(data)
    p = decode(PPROF, raw)
    pprof_ids(p)
    pprof_head(p)
    pprof_mappings(p)
    pprof_samples(p)
    return p, pprof_plain(p), len(raw)


# --- envelopes: (path, query, headers, body, now) -> Taken


def coroot(query, headers, body):
    require(headers.get("Content-Type") == "application/octet-stream", "content type")
    require("Content-Encoding" not in headers, "gzip is the format's, not the transfer's")
    q = urllib.parse.parse_qs(query, keep_blank_values=True, strict_parsing=True)
    require(all(len(v) == 1 for v in q.values()), "single values")
    require(q.get("service.name", [""])[0], "service.name")
    require(q.get("host.name", [""])[0], "host.name")
    _, plain, _ = judge_pprof(body)
    # Its time is the end.
    plain = [x._replace(time=x.time - x.duration) for x in plain]
    return Taken(q["service.name"][0], q.get("container.id", [""])[0], q["host.name"][0], plain)


def otel_pprof(query, headers, body):
    require(not query and "Content-Encoding" not in headers, "plain pprof")
    p, plain, _ = judge_pprof(body)
    services = {dict(labels).get("service.name") for x in plain for _, labels in x.samples}
    require(len(services) == 1 and None not in services, "service.name is in each sample")
    return Taken(services.pop(), "", "", plain)


def series_labels(pairs, most):
    labels = dict(pairs)
    require(len(labels) == len(pairs) <= most, "labels of a series")
    require(all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", k) and v for k, v in pairs), "legal labels")
    require(re.fullmatch("[a-zA-Z_:][a-zA-Z0-9_:]*", labels.get("__name__", "")), "__name__")
    require(labels.get("service_name"), "service_name")
    return labels


def series_plain(labels, plain):
    default = {"cpu": "process_cpu"}.get(plain[-1].type, plain[-1].type)
    require(labels["__name__"] == default, "the name is the type's, on-CPU time process_cpu")
    return Taken(labels["service_name"], "", "", plain)


def pyroscope(query, headers, body):
    require(headers.get("Content-Type") == "application/proto", "Connect unary")
    require(headers.get("Connect-Protocol-Version", "1") == "1", "Connect version")
    m = decode(PUSH, body)
    require(len(m.series) == 1 and len(m.series[0].samples) == 1, "one profile")
    labels = series_labels([(l.name, l.value) for l in m.series[0].labels], 30)
    require(labels.get("__delta__") == "false", "__delta__")
    require(re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", m.series[0].samples[0].ID), "a UUID")
    p, plain, size = judge_pprof(m.series[0].samples[0].raw_profile)
    require(size <= 4 << 20 and len(p.sample) <= 16000, "4 MiB and 16000 samples")
    require(max(map(len, p.string_table)) <= 65535, "text length")
    require(all(len(s.location_id) <= 1000 for s in p.sample), "depth")
    age = time.time() - p.time_nanos / 1e9
    require(-600 < age < 3600 or os.environ.get("FLEET_ANY_TIME"), "between an hour ago and now")
    split = {k for x in plain for _, ls in x.samples for k, v in ls if isinstance(v, str)}
    require(not split & {"thread.name", "thread.state", "wait", "process.command_line", "lock.address"},
            "few series")
    return series_plain(labels, plain)


def parca(query, headers, body):
    require(headers.get("Content-Type") == "application/json", "JSON")
    m = json.loads(body)
    require(set(m) == {"series", "normalized"} and m["normalized"] is True, "normalized addresses")
    require(len(m["series"]) == 1 and set(m["series"][0]) == {"labels", "samples"}, "one series")
    labels = [(l["name"], l["value"]) for l in m["series"][0]["labels"]["labels"]]
    require(len(m["series"][0]["samples"]) == 1, "one profile")
    raw = base64.b64decode(m["series"][0]["samples"][0]["rawProfile"], validate=True)
    return series_plain(series_labels(labels, 30), judge_pprof(raw)[1])


# --- OpenTelemetry; rules of sig-profiling's profcheck and of the .proto's text


def zero(m):
    return m.ByteSize() == 0


def otlp_dictionary(d):
    for name in ("mapping", "location", "function", "link", "attribute", "stack"):
        table = getattr(d, name + "_table")
        require(table and zero(table[0]), "element 0 of each table is zero")
        require(not any(zero(e) for e in table[1:]), "and no other")
    require(d.string_table and d.string_table[0] == "", "text 0 is empty")
    for table in (d.string_table, [s.SerializeToString() for s in d.stack_table],
                  [a.SerializeToString() for a in d.attribute_table],
                  [l.SerializeToString() for l in d.link_table]):
        require(len(set(table)) == len(table), "nothing twice")


def otlp_indices(d, profiles):
    n = {k: len(getattr(d, k + "_table"))
         for k in ("mapping", "location", "function", "link", "attribute", "stack", "string")}
    used = {
        "string": [m.filename_strindex for m in d.mapping_table] + [a.key_strindex for a in d.attribute_table] +
        [x for f in d.function_table for x in (f.name_strindex, f.system_name_strindex, f.filename_strindex)],
        "mapping": [l.mapping_index for l in d.location_table],
        "function": [i.function_index for l in d.location_table for i in l.lines],
        "location": [i for s in d.stack_table for i in s.location_indices],
        "attribute": [i for t in (d.mapping_table, d.location_table) for e in t for i in e.attribute_indices],
        "stack": [], "link": [],
    }
    for p in profiles:
        used["attribute"] += list(p.attribute_indices)
        used["string"] += [p.sample_type.type_strindex, p.sample_type.unit_strindex,
                           p.period_type.type_strindex, p.period_type.unit_strindex]
        for s in p.samples:
            used["attribute"] += list(s.attribute_indices)
            used["stack"].append(s.stack_index)
            used["link"].append(s.link_index)
    for k, places in used.items():
        require(all(0 <= i < n[k] for i in places), k + " indices are in the table")
        # In a part of a profile, its first mapping, which names the program, may be used by no other.
        require(set(range(2 if k == "mapping" else 1, n[k])) <= set(places), "each %s is of use" % k)
    require(all(i > 0 for s in d.stack_table for i in s.location_indices), "a stack has frames")


def value(v):
    kind = v.WhichOneof("value")
    require(kind in ("string_value", "int_value", "array_value"), "attribute values are plain (Parca)")
    if kind == "array_value":
        return tuple(value(x) for x in v.array_value.values)
    return getattr(v, kind)


def attributes(d, indices):
    out = {}
    for i in indices:
        a = d.attribute_table[i]
        key = d.string_table[a.key_strindex]
        require(key and key not in out, "one value per attribute")
        out[key] = value(a.value)
    return out


def otlp_frame(d, i):
    l = d.location_table[i]
    names = tuple((d.string_table[d.function_table[f.function_index].name_strindex], f.line) for f in l.lines)
    m = d.mapping_table[l.mapping_index]
    types = attributes(d, l.attribute_indices)
    require(types.get("profile.frame.type") in (None, "kernel", "native"), "frame types")
    path = d.string_table[m.filename_strindex]
    require((path == "[kernel.kallsyms]") == (types.get("profile.frame.type") == "kernel"), "kernel frames")
    for key, v in attributes(d, m.attribute_indices).items():
        require(key == "process.executable.build_id.gnu" and re.fullmatch("[0-9a-f]+", v), "build ids")
    return names, path, l.address


def otlp_profile(d, p):
    require(p.HasField("sample_type"), "a type in each profile")
    kind = d.string_table[p.sample_type.type_strindex], d.string_table[p.sample_type.unit_strindex]
    require(all(kind), "a type has a name and a unit")
    if kind[0] == "off_cpu":
        require(not p.HasField("period_type") and not p.period, "off_cpu has no period (Pyroscope)")
    else:
        require(p.HasField("period_type") and p.period > 0, "a period (Pyroscope names series by it)")
    require(len(p.profile_id) == 16 and any(p.profile_id), "a profile id")
    require(p.time_unix_nano and p.duration_nano, "a time")
    samples = collections.Counter()
    for s in p.samples:
        require(len(s.values) == 1 and not s.timestamps_unix_nano, "one value and no timestamps")
        require(s.values[0] > 0, "a value")
        labels = attributes(d, s.attribute_indices)
        require("host" not in labels and "container" not in labels, "the resource has these")
        if s.link_index:
            link = d.link_table[s.link_index]
            require(len(link.trace_id) == 16 and any(link.trace_id), "a trace's id")
            require(len(link.span_id) == 8 and any(link.span_id), "a span's id")
            require("trace_id" not in labels and "span_id" not in labels, "the link has these")
            labels.update(trace_id=link.trace_id.hex(), span_id=link.span_id.hex())
        stack = tuple(otlp_frame(d, i) for i in d.stack_table[s.stack_index].location_indices)
        samples[(stack, tuple(sorted(labels.items())))] += s.values[0]
    comments = attributes(d, p.attribute_indices).get("pprof.profile.comment", ())
    return Plain(*kind, p.period, p.time_unix_nano, p.duration_nano, samples, comments)


def otlp_message(body):
    m = decode(EXPORT, body)
    require(len(m.resource_profiles) == 1, "one resource")
    r = m.resource_profiles[0]
    resource = {a.key: value(a.value) for a in r.resource.attributes}
    require(len(resource) == len(r.resource.attributes), "one value per attribute")
    require(resource.get("service.name") and resource.get("host.name"), "service.name and host.name")
    require(len(r.scope_profiles) == 1 and r.scope_profiles[0].scope.name == "ebpfprofiler", "our scope")
    profiles = r.scope_profiles[0].profiles
    ids = [p.profile_id for p in profiles]
    require(len(set(ids)) == len(ids), "ids are its own")
    otlp_dictionary(m.dictionary)
    otlp_indices(m.dictionary, profiles)
    return Taken(resource["service.name"], resource.get("container.id", ""), resource["host.name"],
                 [otlp_profile(m.dictionary, p) for p in profiles])


def otlp(query, headers, body):
    require(headers.get("Content-Type") == "application/x-protobuf", "protobuf")
    require(headers.get("Content-Encoding") == "gzip", "gzip")
    return otlp_message(gzip.decompress(body))


ROUTES = {
    "/v1/profiles": coroot,
    "/v1/pprof": otel_pprof,
    "/push.v1.PusherService/Push": pyroscope,
    "/api/profiles/writeraw": parca,
    "/v1development/profiles": otlp,
}


def judge(path, headers, body):
    route, _, query = path.partition("?")
    require(route in ROUTES, "known route")
    return ROUTES[route](query, headers, body)


def show(taken):
    """Lines that are equal when what was taken is."""
    print("service", taken.service, "container", taken.container or "-", "host", taken.host or "-")
    for p in taken.profiles:
        print("type", p.type, p.unit, "period", p.period, "time", p.time, "duration", p.duration)
        for c in p.comments:
            print("comment", c)
        for (stack, labels), v in sorted(p.samples.items(), key=repr):
            frames = ";".join("%s@%s+%x" % ("|".join("%s:%d" % n for n in names), path, address)
                              for names, path, address in stack)
            print(v, frames, " ".join("%s=%s" % l for l in labels))


def main():
    headers = {
        "pprof": ("/v1/profiles", {"Content-Type": "application/octet-stream"}),
        "pyroscope": ("/push.v1.PusherService/Push", {"Content-Type": "application/proto"}),
        "parca": ("/api/profiles/writeraw", {"Content-Type": "application/json"}),
        "otlp": ("/v1development/profiles", {"Content-Type": "application/x-protobuf",
                                             "Content-Encoding": "gzip"}),
    }
    for path in sys.argv[2:]:
        with open(path, "rb") as f:
            body = f.read()
        if sys.argv[1] == "raw":
            show(Taken("-", "", "", judge_pprof(body)[1]))
        else:
            route, head = headers[sys.argv[1]]
            show(judge(route, head, body))


if __name__ == "__main__":
    try:
        main()
    except Broken as e:
        print("broken:", e)
        sys.exit(1)
