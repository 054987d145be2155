# SPDX-License-Identifier: Apache-2.0
"""Many connections of one hostile process, and the end of each."""
import collections
import errno
import select
import socket
import struct
import time

IP_BIND_ADDRESS_NO_PORT = 24
EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET


def dial(port, source="127.0.0.1"):
    """Begins to connect. With different local addresses there are enough ports for all
    connections."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((source, 0))
    failure = connection.connect_ex(("127.0.0.1", port))
    if failure not in (0, errno.EINPROGRESS):
        connection.close()
        raise OSError(failure, "connect")
    return connection


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Swarm:
    """Keeps `count` connections open that send `opening` and then, every `pause_s`, `drip`. Counts
    the connections that the server ends, by the status of its answer, and replaces them while
    `total` allows it. Opens at most `rate` connections a second, so that the result depends on the
    server and not on the speed at which the kernel creates sockets."""

    def __init__(self, port, count, opening, drip=b"", pause_s=1.0, total=None,
                 source="127.0.0.1", ends_its_side=False, rate=1000):
        self.port, self.count, self.opening, self.drip = port, count, opening, drip
        self.pause_s, self.source, self.ends_its_side = pause_s, source, ends_its_side
        self.rate, self.begun_at = rate, time.monotonic()
        self.left = total if total is not None else 1 << 60
        self.epoll = select.epoll()
        self.open = {}
        self.opened = set()  # those that have sent `opening`
        self.counts = collections.Counter()

    def run(self, seconds):
        end = time.monotonic() + seconds
        next_drip = time.monotonic() + self.pause_s
        patience = end + 2 * seconds if self.left < 1 << 60 else end  # a limited total gets more time
        while (now := time.monotonic()) < end or (self.left and now < patience):
            self._connect()
            for descriptor, events in self.epoll.poll(0.01, 4096):
                self._serve(descriptor, events)
            if self.drip and now >= next_drip:
                next_drip = now + self.pause_s
                for descriptor in self.opened:
                    self._say(descriptor, self.drip)
        self.counts["still open"] += len(self.open)
        for connection in self.open.values():
            connection.close()
        return self.counts

    def _connect(self):
        due = int((time.monotonic() - self.begun_at) * self.rate) - self.counts["tried"]
        for _ in range(min(due, self.count - len(self.open), self.left)):
            self.left -= 1
            self.counts["tried"] += 1
            try:
                connection = dial(self.port, self.source)
            except OSError as failure:
                self.counts[errno.errorcode.get(failure.errno, "failed")] += 1
                continue
            self.open[connection.fileno()] = connection
            self.epoll.register(connection.fileno(), EVENTS)

    def _say(self, descriptor, text):
        try:
            self.open[descriptor].send(text)
        except OSError:
            pass  # an event reports its end

    def _serve(self, descriptor, events):
        connection = self.open.get(descriptor)
        if connection is None:
            return
        if descriptor not in self.opened and not events & (select.EPOLLIN | select.EPOLLHUP):
            self.opened.add(descriptor)
            if self.opening:
                self._say(descriptor, self.opening)
            if self.ends_its_side:
                connection.shutdown(socket.SHUT_WR)
            return
        try:
            answer = connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            self._end(descriptor, "reset")
            return
        if not answer:
            self._end(descriptor, "closed")
        elif b"\r\nconnection: close" in answer:
            self._end(descriptor, answer[9:12].decode())
        else:
            self.counts[answer[9:12].decode()] += 1

    def _end(self, descriptor, outcome):
        self.counts[outcome] += 1
        self.opened.discard(descriptor)
        self.open.pop(descriptor).close()


class Asker:
    """Uses a few connections, each with one request at a time, and sends the next request as soon
    as the answer arrives."""

    def __init__(self, port, count=16):
        self.port, self.connections = port, [None] * count
        self.counts = collections.Counter()
        self.last_body = b""

    def ask(self, requests):
        """Sends as many requests at once as there are connections. Returns the statuses."""
        outcomes = []
        for start in range(0, len(requests), len(self.connections)):
            batch = requests[start:start + len(self.connections)]
            for i, request in enumerate(batch):
                self._send(i, request)
            outcomes += [self._receive(i) for i in range(len(batch))]
        self.counts.update(outcomes)
        return outcomes

    def _send(self, i, request):
        try:
            if self.connections[i] is None:
                self.connections[i] = socket.create_connection(("127.0.0.1", self.port), timeout=30)
            self.connections[i].sendall(request)
        except OSError:
            # The server may have refused the request before all of it was sent. The answer shows
            # this.
            pass

    def _receive(self, i):
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = self.connections[i].recv(1 << 16)
                if not more:
                    raise ConnectionError
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            while len(body) < length:
                body += self.connections[i].recv(1 << 16)
            self.last_body = body
            if b"\r\nconnection: close" in head.lower():
                self._drop(i)
            return head[9:12].decode()
        except (OSError, AttributeError):
            self._drop(i)
            return "closed"

    def _drop(self, i):
        if self.connections[i] is not None:
            self.connections[i].close()
        self.connections[i] = None


def post(path, body, headers=""):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
            .encode("latin-1") + body)


def get(path, method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1")
