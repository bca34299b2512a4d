#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fleet server for tests: takes profiles in every protocol, and misbehaves on request.

    server.py DIR [--port N] [--cert FILE --key FILE [--ca FILE]] [--judge] [--grpc]

Prints "port N" when it listens on 127.0.0.1. With --judge each profile has to keep the rules of
fleet/judge.py; else it is answered with 400 and the rule that it breaks is a line in DIR/broken. With
--grpc it is a gRPC server, by the grpc library, for OpenTelemetry's profiles. --ca: clients need a
certificate. How it answers is one line in DIR/mode, read anew for each POST of a profile; a POST to
/control with such a line as its body writes that file:

    204                     a status (any), with these behind it:
        retry_after=VALUE   the header's value, _ for a blank
        over=N              only for bodies of more than N bytes; others are taken
        then=STATUS         after the first that is taken so
        type=TYPE           Content-Type
        reply=HEX           body of the reply
    hang                    takes the profile, never answers
    silent                  takes the connection, reads nothing, never answers
    slow                    status 200, then one byte of the reply a second
    drip                    one byte of the head of the reply a second
    cut                     status 200, closes in the middle of the reply
    half                    closes in the middle of the status line
    drop                    takes the profile, closes without an answer
    reset                   takes the profile, resets the connection
    huge                    status 200 and a reply of 1 GB
    headers                 status 200 and headers without end
    redirect URL            307 to URL
    grpc CODE [MESSAGE]     a gRPC status (with --grpc); over=N may stand before, and
                            retry=SECONDS before MESSAGE
    once MODE...            MODE for one profile, 200 from then on

Every accepted profile becomes DIR/NNNNNN.body, DIR/NNNNNN.query (raw), DIR/NNNNNN.headers, and
DIR/NNNNNN.path; every attempt, whatever its end, is one line "TIME STATUS-OR-MODE BYTES-OF-REPLY
QUERY" in DIR/attempts. "fetched" in there: somebody followed a redirect to us.
"""
import argparse
import http.server
import os
import socket
import socketserver
import struct
import sys
import threading
import time

lock = threading.Lock()

# What each of them answers when all is well: status, Content-Type, body.
ROUTES = {
    "/v1/profiles": (200, "text/plain", b"ok\n"),
    "/v1/pprof": (204, "", b""),
    "/push.v1.PusherService/Push": (200, "application/proto", b""),
    "/api/profiles/writeraw": (200, "application/json", b"{}"),
    "/v1development/profiles": (200, "application/x-protobuf", b""),
}


def read_mode(directory):
    path = os.path.join(directory, "mode")
    with lock:
        try:
            with open(path, encoding="utf-8") as f:
                words = f.read().split() or ["200"]
        except FileNotFoundError:
            words = ["200"]
        if words[0] == "once":
            write_mode(directory, "200")
            words = words[1:]
    return words


def note(server, what, sent, query):
    with lock, open(os.path.join(server.dir, "attempts"), "a", encoding="utf-8") as f:
        f.write(f"{time.monotonic():.4f} {what} {sent} {query or '-'}\n")


def record(server, path, headers, body):
    with lock:
        base = os.path.join(server.dir, f"{server.accepted:06d}")
        server.accepted += 1
    route, _, query = path.partition("?")
    for end, data in ((".query", query.encode()), (".path", route.encode()),
                      (".headers", headers.encode()), (".body", body)):
        with open(base + end + ".part", "wb") as f:
            f.write(data)
        os.rename(base + end + ".part", base + end)


def broken(server, path, rule):
    with lock, open(os.path.join(server.dir, "broken"), "a", encoding="utf-8") as f:
        f.write(f"{path.partition('?')[0]}: {rule}\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def note(self, what, sent=0):
        note(self.server, what, sent, self.path.partition("?")[2])

    def record(self, body):
        record(self.server, self.path, str(self.headers), body)

    def do_GET(self):
        self.note("fetched")
        self.answer(200, b"")

    def do_POST(self):
        if self.path.startswith("http://"):  # as a proxy: the path behind the host
            self.path = "/" + self.path.split("/", 3)[3]
        route = self.path.partition("?")[0]
        if route == "/control":
            write_mode(self.server.dir, self.read_body().decode())
            self.answer(204, b"")
            return
        if route not in ROUTES:
            self.note("fetched" if route == "/fetched" else "404")
            self.read_body()
            self.answer(404, b"no such route\n")
            return
        words = read_mode(self.server.dir)
        if words[0] == "silent":
            self.note("silent")
            self.wait_for_close()
            return
        body = self.read_body()
        if self.server.judge:
            try:
                self.server.judge.judge(self.path, self.headers, body)
            except Exception as e:
                broken(self.server, self.path, e)
                words = ["400"]
        if words[0].isdigit():
            self.status(int(words[0]), words[1:], body)
        else:
            getattr(self, "mode_" + words[0])(words[1:], body)

    def read_body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status, reply, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        if status != 204:
            self.wfile.write(reply)

    def status(self, status, args, body):
        args = dict(a.partition("=")[::2] for a in args)
        if len(body) <= int(args.get("over", -1)):
            if "then" in args:
                write_mode(self.server.dir, args["then"])
            status, args = 200, {}
        headers = []
        reply, kind = f"answer {status}\x1b[31m\n".encode(), "text/plain"
        if status == 200:
            status, kind, reply = ROUTES[self.path.partition("?")[0]]
        kind = args.get("type", kind)
        if "reply" in args:
            reply = bytes.fromhex(args["reply"])
        if kind:
            headers.append(("Content-Type", kind))
        if "retry_after" in args:
            headers.append(("Retry-After", args["retry_after"].replace("_", " ")))
        if 200 <= status < 300 and not kind.startswith("text/html"):
            self.record(body)
        self.note(status)
        self.answer(status, reply, headers)

    def mode_redirect(self, args, body):
        self.note("redirect")
        self.answer(307, b"", [("Location", args[0])])

    def mode_hang(self, args, body):
        self.note("hang")
        self.wait_for_close()

    def mode_drop(self, args, body):
        self.note("drop")
        self.close_connection = True

    def mode_reset(self, args, body):
        self.note("reset")
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def mode_half(self, args, body):
        self.note("half")
        self.wfile.write(b"HTTP/1.1 2")
        self.close_connection = True

    def mode_drip(self, args, body):
        self.note("drip")
        for c in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1000:
            self.wfile.write(bytes([c]))
            if c == ord("\n"):  # it has said yes
                self.record(body)
            time.sleep(1)

    def mode_slow(self, args, body):
        self.record(body)
        self.note("slow")
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b"x")
            time.sleep(1)

    def mode_cut(self, args, body):
        self.record(body)
        self.note("cut")
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)
        self.close_connection = True

    def pour(self, what, piece, total):
        sent = 0
        try:
            while sent < total:
                self.wfile.write(piece)
                sent += len(piece)
        except OSError:
            pass
        self.note(what + "-end", sent)
        self.close_connection = True

    def mode_huge(self, args, body):
        self.record(body)
        self.note("huge")
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 30))
        self.end_headers()
        self.pour("huge", b"x" * 65536, 1 << 30)

    def mode_headers(self, args, body):
        self.record(body)
        self.note("headers")
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        self.pour("headers", b"X-More: " + b"x" * 1000 + b"\r\n", 1 << 30)

    def wait_for_close(self):
        self.close_connection = True
        self.connection.settimeout(60)
        try:
            while self.connection.recv(65536):
                pass
        except OSError:
            pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        # Not HTTPServer's, which asks the name service who 127.0.0.1 is.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address

    def handle_error(self, request, client_address):
        pass  # clients that give up are what is being tested


def write_mode(directory, text):
    path = os.path.join(directory, "mode")
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".part", path)


def retry_info(code, seconds):
    """A google.rpc.Status with a RetryInfo; Debian has the parts of it, but not these two."""
    from google.protobuf import any_pb2, duration_pb2

    delay = duration_pb2.Duration()
    delay.FromNanoseconds(round(seconds * 1e9))
    delay = delay.SerializeToString()
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo",
                         value=bytes([1 << 3 | 2, len(delay)]) + delay).SerializeToString()
    return bytes([1 << 3, code, 3 << 3 | 2, len(detail)]) + detail


def serve_grpc(args, server):
    from concurrent.futures import ThreadPoolExecutor

    import grpc  # slow to load, and seldom needed

    codes = {c.value[0]: c for c in grpc.StatusCode}

    def export(body, context):
        words = read_mode(args.dir)
        over = int(words.pop(1)[5:]) if len(words) > 1 and words[1].startswith("over=") else -1
        headers = dict(context.invocation_metadata())
        if server.judge:
            try:
                server.judge.otlp_message(body)
            except Exception as e:
                broken(server, "grpc", e)
                words, over = ["grpc", "3", "broken"], -1
        if words[0] == "hang":
            note(server, "hang", 0, "")
            time.sleep(60)
        if words[0] == "grpc" and len(body) > over:
            note(server, "grpc" + words[1], 0, "")
            if len(words) > 2 and words[2].startswith("retry="):
                context.set_trailing_metadata((("grpc-status-details-bin",
                                                retry_info(int(words[1]), float(words.pop(2)[6:]))),))
            context.abort(codes[int(words[1])], " ".join(words[2:]))
        record(server, "/grpc", "".join(f"{k}: {v}\n" for k, v in headers.items()), body)
        note(server, "200", 0, "")
        for w in words[1:]:
            if w.startswith("reply="):
                return bytes.fromhex(w[6:])
        return b""

    service = "opentelemetry.proto.collector.profiles.v1development.ProfilesService"
    g = grpc.server(ThreadPoolExecutor(8))
    g.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        service, {"Export": grpc.unary_unary_rpc_method_handler(export)}),))
    where = f"127.0.0.1:{args.port}"
    if args.cert:
        with open(args.key, "rb") as key, open(args.cert, "rb") as cert:
            port = g.add_secure_port(where, grpc.ssl_server_credentials([(key.read(), cert.read())]))
    else:
        port = g.add_insecure_port(where)
    g.start()
    server.grpc = g  # it ends with its last reference
    return port


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--cert")
    p.add_argument("--key")
    p.add_argument("--ca")
    p.add_argument("--judge", action="store_true")
    p.add_argument("--grpc", action="store_true")
    args = p.parse_args()
    judge = None
    if args.judge:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fleet"))
        import judge
    accepted = sum(n.endswith(".body") for n in os.listdir(args.dir))
    if args.grpc:
        server = argparse.Namespace()
    else:
        server = Server(("127.0.0.1", args.port), Handler)
    server.dir, server.accepted, server.judge = args.dir, accepted, judge
    if args.grpc:
        port = serve_grpc(args, server)
    else:
        port = server.server_address[1]
    if args.cert and not args.grpc:
        import ssl  # slow to load, and seldom needed

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.cert, args.key)
        if args.ca:
            context.load_verify_locations(args.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    os.write(1, f"port {port}\n".encode())  # at once: who started us reads once
    # Ends with the test that started it, however that ends.
    if not args.grpc:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
    os._exit(0)  # a gRPC server waits for those that hang


if __name__ == "__main__":
    main()
