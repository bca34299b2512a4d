#!/usr/bin/env python3
"""A server that accepts profiles: PORT DIR; body to DIR/N-SERVICE.pb.gz, query beside it."""
import http.server
import sys
import urllib.parse

PORT, DIR = int(sys.argv[1]), sys.argv[2]
count = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global count
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        good = url.path == "/v1/profiles" and "service.name" in query
        if good:
            count += 1
            name = "%s/%06d-%s" % (DIR, count, query["service.name"][0].replace("/", "_"))
            open(name + ".query", "w").write(url.query + "\n")
            open(name + ".pb.gz", "wb").write(body)
        self.send_response(200 if good else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
