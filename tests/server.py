#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A profile server for tests that misbehaves on request.

    server.py DIR [--port N] [--cert FILE --key FILE]

Prints "port N" when it listens on 127.0.0.1. How it answers is one line in DIR/mode, read anew for
each POST of a profile; a POST to /control with such a line as its body writes that file:

    204                     a status (any), with "retry_after=VALUE" as the header's value
    hang                    takes the profile, never answers
    silent                  takes the connection, reads nothing, never answers
    slow                    status 200, then one byte of the reply a second
    cut                     status 200, closes in the middle of the reply
    drop                    takes the profile, closes without an answer
    huge                    status 200 and a reply of 1 GB
    headers                 status 200 and headers without end
    redirect URL            307 to URL
    once MODE...            MODE for one profile, 200 from then on

Every accepted profile becomes DIR/NNNNNN.body, DIR/NNNNNN.query (raw), DIR/NNNNNN.headers; every
attempt, whatever its end, is one line "TIME STATUS-OR-MODE BYTES-OF-REPLY QUERY" in DIR/attempts.
"fetched" in there: somebody followed a redirect to us.
"""
import argparse
import http.server
import os
import socketserver
import sys
import threading
import time

lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def note(self, what, sent=0):
        with lock, open(os.path.join(self.server.dir, "attempts"), "a", encoding="utf-8") as f:
            f.write(f"{time.monotonic():.4f} {what} {sent} {self.path.partition('?')[2]}\n")

    def mode(self):
        path = os.path.join(self.server.dir, "mode")
        with lock:
            try:
                with open(path, encoding="utf-8") as f:
                    words = f.read().split() or ["200"]
            except FileNotFoundError:
                words = ["200"]
            if words[0] == "once":
                write_mode(self.server.dir, "200")
                words = words[1:]
        return words

    def record(self, body):
        with lock:
            base = os.path.join(self.server.dir, f"{self.server.accepted:06d}")
            self.server.accepted += 1
        for end, data in (
            (".query", self.path.partition("?")[2].encode()),
            (".headers", str(self.headers).encode()),
            (".body", body),
        ):
            with open(base + end + ".part", "wb") as f:
                f.write(data)
            os.rename(base + end + ".part", base + end)

    def do_GET(self):
        self.note("fetched")
        self.answer(200, b"")

    def do_POST(self):
        route = self.path.partition("?")[0]
        if route == "/control":
            write_mode(self.server.dir, self.read_body().decode())
            self.answer(204, b"")
            return
        if route != "/v1/profiles":
            self.note("fetched" if route == "/fetched" else "404")
            self.read_body()
            self.answer(404, b"no such route\n")
            return
        words = self.mode()
        if words[0] == "silent":
            self.note("silent")
            self.wait_for_close()
            return
        body = self.read_body()
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
        headers = []
        for arg in args:
            name, _, value = arg.partition("=")
            if name == "retry_after":
                headers.append(("Retry-After", value.replace("_", " ")))
        if 200 <= status < 300:
            self.record(body)
        self.note(status)
        self.answer(status, f"answer {status}\x1b[31m\n".encode(), headers)

    def mode_redirect(self, args, body):
        self.note("redirect")
        self.answer(307, b"", [("Location", args[0])])

    def mode_hang(self, args, body):
        self.note("hang")
        self.wait_for_close()

    def mode_drop(self, args, body):
        self.note("drop")
        self.close_connection = True

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


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--cert")
    p.add_argument("--key")
    args = p.parse_args()
    server = Server(("127.0.0.1", args.port), Handler)
    server.dir = args.dir
    server.accepted = sum(n.endswith(".body") for n in os.listdir(args.dir))
    if args.cert:
        import ssl  # slow to load, and seldom needed

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.cert, args.key)
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    print(f"port {server.server_address[1]}", flush=True)
    # Ends with the test that started it, however that ends.
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
