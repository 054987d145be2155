# SPDX-License-Identifier: Apache-2.0
"""Reads server-sent events as a client does, over a plain connection of server.py."""
import json
import socket
import time

from server import LIMIT_S


class Stream:
    """One stream, open from the start."""

    def __init__(self, connection, target="/events", last_id=None):
        """`target` None: the connection has asked already."""
        self.connection = connection
        headers = {"Last-Event-ID": last_id} if last_id else {}
        if target:
            connection.send("GET", target, headers=headers)
        self.answer = connection.receive()
        self.last_id = last_id

    def next(self, limit_s=LIMIT_S):
        """Returns (name, data) of the next event, or None if none arrives in time or the stream
        ends."""
        end = time.monotonic() + limit_s
        while True:
            block, found, rest = self.connection.pending.partition(b"\n\n")
            if not found:
                self.connection.socket.settimeout(max(0.001, end - time.monotonic()))
                try:
                    self.connection._more()
                except (TimeoutError, socket.timeout, ConnectionError):
                    return None
                continue
            self.connection.pending = rest
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
            if "data" in fields:
                self.last_id = fields.get("id", self.last_id)
                return fields["event"], json.loads(fields["data"])

    def until(self, condition, limit_s=LIMIT_S):
        """Returns the first data for which the condition is true, and the number of events until
        then."""
        end = time.monotonic() + limit_s
        for count in range(1, 1000):
            event = self.next(max(0.001, end - time.monotonic()))
            assert event, "the event never came"
            if condition(event[1]):
                return event[1], count
        raise AssertionError("a thousand events, and none of that kind")

    def is_closed(self, limit_s=LIMIT_S):
        self.connection.socket.settimeout(limit_s)
        try:
            while self.connection.socket.recv(1 << 16):
                pass
        except (TimeoutError, socket.timeout):
            return False
        except ConnectionError:
            pass
        return True
