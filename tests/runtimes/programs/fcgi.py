#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests, runtimes: asks a FastCGI server, such as php-fpm, for a script.

    fcgi.py SOCKET SCRIPT [QUERY]   prints the answer's body as it comes, until the server is done

fcgi.py /tmp/fpm.sock "$PWD/park.php" "w=spin&kinds=generator,closure" keeps a worker where it parks.
"""
import socket
import struct
import sys

BEGIN, END, PARAMS, STDIN, STDOUT, STDERR = 1, 3, 4, 5, 6, 7


def record(kind, content):
    return struct.pack('>BBHHBB', 1, kind, 1, len(content), 0, 0) + content


def pair(name, value):
    name, value = name.encode(), value.encode()
    sizes = b''.join(struct.pack('>I', len(x) | 1 << 31) for x in (name, value))
    return sizes + name + value


def receive(sock, size):
    data = b''
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def body(sock, out):
    """Copies what the script prints, without the answer's head."""
    head = b''
    while True:
        start = receive(sock, 8)
        if not start:
            return
        _, kind, _, size, padding, _ = struct.unpack('>BBHHBB', start)
        content = receive(sock, size + padding)
        if kind == END or content is None:
            return
        content = content[:size]
        if kind == STDERR:
            sys.stderr.buffer.write(content)
        elif kind == STDOUT:
            if head is not None:
                head += content
                if b'\r\n\r\n' not in head:
                    continue
                content, head = head.split(b'\r\n\r\n', 1)[1], None
            out.write(content)
            out.flush()


def main():
    path, script = sys.argv[1:3]
    query = sys.argv[3] if len(sys.argv) > 3 else ''
    uri = '/' + script.rsplit('/', 1)[-1] + ('?' + query if query else '')
    params = {'SCRIPT_FILENAME': script, 'SCRIPT_NAME': uri.split('?')[0], 'REQUEST_URI': uri,
              'QUERY_STRING': query, 'REQUEST_METHOD': 'GET', 'SERVER_PROTOCOL': 'HTTP/1.1',
              'GATEWAY_INTERFACE': 'CGI/1.1', 'SERVER_NAME': 'localhost'}
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.sendall(record(BEGIN, struct.pack('>HB5x', 1, 0)) +
                 record(PARAMS, b''.join(pair(k, v) for k, v in params.items())) +
                 record(PARAMS, b'') + record(STDIN, b''))
    body(sock, sys.stdout.buffer)


main()
