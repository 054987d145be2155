# SPDX-License-Identifier: Apache-2.0
"""A simulated pipeline, and its traces in the formats of Kineto and Chakra. The simulation is the
oracle of test_graph_import.py: it knows nothing of graphs. Each rank runs all forwards, then all
backwards. A message takes its time once both sides are ready."""
import json
import struct

KERNELS = 4  # of one instruction
CHAKRA_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}


class Pipeline:
    """`stretch(rank, kind, microbatch)` multiplies the time of an instruction. All times are in
    microseconds."""

    def __init__(self, forward, backward, messages, message=3000, reduce=8000,
                 stretch=lambda rank, kind, microbatch: 1):
        self.ranks, self.microbatches = len(forward), messages
        self.message, self.reduce = message, reduce
        self.times = {"f": forward, "b": backward}
        self.stretch = stretch
        self.work = {}  # (rank, kind, microbatch): start, end
        self.sent = {}  # (sender, receiver, kind, microbatch): sender ready, receiver ready, end
        self._run()

    def neighbours(self, rank, kind):
        """Returns from where an instruction receives, and where it sends. None: nobody."""
        before, after = (rank - 1, rank + 1) if kind == "f" else (rank + 1, rank - 1)
        return (before if 0 <= before < self.ranks else None,
                after if 0 <= after < self.ranks else None)

    def order(self):
        return [(kind, m) for kind in "fb" for m in range(self.microbatches)]

    def _run(self):
        done = [0] * self.ranks  # number of instructions
        free = [0] * self.ranks
        sender_free = {}
        while any(count < len(self.order()) for count in done):
            for rank in range(self.ranks):
                if done[rank] == len(self.order()):
                    continue
                kind, m = self.order()[done[rank]]
                source, target = self.neighbours(rank, kind)
                start = free[rank]
                if source is not None:
                    if (source, kind, m) not in self.work:
                        continue
                    ready = max(self.work[source, kind, m][1],
                                sender_free.get((source, rank, kind), 0))
                    end = max(ready, free[rank]) + self.message
                    self.sent[source, rank, kind, m] = ready, free[rank], end
                    sender_free[source, rank, kind] = end
                    start = end
                time = self.times[kind][rank] * self.stretch(rank, kind, m)
                self.work[rank, kind, m] = start, start + time
                free[rank] = start + time
                done[rank] += 1
        self.reduce_ready = free
        self.makespan = max(free) + self.reduce

    # ---- Kineto ----------------------------------------------------------------------------------

    def kineto(self, rank, skew=0, shift=0.0):
        """Returns the events of a rank. `skew` is added to its clock, as on another machine."""
        def event(name, stream, start, end, category="kernel", **args):
            return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream,
                    "ts": round(skew + start, 3), "dur": round(end - start, 3),
                    "args": {"device": 0, "stream": stream, "correlation": 1 << 70, **args}}

        events = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
                  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": skew, "dur": 1e9}]
        for (r, kind, m), (start, end) in self.work.items():
            for k in range(KERNELS if r == rank else 0):
                length = (end - start) / KERNELS
                events.append(event(f"gemm_{kind}{m}", 7, start + k * length,
                                    start + (k + 1) * length - (shift if k < KERNELS - 1 else 0)))
        for (source, target, kind, m), (ready, posted, end) in self.sent.items():
            stream = 20 + (kind == "b")
            group = {"Process Group Name": f"pp{kind}", "Group size": self.ranks}
            if rank == source:
                events.append(event("ncclDevKernel_SendRecv(x)", stream, ready, end,
                                    **group, **{"Collective name": "send", "Dst Rank": target}))
            if rank == target:
                events.append(event("ncclDevKernel_SendRecv(x)", stream + 10, posted, end,
                                    **group, **{"Collective name": "recv", "Src Rank": source}))
        events.append(event("ncclDevKernel_AllReduce_Sum_f32", 40, self.reduce_ready[rank],
                            self.makespan, **{"Collective name": "allreduce", "Seq": 5,
                                              "Process Group Name": "0"}))
        return events

    def write_kineto(self, directory, skew=0, shift=0.0):
        """Writes one trace for each rank, with its events out of order. Returns the paths."""
        paths = []
        for rank in range(self.ranks):
            events = self.kineto(rank, rank * skew, shift)
            path = directory / f"trace{rank}.json"
            path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events[::-1],
                                        "distributedInfo": {"rank": rank}, "odd": [[[]]]}))
            paths.append(path)
        return paths

    # ---- Chakra ----------------------------------------------------------------------------------

    def chakra(self, rank):
        """Returns the nodes of a rank: id, name, type, dependencies, duration, attributes."""
        nodes, ids = [], {}

        def node(key, kind, waits, time, **attributes):
            ids[key] = (1 << 63) + 7 * len(nodes)
            nodes.append({"id": ids[key], "name": str(key), "type": kind, "time": time,
                          "waits": [ids[wait] for wait in waits if wait in ids],
                          "attributes": {"is_cpu_op": False, **attributes}})

        before, sent_before = None, {}
        for kind, m in self.order():
            source, target = self.neighbours(rank, kind)
            if source is not None:
                node(("receive", kind, m), "COMM_RECV_NODE", [before], self.message,
                     comm_src=source, comm_dst=rank, comm_tag=10 * m + (kind == "b"))
            time = self.times[kind][rank] * self.stretch(rank, kind, m)
            node((kind, m), "COMP_NODE", [("receive", kind, m), before], round(time))
            before = (kind, m)
            if target is not None:
                node(("send", kind, m), "COMM_SEND_NODE", [before, sent_before.get(kind)],
                     self.message, comm_src=rank, comm_dst=target, comm_tag=10 * m + (kind == "b"))
                sent_before[kind] = ("send", kind, m)
        node("reduce", "COMM_COLL_NODE", [before], self.reduce, comm_type=0, pg_name="0")
        return nodes

    def write_chakra(self, directory, form):
        paths = []
        for rank in range(self.ranks):
            path = directory / f"{form}.{rank}.et"
            path.write_bytes(CHAKRA_WRITERS[form](self.chakra(rank)[::-1]))
            paths.append(path)
        return paths


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    """A field of a message: a number, or bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def attribute(name, value):
    if isinstance(value, str):
        return field(1, name.encode()) + field(29, value.encode())
    if isinstance(value, bool):
        return field(1, name.encode()) + field(27, int(value))
    return field(1, name.encode()) + field(9, value)


def delimited(message):
    return varint(len(message)) + message


def chakra_protobuf(nodes):
    """The messages of et_def.proto, with a field of a later version in each."""
    parts = [delimited(field(1, b"0.0.4"))]
    for node in nodes:
        waits = node["waits"]
        message = field(1, node["id"]) + field(2, node["name"].encode())
        message += field(3, CHAKRA_TYPES[node["type"]]) + field(7, node["time"])
        message += field(6, node["start"]) if "start" in node else b""
        message += b"".join(field(4, wait) for wait in waits[:1])  # one by one
        message += field(5, b"".join(varint(wait) for wait in waits[1:]))  # packed
        message += b"".join(field(10, attribute(*item)) for item in node["attributes"].items())
        message += varint(99 << 3 | 1) + struct.pack("<d", 1.5)
        parts.append(delimited(message))
    return b"".join(parts)


def chakra_json(nodes):
    """What chakra_jsonizer writes."""
    texts = [json.dumps({"version": "0.0.4"}, indent=2)]
    for node in nodes:
        attributes = []
        for name, value in node["attributes"].items():
            kind = {bool: "boolVal", str: "stringVal", int: "int64Val"}[type(value)]
            attributes.append({"name": name, kind: str(value) if kind == "int64Val" else value})
        texts.append(json.dumps({
            "id": str(node["id"]), "name": node["name"], "type": node["type"],
            "durationMicros": str(node["time"]), "startTimeMicros": str(node.get("start", 0)),
            "ctrlDeps": [str(wait) for wait in node["waits"]],
            "attr": attributes, "inputs": {"values": "[]"}}, indent=2))
    return "".join(texts).encode()


def chakra_feeder(nodes):
    """What Chakra's feeder reads as JSON. Its ids are plain numbers."""
    graph = [{"Id": node["id"] - (1 << 63), "Name": node["name"], "runtime": node["time"], "start_time_micros": node.get("start", 0),
              "NodeType": CHAKRA_TYPES[node["type"]],
              "data_deps": [wait - (1 << 63) for wait in node["waits"]], **node["attributes"]}
             for node in nodes]
    return json.dumps({"workload_graph": graph}).encode()


CHAKRA_WRITERS = {"protobuf": chakra_protobuf, "jsonizer": chakra_json, "feeder": chakra_feeder}
