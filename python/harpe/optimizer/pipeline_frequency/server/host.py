# SPDX-License-Identifier: Apache-2.0
"""Runs one scheduler written in Python for `harpe serve`: the counterpart of
src/server/scheduler/program.c, with which it exchanges JSON lines. `python3 -m harpe...host
my_module.MyScheduler` answers each line on standard input with one line on standard output. Text
that the scheduler prints goes to standard error. With --check SECONDS it reads the arguments (JSON)
from standard input, prints one line with the reason if the class or the arguments are not usable,
and exits."""
from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
import traceback
from typing import IO, Any, Dict, List, Optional, Sequence, Tuple, Type

from harpe.optimizer.pipeline_frequency.common import (FrequencySchedule, JobInfo,
                                                       PFOServerSettings, ProfilingResult,
                                                       RankInfo)
from harpe.optimizer.pipeline_frequency.server.scheduler import FrequencyScheduler

__all__: List[str] = []  # `harpe serve` runs this module; nothing imports it

_MESSAGE_LENGTH = 800
_PACKAGE = "harpe.optimizer.pipeline_frequency"


class Refused(Exception):
    """A mistake in a request. Its text explains the mistake, so that no traceback is needed."""


# ---- The class ----

def find_class(name: str) -> Type[FrequencyScheduler]:
    """Returns the class that `module.Class` names. Also finds modules of the working directory."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, class_name = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "zeus":
            raise Refused(f"module {module_name} imports {error.name}, which is missing: import "
                          f"harpe instead, \"from {_PACKAGE}...\" for \"from "
                          "zeus.optimizer.pipeline_frequency...\"") from None
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise Refused(f"there is no module {error.name} in {os.getcwd()} or on the path of "
                      f"{sys.executable}") from None
    found: Any = getattr(module, class_name, None)
    if found is None:
        raise Refused(f"module {module_name} has no {class_name}")
    if not inspect.isclass(found):
        raise Refused(f"{name} is a {type(found).__name__}, not a class")
    if not (hasattr(found, "observe") and hasattr(found, "next_schedule")):
        raise Refused(f"{name} has no observe() and next_schedule(): derive it from "
                      f"{FrequencyScheduler.__module__}.FrequencyScheduler")
    if (getattr(found, "_run", None) is FrequencyScheduler._run
            and found.next_schedule is FrequencyScheduler.next_schedule):
        raise Refused(f"{name} has neither a _run nor a next_schedule of its own")
    return found


def check_arguments(found: Type[FrequencyScheduler], args: Dict[str, Any]) -> None:
    """Raises Refused with the name of the argument if the constructor would not accept the
    arguments."""
    try:
        PFOServerSettings._validate_scheduler_args(args, {"scheduler": found})
    except ValueError as error:
        raise Refused(f"scheduler_args: {error}") from None


# ---- One job ----

class Host:
    """Serves the scheduler of one job: JSON requests come in, JSON answers go out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scheduler: Optional[FrequencyScheduler] = None

    def answer(self, line: str) -> Dict[str, Any]:
        """Answers one line."""
        question = json.loads(line)
        if "init" in question:
            self._start(question["init"])
        elif self.scheduler is None:
            raise Refused("the request to observe came before the description of the job")
        else:
            self.scheduler.observe([ProfilingResult.parse_obj(result)
                                    for result in question["observe"]])
        schedules = self._checked(self.scheduler.next_schedule())  # type: ignore[union-attr]
        return {"schedules": [schedule.dict() for schedule in schedules],
                "finished": self._is_finished()}

    def _start(self, init: Dict[str, Any]) -> None:
        found = find_class(self.name)
        args = init["args"]
        check_arguments(found, args)
        job = JobInfo.parse_obj(dict(init["job_info"], job_id=""))
        job.job_id = init["job_info"]["job_id"]
        settings = {name: value for name, value in init["settings"].items()
                    if name in PFOServerSettings._kinds()}
        pfo_settings = PFOServerSettings(**dict(settings, scheduler=found, scheduler_args=args))
        ranks = [RankInfo.parse_obj(rank) for rank in init["rank_infos"]]
        self.scheduler = found(job, ranks, pfo_settings, **args)
        self.world_size = len(ranks)

    def _checked(self, schedules: Any) -> List[FrequencySchedule]:
        """Returns one schedule for every rank. An empty list keeps the last schedules."""
        what = f"{self.name}.next_schedule()"
        if not isinstance(schedules, (list, tuple)):
            raise Refused(f"{what} returned {type(schedules).__name__}, not a list of "
                          "FrequencySchedule")
        checked = [self._own(what, schedule) for schedule in schedules]
        ranks = sorted(schedule.rank for schedule in checked)
        if ranks and ranks != list(range(self.world_size)):
            raise Refused(f"{what} returned schedules for ranks {ranks}, not one for each of the "
                          f"job's {self.world_size}")
        return checked

    @staticmethod
    def _own(what: str, schedule: Any) -> FrequencySchedule:
        """Returns a schedule of this package. `schedule` is such a schedule or a dictionary."""
        kind = type(schedule)
        if isinstance(schedule, FrequencySchedule):
            return schedule
        if kind.__name__ == "FrequencySchedule":
            raise Refused(f"{what} returned {kind.__module__}.FrequencySchedule: import harpe "
                          f"instead, \"from {_PACKAGE}.common import FrequencySchedule\"")
        return FrequencySchedule.parse_obj(schedule)

    def _is_finished(self) -> bool:
        """Returns true if the schedules will not change any more: the generator has ended, and the
        scheduler uses the interface's own observe() and next_schedule()."""
        kind: Any = type(self.scheduler)
        while "_is_3d_wrapper" in vars(kind):
            kind = kind.__bases__[0]
        return (kind.observe is FrequencyScheduler.observe
                and kind.next_schedule is FrequencyScheduler.next_schedule
                and self.scheduler._has_ended)  # type: ignore[union-attr]


# ---- The conversation ----

def one_line(name: str, error: BaseException) -> str:
    """Formats an exception for the waiting ranks: without line breaks, and not too long."""
    kind = type(error).__name__
    try:
        text = str(error) if isinstance(error, Refused) else f"{kind}: {error}"
    except Exception:  # the exception's own __str__ fails
        text = kind
    return " ".join(f"{name}: {text}".split())[:_MESSAGE_LENGTH]


def take_streams() -> Tuple[IO[str], IO[str]]:
    """Reserves standard input and output for the exchange with the server. Other code that reads
    finds no input. Other code that prints, in this process or in its children, writes to standard
    error."""
    questions = os.fdopen(os.dup(0), "r", encoding="utf-8", errors="surrogateescape")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return questions, answers


def print_traceback(error: BaseException) -> None:
    """Prints the traceback to standard error, unless the error is expected or printing fails."""
    if isinstance(error, Refused):
        return
    try:
        traceback.print_exception(type(error), error, error.__traceback__)
    except (OSError, ValueError):
        pass  # the scheduler has closed standard error


def serve(name: str, questions: IO[str], answers: IO[str]) -> None:
    """Answers until there are no more requests."""
    host = Host(name)
    for line in questions:
        try:
            answer = json.dumps(host.answer(line))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            print_traceback(error)
            answer = json.dumps({"error": one_line(name, error)})
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            pass  # the scheduler has closed this stream
        answers.write(answer + "\n")
        answers.flush()


def check(name: str, questions: IO[str], answers: IO[str]) -> None:
    """Prints the reason if the class or the arguments are not usable. Otherwise prints nothing."""
    try:
        check_arguments(find_class(name), json.loads(questions.read()))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        print_traceback(error)
        answers.write(one_line(name, error))
    answers.close()


def main(arguments: Sequence[str]) -> int:
    """Returns 0, or 2 for wrong usage."""
    name, *check_for = arguments if arguments else ("",)
    if "." not in name.strip(".") or check_for and (check_for[0] != "--check"
                                                    or len(check_for) != 2):
        print("usage: python3 -m harpe.optimizer.pipeline_frequency.server.host MODULE.CLASS "
              "[--check SECONDS]", file=sys.stderr)
        return 2
    questions, answers = take_streams()
    try:
        if check_for:
            signal.alarm(int(check_for[1]))  # ends the process even if the import of a module hangs
            check(name, questions, answers)
        else:
            serve(name, questions, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the server is gone, and nothing can be reported
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
