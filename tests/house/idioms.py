#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that C files write the same thing in the same way:

- A condition tests a pointer itself: `if (!pointer)`, `pointer && ready`. A comparison with NULL is
  only for a value, as in `return pointer != NULL;`.
- A condition compares a status: `status != HARPE_OK`.
- A section's banner is one line of 100 columns: /* ---- Name ---- */
- What an outsider controls cannot hold a process for ever (SECURITY.md): no code of src/ waits for a lock
  without a limit, and messages on sockets are received only where their descriptors are handled. Other files
  look at them (MSG_PEEK).
- Time passes in two files: src/base/clock.c reads clocks, and src/base/wait.c waits, locks,
  starts and joins threads. Numbers and ends of processes come from src/base/process.c, and random numbers from
  src/base/platform.c. The list OTHER_WAITS names the files of src/ and emulator/ that still wait by themselves.
- The planner's work has no limit of time: the files of src/plan read the clock only to say how long a part took
  (harpe_work), and crew.c to report progress. So plans depend on no machine and no load.

The rule for braces (none around one statement that fits on one line) is that of clang-format; the
test house_format checks it.

Usage: idioms.py PROJECT_ROOT [FILE...]     (all C files)
"""
import pathlib
import re
import subprocess
import sys

COMMENT_OR_TEXT = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])+'", re.DOTALL)
NULL_COMPARISON = re.compile(r"(?P<sign>[=!]=)\s*NULL\b")
STATUS = r"(?:\w+(?:->|\.))*status\b(?!\s*(?:->|[\w.(\[]))"
BARE_STATUS = re.compile(
    rf"\b(?:if|while) \({STATUS}(?=\)|\s*(?:&&|\|\|))|!{STATUS}|(?:&&|\|\|)\s*{STATUS}(?=\s*[)&|;])|"
    rf"\b{STATUS}(?=\s*\?)")
BANNER = re.compile(r"^[ \t]*/\* ?-{4}.*$", re.MULTILINE)
WAITING_LOCK = re.compile(r"\b(?:flock\(|lockf\(|F_SETLKW\b|F_OFD_SETLKW\b)(?P<how>[^;]*)")
RECEIVING = re.compile(r"\brecvmm?sg\((?P<how>[^;]*)")
RECEIVER = "src/base/passed_files.c"
TIME_CALL = re.compile(
    r"(?<![\w>.])(?P<call>clock_gettime|gettimeofday|time|clock|getrusage|(?:clock_)?nanosleep|u?sleep|p?poll|"
    r"epoll_p?wait2?|p?select|pthread_(?:cond|mutex|rwlock)_(?:rd|wr)?(?:timed|clock|un|try)?(?:wait|lock|signal|broadcast)|"
    r"pthread_create|pthread_(?:(?:timed|clock)join_np|join)|getpid|getrandom|sem_(?:timed|clock)?wait|sigtimedwait|setitimer|alarm|timerfd_create)\(|"
    r"\b(?P<number>FUTEX_\w+|SYS_pidfd_\w+|SYS_epoll_pwait2)\b")
TIME_FILES = ("src/base/clock.c", "src/base/platform.c", "src/base/process.c", "src/base/wait.c")
OTHER_WAITS = {
    "src/world/world.c": ("epoll_wait", "looks which descriptors are ready, and does not wait"),
    "src/cli/fleet/fleet_server.c": ("ppoll", "unblocks signals only while it waits"),
    "src/server/scheduler/program.c": ("sigtimedwait", "takes a pending SIGPIPE, and does not wait"),
    "src/server/scheduler/supervisor.c": ("setitimer", "ends its own start if that takes too long"),
}
CLOCK_READ = re.compile(r"harpe_clock_n?s\(\)")
MEASURED = re.compile(r"double began(?:_s)? = harpe_clock_s\(\);|\bwork\.\w+_s \+?= harpe_clock_s\(\) - began")
PROGRESS = "src/plan/crew.c"
WHOLE_BANNER = re.compile(r"[ \t]*/\* ---- [^-\s].*? -{4,} \*/")


def blank(text):
    """Returns the code with blanks in place of comments and texts, so that all offsets stay."""
    return COMMENT_OR_TEXT.sub(lambda it: "\n".join(" " * len(line) for line in it.group().split("\n")), text)


def is_in_condition(code, start, end):
    """Returns true if the comparison at [start, end) is part of a condition."""
    before, after = code[max(0, start - 200):start].rstrip(), code[end:end + 20].lstrip()
    if after.startswith(("&&", "||", "?")) or before.endswith(("&&", "||")):
        return True
    if re.search(r"\b(?:if|while) \($", before):
        return True
    return before.endswith(";") and bool(re.search(r"\bfor \([^{}]*;$", before))


def operand_start(code, end):
    """Returns the offset of the operand that ends at `end`: name, a->b[i], call(x), (x = call(y)),
    *name."""
    at = end
    while at > 0 and code[at - 1].isspace():
        at -= 1
    while at > 0:
        if code[at - 1] in ")]":
            depth = 0
            while at > 0:
                at -= 1
                depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(code[at], 0)
                if depth == 0:
                    break
        elif code[at - 1].isalnum() or code[at - 1] in "_.":
            at -= 1
        elif code[max(0, at - 2):at] == "->":
            at -= 2
        else:
            break
    while at > 0 and code[at - 1] == "*":
        at -= 1
    return at


def null_findings(code):
    for it in NULL_COMPARISON.finditer(code):
        start = operand_start(code, it.start())
        if it["sign"] == "==" or is_in_condition(code, start, it.end()):
            yield start, "test the pointer itself and not == NULL or != NULL"


def status_findings(code):
    for it in BARE_STATUS.finditer(code):
        yield it.start(), "compare the status: status != HARPE_OK"


def banner_findings(text):
    for it in BANNER.finditer(text):
        if not WHOLE_BANNER.fullmatch(it.group()) or len(it.group()) != 100:
            yield it.start(), "write the banner of a section on one line of 100 columns: /* ---- Name ---- */"


def waiting_findings(code):
    for it in WAITING_LOCK.finditer(code):
        if "LOCK_NB" not in it["how"] and "LOCK_UN" not in it["how"]:
            yield it.start(), "an outsider may hold this lock for ever: try it with LOCK_NB, for a limited time"
    for it in RECEIVING.finditer(code):
        if "MSG_PEEK" not in it["how"]:
            yield it.start(), "receive a message with base/passed_files.h, which handles its descriptors"


def time_findings(code, name):
    own = OTHER_WAITS.get(name, ("",))[0]
    calls = [(it.start(), it["call"] or it["number"]) for it in TIME_CALL.finditer(code)]
    for start, call in calls:
        if call != own and not (own == "epoll_wait" and call == "SYS_epoll_pwait2"):
            yield start, f"use clock.h, wait.h and process.h of base/, and not {call}"
    if own and own not in (call for _, call in calls):
        yield 0, f"calls no {own} any more: remove it from OTHER_WAITS in {pathlib.Path(__file__).name}"


def planning_findings(code):
    measured = {it.start() + it.group().index("harpe_clock") for it in MEASURED.finditer(code)}
    for it in CLOCK_READ.finditer(code):
        if it.start() not in measured:
            yield it.start(), "bound the planner's work by a count, and not by the clock"


def findings(text, name="src/x.c"):
    code = blank(text)
    if name.startswith("src/plan/") and name != PROGRESS:
        yield from planning_findings(code)
    if name.startswith("src/") and name != RECEIVER:
        yield from waiting_findings(code)
    if name.startswith(("src/", "emulator/")) and name not in TIME_FILES:
        yield from time_findings(code, name)
    yield from null_findings(code)
    yield from status_findings(code)
    yield from banner_findings(text)


def check(path, name):
    """Prints the findings of a file. Returns their number."""
    text = path.read_text()
    found = set(findings(text, name))
    for at, what in sorted(found):
        print(f"{name}:{text.count(chr(10), 0, at) + 1}: {what}")
    return len(found)


def check_itself():
    """The rules find what they are for, and nothing in correct code."""
    wrong = ("if (p == NULL) f();", "if (a && p != NULL) f();", "while (q->next != NULL) f();",
             "x = p == NULL;", "if (status) f();", "if (!self->status) f();", "ok = ok && status;",
             "/* ---- Name\n * ---- */", "/* ---- Name */", f"/* ---- Name {'-' * 83} */",
             f"/* ---- Name {'-' * 85} */", "r = flock(fd, LOCK_EX);", "fcntl(fd, F_SETLKW, &all);",
             "got = recvmsg(fd, &message, MSG_DONTWAIT);", "now = time(NULL);",
             "(void)poll(&one, 1, -1);", "syscall(SYS_futex, &word, FUTEX_WAIT, 1, NULL, NULL, 0);")
    right = ("return p != NULL;", "if (!p) f();", "if (status != HARPE_OK) f();", "if (status(p)) f();",
             "r = flock(fd, LOCK_EX | LOCK_NB);", "got = recvmsg(fd, &message, MSG_PEEK);",
             "self->poll(1);", "/* if (p == NULL) */", 'say("!status");', f"/* ---- Name {'-' * 84} */", "bool is = p != NULL;")
    limited, measured = "if (harpe_clock_s() > end_s) return;", "work.solve_s += harpe_clock_s() - began;"
    if not list(findings(limited, "src/plan/x.c")) or list(findings(measured, "src/plan/x.c")):
        sys.exit("idioms: the rule of the planner's work is wrong")
    failed = [text for text in wrong if not list(findings(text))]
    failed += [text for text in right if list(findings(text))]
    if failed:
        sys.exit(f"idioms: the rules are wrong for {failed}")


def main():
    check_itself()
    root, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if not names:
        listed = subprocess.check_output([root / "scripts" / "c_files.sh"], cwd=root, text=True)
        names = listed.split()
    if not names:
        sys.exit("idioms: no C files found")
    return 1 if sum(check(root / name, name) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
