# SPDX-License-Identifier: Apache-2.0
"""Runs one scheduler written in Python for `harpe serve`: the other end of the JSON lines of
src/server/schedulers/program.c. `python3 -m harpe...host my_module.MyScheduler` answers each line
on standard input by one on standard output; what the scheduler prints goes to standard error.
With --check SECONDS it says in one line why class and arguments (JSON on standard input) do not
fit, if they do not, and ends."""
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

_MESSAGE_LENGTH = 800
_PACKAGE = "harpe.optimizer.pipeline_frequency"


class Refused(Exception):
    """A mistake in what was asked for, whose text says all: it needs no traceback."""


# ---- The class ----

def find_class(name: str) -> Type[FrequencyScheduler]:
    """The class that `module.Class` names; modules of the working directory are found, too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, class_name = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "zeus":
            raise Refused(f"module {module_name} imports {error.name}, which is not there: import "
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
    """Raises Refused, naming the argument, where the constructor would not take them."""
    ours = {"job_info": None, "rank_infos": None, "pfo_settings": None}
    twice = sorted(ours.keys() & args.keys())
    if twice:
        raise Refused(f"scheduler_args: {twice[0]} is given by the server")
    try:
        inspect.signature(found).bind(**ours, **args)
    except TypeError as error:
        raise Refused(f"scheduler_args: {error}") from None


# ---- One job ----

class Host:
    """The scheduler of one job, asked in JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scheduler: Optional[FrequencyScheduler] = None

    def answer(self, line: str) -> Dict[str, Any]:
        """To one line."""
        question = json.loads(line)
        if "init" in question:
            self._start(question["init"])
        elif self.scheduler is None:
            raise Refused("asked to observe before the job was told")
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
        settings = init["settings"]
        defaults = PFOServerSettings()
        pfo_settings = PFOServerSettings(
            scheduler=found, scheduler_args=args,
            log_level=str(settings.get("log_level", defaults.log_level)).upper(),
            dump_data=settings.get("dump_data", defaults.dump_data),
            dump_dir=settings.get("dump_dir", defaults.dump_dir),
            max_job_idle_time=settings.get("max_job_idle_time", defaults.max_job_idle_time))
        ranks = [RankInfo.parse_obj(rank) for rank in init["rank_infos"]]
        self.scheduler = found(job_info=job, rank_infos=ranks, pfo_settings=pfo_settings, **args)
        self.world_size = len(ranks)

    def _checked(self, schedules: Any) -> List[FrequencySchedule]:
        """One schedule of every rank; none at all keeps the last."""
        what = f"{self.name}.next_schedule()"
        if not isinstance(schedules, (list, tuple)):
            raise Refused(f"{what} gave {type(schedules).__name__}, not a list of "
                          "FrequencySchedule")
        checked = [self._own(what, schedule) for schedule in schedules]
        ranks = sorted(schedule.rank for schedule in checked)
        if ranks and ranks != list(range(self.world_size)):
            raise Refused(f"{what} gave schedules for ranks {ranks}, not one for each of the job's "
                          f"{self.world_size}")
        return checked

    @staticmethod
    def _own(what: str, schedule: Any) -> FrequencySchedule:
        """Returns a schedule of this package, given as one or as a dictionary."""
        kind = type(schedule)
        if isinstance(schedule, FrequencySchedule):
            return schedule
        if kind.__name__ == "FrequencySchedule":
            raise Refused(f"{what} gave {kind.__module__}.FrequencySchedule: import harpe instead, "
                          f"\"from {_PACKAGE}.common import FrequencySchedule\"")
        return FrequencySchedule.parse_obj(schedule)

    def _is_finished(self) -> bool:
        """Only the interface's own observe() and next_schedule() are known to say nothing new once
        the generator has ended."""
        kind: Any = type(self.scheduler)
        while "_is_3d_wrapper" in vars(kind):
            kind = kind.__bases__[0]
        return (kind.observe is FrequencyScheduler.observe
                and kind.next_schedule is FrequencyScheduler.next_schedule
                and self.scheduler._has_ended)  # type: ignore[union-attr]


# ---- The conversation ----

def one_line(name: str, error: BaseException) -> str:
    """An exception for the ranks that wait: no line breaks, not too long."""
    kind = type(error).__name__
    try:
        text = str(error) if isinstance(error, Refused) else f"{kind}: {error}"
    except Exception:  # its own __str__ fails
        text = kind
    return " ".join(f"{name}: {text}".split())[:_MESSAGE_LENGTH]


def take_streams() -> Tuple[IO[str], IO[str]]:
    """Standard input and output for the conversation alone: whoever else reads finds nothing, and
    whoever else prints, in this process or below it, reaches standard error."""
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
    """Answers until there are no more questions."""
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
            pass  # the scheduler has closed it
        answers.write(answer + "\n")
        answers.flush()


def check(name: str, questions: IO[str], answers: IO[str]) -> None:
    """Says nothing where class and arguments fit."""
    try:
        check_arguments(find_class(name), json.loads(questions.read()))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        print_traceback(error)
        answers.write(one_line(name, error))
    answers.close()


def main(arguments: Sequence[str]) -> int:
    """0, or 2 for wrong usage."""
    name, *check_for = arguments if arguments else ("",)
    if "." not in name.strip(".") or check_for and (check_for[0] != "--check"
                                                    or len(check_for) != 2):
        print("usage: python3 -m harpe.optimizer.pipeline_frequency.server.host MODULE.CLASS "
              "[--check SECONDS]", file=sys.stderr)
        return 2
    questions, answers = take_streams()
    try:
        if check_for:
            signal.alarm(int(check_for[1]))  # ends a module that does not end to be imported
            check(name, questions, answers)
        else:
            serve(name, questions, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the server is gone: nobody is left to tell
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
