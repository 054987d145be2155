#!/usr/bin/python3
# Checks the includes in src/:
# - A folder includes only folders on a lower floor. FLOORS lists the floors, also those inside the
#   server.
# - Inside a folder of ROOMS, a subfolder includes only itself and the files of the folder. The files
#   of the folder include no subfolder.
# - There is no circle of includes, except between a source and its own header.
# - A header with a source of the same name declares only functions that this source defines.
# - PLACES lists code that only certain files may contain: starts of threads, log lines, libcurl, HTTP
#   requests and databases.
# Each run also adds wrong includes to a temporary copy, and checks that this script finds them.
#
# Usage: floors.py <project root>
import functools
import pathlib
import re
import sys
import tempfile

# A folder may include itself, all folders on lower floors, and include/harpe.
FLOORS = [
    ["base"],
    ["plan", "gpu", "pfo", "rights", "http", "http/client"],
    ["draw", "fleet", "trace", "monitor", "lease"],
    ["power_limit", "client", "server/store", "server/scheduler"],
    ["server/scheduler/perseus", "tune"],
    ["server/engine"],
    ["server/fleet"],
    ["server/lead"],
    ["server/api"],
    ["server"],
    ["world"],
    ["sim", "agent"],
    ["cli"],
]
FLOOR_OF = {folder: level for level, folders in enumerate(FLOORS) for folder in folders}
# Folders with one subfolder for each of several commands.
ROOMS = {"cli"}
# Folders whose subfolders are on their own floor.
WITH_SUBFOLDERS = {"cli", "sim"}
# Code that exists only once: each pattern, the files or folders where it may occur, and what to use
# elsewhere.
PLACES = [
    (re.compile(r"\bpthread_create\("), ["base/wait.c"], "harpe_thread_start"),
    (re.compile(r"\blog(?:\.|->)write\("), ["base/log.c", "http/http_listener.c"],
     "harpe_log_line"),
    (re.compile(r"<curl/"), ["http/client/transport_curl.c"], "http/client/connection.h"),
    (re.compile(r'"http/http'), ["http/", "server/api/", "server/server.c", "agent/"], "server/engine/engine.h"),
    (re.compile(r"<sqlite3\.h>"), ["server/store/", "world/disk.c", "cli/main.c"],
     "server/store/store.h"),
    (re.compile(r"<libpq-fe\.h>"), ["server/store/", "cli/main.c"],
     "server/store/store.h"),
]
# Comments and strings, which are no code.
NO_CODE = re.compile(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
DECLARED = re.compile(r"^(?!typedef\b|static\b)[a-z][\w *\n]*[ *](harpe_\w+)\([^;{}]*?\)[^;{}()]*(?:\(\d, \d\))?;", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def included_path(source_root, file, included):
    """Returns the path in src/ that an #include "..." names: relative to the file, otherwise to
    src/."""
    for start in (file.parent, source_root):
        path = (start / included).resolve()
        if path.is_file() and path.is_relative_to(source_root):
            return path.relative_to(source_root)
    return pathlib.PurePath(included)


@functools.cache
def text_of(file):
    return file.read_text(encoding="utf-8")


@functools.cache
def includes(source_root):
    """Returns every source with its includes: pairs of paths in src/, and the text between the
    quotation marks."""
    return [(file.relative_to(source_root), included_path(source_root, file, match.group(1)), match.group(1))
            for file in sorted(source_root.rglob("*.[ch]")) for match in INCLUDE.finditer(text_of(file))]


def floor_folder(path):
    """The folder of FLOORS that a file belongs to; without one, the folder that it is in."""
    folder = str(path.parent)
    return path.parts[0] if path.parts[0] in WITH_SUBFOLDERS and folder != "." else folder


def wrong_floors(source_root):
    found = []
    for file in sorted(source_root.rglob("*.[ch]")):
        name = file.relative_to(source_root)
        if floor_folder(name) not in FLOOR_OF:
            found.append(f"src/{name}: no floor is known for it; see FLOORS in {__file__}")
    for name, path, text in includes(source_root):
        folder, other = floor_folder(name), floor_folder(path)
        if folder not in FLOOR_OF or other == folder:
            continue
        if other not in FLOOR_OF:
            found.append(f"src/{name}: includes \"{text}\", which is on no floor")
        elif FLOOR_OF[other] >= FLOOR_OF[folder]:
            found.append(f"src/{name}: {folder} may not include {other} (\"{text}\")")
    return found


def wrong_rooms(source_root):
    found = []
    for name, path, text in includes(source_root):
        folder = name.parts[0]
        if folder not in ROOMS or path.parts[0] != folder or len(path.parts) < 3:
            continue
        if name.parent.parts[:2] != path.parent.parts[:2]:
            found.append(f"src/{name}: {name.parent} may not include {path.parent} (\"{text}\")")
    return found


def unit(path):
    """Returns the unit of a file: a source and its header are one unit."""
    return str(path.with_suffix(""))


def circles(source_root):
    """Returns the units that include each other in a circle, one line per circle."""
    after = {}
    for name, path, _ in includes(source_root):
        after.setdefault(unit(name), set())
        if unit(name) != unit(path):
            after[unit(name)].add(unit(path))

    def reached(start):
        seen, left = set(), [start]
        while left:
            for one in after.get(left.pop(), ()):
                if one not in seen:
                    seen.add(one)
                    left.append(one)
        return seen

    reach = {one: reached(one) for one in after}
    found, told = [], set()
    for one in sorted(after):
        if one in told or one not in reach[one]:
            continue
        circle = sorted(other for other in reach[one] if one in reach.get(other, ()))
        told.update(circle)
        found.append(f"src/{circle[0]}: a circle of includes: {', '.join(circle)}")
    return found


def wrong_headers(source_root):
    found = []
    for file in sorted(source_root.rglob("*.h")):
        name = file.relative_to(source_root)
        source = file.with_suffix(".c")
        if not source.is_file():
            continue
        defined = NO_CODE.sub("", text_of(source))
        for function in DECLARED.findall(NO_CODE.sub("", text_of(file))):
            if not re.search(rf"^[a-z][\w *\n]*\(?\b{function}\)?\([^;{{}}]*\) {{", defined, re.MULTILINE):
                found.append(f"src/{name}: {function} is not defined in {source.name}")
    return found


def wrong_places(source_root):
    found = []
    for file in sorted(source_root.rglob("*.[ch]")):
        name, text = str(file.relative_to(source_root)), text_of(file)
        for pattern, places, instead in PLACES:
            match = pattern.search(text)
            allowed = any(name == place or place.endswith("/") and name.startswith(place)
                          for place in places)
            if match and not allowed:
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"src/{name}:{line}: use {instead} instead of {match.group()}")
    return found


def violations(root):
    source_root = (root / "src").resolve()
    return (wrong_floors(source_root) + wrong_rooms(source_root) + circles(source_root) +
            wrong_headers(source_root) + wrong_places(source_root))


PLANTED = {
    "src/base/up.c": '#include "plan/x.h"\n',
    "src/plan/beside.c": '#  include "gpu/x.h"\n',
    "src/plan/relative.c": '#include "../draw/x.h"\n',
    "src/draw/x.h": "",
    "src/draw/down.c": '#include "plan/x.h"\n#include "x.h"\n#include <harpe/plan.h>\n',
    "src/nowhere/x.c": "",
    # The simulation and the program.
    "src/sim/good.c": '#include "plan/x.h"\n#include "sim/other.h"\n#include "server/server.h"\n',
    "src/sim/other.h": "",
    "src/sim/up.c": '#include "cli/command.h"\n',
    "src/client/up.c": '#include "sim/other.h"\n',
    # The HTTP client.
    "src/http/client/connection.h": "",
    "src/client/good.c": '#include "http/client/connection.h"\n',
    "src/pfo/beside.c": '#include "http/client/connection.h"\n',
    # The HTTP server, which knows nothing of jobs.
    "src/http/loop.h": "",
    "src/http/http.h": "",
    "src/http/good.c": '#include "http/loop.h"\n#include "base/x.h"\n',
    "src/http/jobs.c": '#include "server/engine/x.h"\n',
    "src/http/client/of_server.c": '#include "http/loop.h"\n',
    "src/http/of_client.c": '#include "http/client/connection.h"\n',
    # The rooms of the server, each with what it may include and with what is one floor too high.
    "src/server/store/x.h": '#include "http/loop.h"\n',
    "src/server/store/good.c": '#include <sqlite3.h>\n#include <libpq-fe.h>\n',
    "src/server/store/beside.c": '#include "server/scheduler/x.h"\n',
    "src/server/scheduler/x.h": '#include "pfo/models.h"\n',
    "src/server/scheduler/up.c": '#include "server/scheduler/perseus/x.h"\n',
    "src/server/scheduler/relative.c": '#include "perseus/x.h"\n',
    "src/server/scheduler/perseus/x.h": '#include "server/scheduler/x.h"\n',
    "src/server/scheduler/perseus/up.c": '#include "server/engine/x.h"\n',
    "src/server/engine/x.h": '#include "server/store/x.h"\n#include "server/scheduler/x.h"\n',
    "src/server/engine/up.c": '#include "server/lead/x.h"\n',
    "src/server/engine/request.c": '#include "http/http.h"\n',
    "src/server/engine/sqlite.c": "#include <sqlite3.h>\n",
    "src/server/engine/postgres.c": "#include <libpq-fe.h>\n",
    "src/server/lead/x.h": '#include "server/engine/x.h"\n#include "server/store/x.h"\n',
    "src/server/lead/up.c": '#include "server/api/x.h"\n',
    "src/server/api/x.h": '#include "server/lead/x.h"\n#include "http/http.h"\n',
    "src/server/api/up.c": '#include "server/server.h"\n',
    "src/server/server.h": "",
    "src/server/server.c": '#include "server/server.h"\n#include "server/api/x.h"\n',
    "src/server/other/x.c": "",
    "src/server/store/left.h": '#include "server/store/right.h"\n',
    "src/server/store/right.h": '#include "server/store/left.h"\n',
    # Rooms inside a folder.
    "src/cli/command.h": "",
    "src/cli/into_room.c": '#include "cli/plan/x.h"\n',
    "src/cli/plan/x.h": '#include "cli/command.h"\n',
    "src/cli/plan/good.c": '#include "cli/plan/x.h"\n#include "x.h"\n#include "sim/other.h"\n',
    "src/cli/jobs/beside.c": '#include "cli/plan/x.h"\n',
    "src/cli/jobs/relative.c": '#include "../plan/x.h"\n',
    # Circles: of headers, through a source, and no circle.
    "src/gpu/one.h": '#include "gpu/two.h"\n',
    "src/gpu/two.h": '#include "gpu/three.h"\n',
    "src/gpu/three.h": '#include "one.h"\n',
    "src/gpu/outside.c": '#include "gpu/one.h"\n',
    "src/monitor/left.c": '#include "monitor/left.h"\n#include "monitor/right.h"\n',
    "src/monitor/left.h": "",
    "src/monitor/right.h": '#include "monitor/left.h"\n',
    "src/pfo/own.c": '#include "pfo/own.h"\n#include "pfo/lower.h"\n',
    "src/pfo/own.h": '#include "pfo/lower.h"\n',
    "src/pfo/lower.h": "",
    # Headers of one source, and headers without a source of their own.
    "src/base/macro.h": "int harpe_macro(int a);\n",
    "src/base/macro.c": "int(harpe_macro)(int a) {\n}\n",
    "src/gpu/others.h": "/* int harpe_comment(void); */\nint harpe_gpu_others(void);\n",
    "src/gpu/others.c": "/* int harpe_gpu_others(void) {\n} */\n",
    "src/http/http_internal.h": "int harpe_of_several(void);\n",
    "src/server/store/others.h": "int harpe_own_too(void);\nint harpe_other(const char *a,\n                int b);\n",
    "src/server/store/others.c": "int harpe_own_too(void) {\n}\n",
    "src/server/store/other.c": "int harpe_other(const char *a, int b) {\n}\n",
    "src/server/engine/own.h": "bool harpe_own(int a,\n               int b);\ntypedef int harpe_number(int a);\n",
    "src/server/engine/own.c": "bool harpe_own(int a, int b) {\n}\n",
    "src/server/engine/others.h": "struct x *harpe_others(void);\n",
    "src/server/engine/others.c": "static void f(void) {\n    harpe_others();\n}\n",
    # Patterns with a fixed place.
    "src/base/wait.c": "    return pthread_create(thread, NULL, run, user);\n",
    "src/base/log.c": "    log->write(log->user, level, line);\n",
    "src/http/client/transport_curl.c": "#include <curl/curl.h>\n",
    "src/client/thread.c": "    int code = pthread_create(&thread, NULL, run, user);\n",
    "src/client/line.c": "    if (self->log.write) self->log.write(self->log.user, level, line);\n",
    "src/client/pointer.c": "\n    if (log) log->write(log->user, level, line);\n",
    "src/client/curl.c": "#include <curl/curl.h>\n",
    "src/client/no_call.c": "    self->log.write = write_line;\n    window_log.write(1);\n",
}
EXPECTED = [
    "src/base/up.c",
    "src/cli/into_room.c",
    "src/cli/jobs/beside.c",
    "src/cli/jobs/relative.c",
    "src/client/curl.c",
    "src/client/line.c",
    "src/client/pointer.c",
    "src/client/thread.c",
    "src/client/up.c",
    "src/gpu/one",
    "src/gpu/others.h",
    "src/http/client/of_server.c",
    "src/http/jobs.c",
    "src/http/of_client.c",
    "src/monitor/left",
    "src/nowhere/x.c",
    "src/pfo/beside.c",
    "src/plan/beside.c",
    "src/plan/relative.c",
    "src/server/api/up.c",
    "src/server/engine/others.h",
    "src/server/engine/postgres.c",
    "src/server/engine/request.c",
    "src/server/engine/sqlite.c",
    "src/server/engine/up.c",
    "src/server/lead/up.c",
    "src/server/other/x.c",
    "src/server/scheduler/perseus/up.c",
    "src/server/scheduler/relative.c",
    "src/server/scheduler/up.c",
    "src/server/store/beside.c",
    "src/server/store/left",
    "src/server/store/others.h",
    "src/sim/up.c",
]


def check_that_it_can_fail():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = sorted(line.split(":")[0] for line in violations(root))
    if found != EXPECTED:
        sys.exit(f"the check itself is broken: found {found} in the planted tree, not {EXPECTED}")


def main():
    root = pathlib.Path(sys.argv[1])
    check_that_it_can_fail()
    found = violations(root)
    print("\n".join(found) if found else "every include points downwards")
    sys.exit(1 if found else 0)


main()
