# SPDX-License-Identifier: Apache-2.0
"""The models of the pipeline frequency optimizer in Python: they are used like those of pydantic,
and agree with libharpe about every document. Needs only Python's standard library."""
import asyncio
import copy
import ctypes as C
import json
import os
import pathlib
import pickle
import tempfile
import unittest
from unittest import mock

import world
import harpe
from harpe import _bindings as b
from harpe._library import call, lib, text_of
from harpe.optimizer.pipeline_frequency import common
from harpe.optimizer.pipeline_frequency.common import (
    FrequencySchedule, InstructionProfilingResult, JobInfo, OfflineProfilingResult,
    PerseusSettings, PFOServerSettings, ProfilingResult, RankInfo, ValidationError)
from harpe.optimizer.pipeline_frequency.server import scheduler

JOB = {"job_id": "", "pp_degree": 4, "dp_degree": 2, "tp_degree": 1, "world_size": 8,
       "job_metadata": None}
RANK = {"rank": 3, "dp_rank": 0, "pp_rank": 3, "tp_rank": 0, "available_frequencies": [1410, 1395]}
SCHEDULE = {"rank": 1, "frequencies": [["forward", 1410], ["backward", 0]]}
RESULT = {"rank": 0, "iter_time": [1.5, 2], "iter_energy": [300.25],
          "time_breakdown": {"forward": [[0.5, 0.25], []]}, "energy_breakdown": {}}
OFFLINE = {"rank": 1, "dp_rank": 0, "pp_rank": 1, "tp_rank": 0,
           "forward_time": {"1410": 0.1, "1395": 0.11}, "forward_energy": {"1410": 30, "1395": 29},
           "backward_time": {"1410": 0.2}, "backward_energy": {"1410": 60.5}}


def errors_of(kind, values):
    """Returns [(where, message), ...]."""
    try:
        kind.parse_obj(values)
    except ValidationError as error:
        return [(problem["loc"], problem["msg"]) for problem in error.errors()]
    return []


class Use(unittest.TestCase):
    def test_made_from_keywords_with_defaults(self):
        job = JobInfo(pp_degree=4, dp_degree=2, tp_degree=1, world_size=8)
        self.assertEqual((job.job_id, job.pp_degree, job.job_metadata), ("", 4, None))
        self.assertEqual(job.dict(), JOB)
        self.assertEqual(job, JobInfo.parse_obj(JOB))
        self.assertNotEqual(job, JobInfo.parse_obj(dict(JOB, job_metadata="gpt")))
        self.assertEqual(repr(job), "JobInfo(job_id='', pp_degree=4, dp_degree=2, tp_degree=1, "
                                    "world_size=8, job_metadata=None, job_key=None)")
        with self.assertRaises(TypeError):
            JobInfo(4, 2, 1, 8)

    def test_values_are_converted(self):
        rank = RankInfo(rank="3", dp_rank=0.0, pp_rank=3, tp_rank=" 0 ",
                        available_frequencies=(1410, "1395"))
        self.assertEqual(rank.dict(), RANK)
        schedule = FrequencySchedule(rank=1, frequencies=[["forward", 1410], ("backward", 0)])
        self.assertEqual(schedule.frequencies, [("forward", 1410), ("backward", 0)])
        self.assertEqual(json.loads(schedule.json()), SCHEDULE)
        offline = OfflineProfilingResult.parse_obj(OFFLINE)
        self.assertEqual(offline.forward_time, {1410: 0.1, 1395: 0.11})
        self.assertEqual(json.loads(offline.json()), OFFLINE)

    def test_models_share_nothing_with_each_other(self):
        first = ProfilingResult(rank=0, iter_time=[], iter_energy=[])
        first.time_breakdown["forward"] = [[1.0]]
        self.assertEqual(ProfilingResult(rank=0, iter_time=[], iter_energy=[]).time_breakdown, {})
        rank = RankInfo.parse_obj(RANK)
        for other in (rank.copy(), copy.deepcopy(rank), pickle.loads(pickle.dumps(rank))):
            self.assertEqual(other, rank)
            other.available_frequencies.append(0)
            self.assertNotEqual(other, rank)
        rank.dict()["available_frequencies"].append(0)
        self.assertEqual(rank.dict(), RANK)

    def test_json_goes_both_ways_and_unknown_fields_are_ignored(self):
        for kind, values in ((JobInfo, JOB), (RankInfo, RANK), (FrequencySchedule, SCHEDULE),
                             (ProfilingResult, RESULT), (OfflineProfilingResult, OFFLINE)):
            model = kind.parse_raw(json.dumps(dict(values, colour="red")))
            self.assertEqual(json.loads(model.json()), values)
            self.assertEqual(kind.parse_raw(model.json().encode()), model)

    def test_every_bad_field_is_named(self):
        self.assertEqual(errors_of(JobInfo, {"pp_degree": 0, "dp_degree": "two", "tp_degree": True,
                                             "job_metadata": []}), [
            (("pp_degree",), "ensure this value is greater than or equal to 1"),
            (("dp_degree",), "value is not a valid integer"),
            (("tp_degree",), "value is not a valid integer"),
            (("world_size",), "field required"),
            (("job_metadata",), "str type expected")])
        self.assertEqual(errors_of(JobInfo, dict(JOB, job_id="mine", world_size=9, job_key="")), [
            (("job_id",), "job_id must be empty: the server chooses it"),
            (("world_size",), "world_size must be pp_degree * dp_degree * tp_degree"),
            (("job_key",), "job_key must have 1 to 256 bytes")])
        self.assertEqual(errors_of(FrequencySchedule, {
            "rank": -1, "frequencies": [["forward"], ["forward", 4.9], "forward", None]}), [
            (("rank",), "ensure this value is greater than or equal to 0"),
            (("frequencies", 0), "wrong tuple length 1, expected 2"),
            (("frequencies", 1, 1), "value is not a valid integer"),
            (("frequencies", 2), "value is not a valid tuple"),
            (("frequencies", 3), "none is not an allowed value")])
        two = [OFFLINE, dict(OFFLINE, rank="x")]
        self.assertEqual(errors_of(InstructionProfilingResult, two), [
            (("__root__", 1, "rank"), "value is not a valid integer")])
        with self.assertRaisesRegex(ValueError, r"^FrequencySchedule: rank: field required; "
                                                r"frequencies\[0\]\[1\]: value is not a valid int"):
            FrequencySchedule(frequencies=[("forward", "fast")])
        for text in ("", "{", "[1]", "null", "3"):
            with self.assertRaises(ValidationError):
                JobInfo.parse_raw(text)

    def test_settings_have_the_published_defaults(self):
        for kind in (PFOServerSettings, PerseusSettings):
            settings = kind(scheduler_args={"solution_path": "x.py"})
            self.assertEqual((settings.scheduler, settings.log_level, settings.dump_data,
                              settings.dump_dir, settings.max_job_idle_time),
                             (scheduler.PointSolution, "DEBUG", True, "./dump", 604800))
        with self.assertRaisesRegex(ValidationError, "scheduler_args: .*'solution_path'"):
            PFOServerSettings()  # as the published class does: the default scheduler needs it

    def settings(self, kind, environment, **given):
        with mock.patch.dict(os.environ, environment):
            return kind(**given)

    def test_settings_come_from_the_environment(self):
        for kind, prefix in ((PFOServerSettings, "ZEUS_PFO_"), (PerseusSettings, "PERSEUS_")):
            found = self.settings(kind, {
                f"{prefix}SCHEDULER": "AllMaxFrequency", f"{prefix.lower()}log_level": "info",
                f"{prefix}SCHEDULER_ARGS": '{"num_microbatches": 4}',
                f"{prefix}DUMP_DATA": "Off", f"{prefix}DUMP_DIR": "there",
                f"{prefix}MAX_JOB_IDLE_TIME": "60", "OTHER_LOG_LEVEL": "x"})
            self.assertEqual((found.scheduler, found.scheduler_args, found.log_level,
                              found.dump_data, found.dump_dir, found.max_job_idle_time),
                             (scheduler.AllMaxFrequency, {"num_microbatches": 4}, "INFO", False,
                              "there", 60))
        self.assertEqual(self.settings(PFOServerSettings, {"ZEUS_PFO_LOG_LEVEL": "info"},
                                       scheduler="AllMaxFrequency", log_level="error").log_level,
                         "ERROR")

    def test_settings_that_cannot_be_are_named(self):
        for values, place in (({"DUMP_DATA": "perhaps"}, "dump_data"),
                              ({"MAX_JOB_IDLE_TIME": "soon"}, "max_job_idle_time"),
                              ({"SCHEDULER_ARGS": "{bad"}, "scheduler_args"),
                              ({"SCHEDULER_ARGS": "[]"}, "scheduler_args"),
                              ({"SCHEDULER_ARGS": '{"speed": 1}'}, "scheduler_args: .*'speed'"),
                              ({"SCHEDULER_ARGS": '{"job_info": 1}'}, "scheduler_args: .*job_info"),
                              ({"SCHEDULER": "Nowhere"}, "scheduler: .*Nowhere"),
                              ({"SCHEDULER": ".Nowhere"}, "scheduler: "),
                              ({"SCHEDULER": "nowhere.Nowhere"}, "scheduler: .*nowhere")):
            environment = {f"ZEUS_PFO_{name}": value for name, value in values.items()}
            with self.subTest(values), self.assertRaisesRegex(ValidationError, place):
                self.settings(PFOServerSettings,
                              dict({"ZEUS_PFO_SCHEDULER": "AllMaxFrequency"}, **environment))
        with self.assertRaisesRegex(ValidationError, "colour: extra fields"):
            PFOServerSettings(scheduler="AllMaxFrequency", colour="red")

    def test_a_subclass_finds_and_checks_its_own_schedulers(self):
        class Own(PFOServerSettings):
            @classmethod
            def _fix_scheduler_import_path(cls, value):
                return f"{scheduler.__name__}.{value.removeprefix('my/')}"

            @classmethod
            def _validate_scheduler_args(cls, args, values):
                self.assertIs(values["scheduler"], scheduler.PointSolution)
                return dict(args, solution_path="x.py")

        self.assertEqual(Own(scheduler="my/PointSolution").scheduler_args,
                         {"solution_path": "x.py"})

    def test_job_ids_are_those_of_the_published_server(self):
        for metadata, end in ((None, ""), ("llama", "[+]llama")):
            job = JobInfo(pp_degree=2, dp_degree=3, tp_degree=4, world_size=24,
                          job_metadata=metadata)
            job.set_job_id("Mine")
            self.assertRegex(job.job_id, r"^\d{4}(-\d\d){5}[+]dp3[+]pp2[+]tp4[+]Mine" + end + "$")


class AgainstTheLibrary(unittest.TestCase):
    """C and Python accept the same documents and write the same."""

    KINDS = {JobInfo: "job_info", RankInfo: "rank_info", FrequencySchedule: "frequency_schedule",
             ProfilingResult: "profiling_result"}

    def formatted(self, kind, text):
        """Returns the library's reading of the document, or its refusal."""
        name = self.KINDS[kind]
        model, made = getattr(b, f"harpe_{name}")(), C.c_void_p()
        data = text.encode()
        call(getattr(lib, f"harpe_{name}_parse"), data, len(data), C.byref(model))
        try:
            call(getattr(lib, f"harpe_{name}_format"), C.byref(model), C.byref(made))
            return json.loads(text_of(made.value))
        finally:
            getattr(lib, f"harpe_{name}_free")(C.byref(model))

    def check(self, kind, values):
        text = json.dumps(values)
        try:
            expected = self.formatted(kind, text)
        except harpe.HarpeError as refused:
            with self.assertRaises(ValidationError, msg=text) as ours:
                kind.parse_raw(text)
            first = ours.exception.errors()[0]["msg"]
            if isinstance(values, dict):
                self.assertIn(first.split(" dict")[0], str(refused), text)
        else:
            self.assertEqual(json.loads(kind.parse_raw(text).json()), expected, text)

    def test_every_odd_value_in_every_field(self):
        odd = [None, True, 0, 1, -1, 3.0, 4.9, 2 ** 31 - 1, 2 ** 31, -2 ** 63 - 1, 1e30, "", "4",
               " 4\t", "4.0", "+4", "1_0", "x", "\u0664", "1e3", ".5", "inf", [], ["4"], [4.5],
               [[]], [["forward", "7"]], [["forward", 7, 8]], {}, {"a": 1}, {"forward": [[1, "2"]]},
               {"forward": [[True]]}, {"forward": [1]}, {"forward": None}, [None], [True], [1, "x"]]
        for kind, values in ((JobInfo, dict(JOB, job_key="k")), (RankInfo, RANK),
                             (FrequencySchedule, SCHEDULE), (ProfilingResult, RESULT)):
            for field in values:
                if field == "job_id":
                    # The Python model refuses a document that a client sends. The library also
                    # reads stored ones.
                    continue
                for value in odd:
                    self.check(kind, dict(values, **{field: value}))
                self.check(kind, {name: value for name, value in values.items() if name != field})

    def test_files_written_by_one_are_read_by_the_other(self):
        with tempfile.TemporaryDirectory() as directory:
            new = os.path.join(directory, "job")
            for models, save, load, name, native in (
                    ([RankInfo.parse_obj(RANK)], common.save_ranks, common.load_ranks,
                     "ranks.json", "ranks"),
                    ([FrequencySchedule.parse_obj(SCHEDULE)] * 2, common.save_sched,
                     common.load_sched, "7.sched.json", "schedules"),
                    ([ProfilingResult.parse_obj(RESULT)], common.save_prof, common.load_prof,
                     "7.prof.json", "profiling_results")):
                number = () if native == "ranks" else (7,)
                asyncio.run(save(models, new, *number))
                self.assertEqual(load(new, *number), models)
                path = os.path.join(new, name).encode()
                kind = dict(zip(("ranks", "schedules", "profiling_results"), (
                    b.harpe_rank_info, b.harpe_frequency_schedule, b.harpe_profiling_result)))
                items, count = C.POINTER(kind[native])(), C.c_size_t()
                call(getattr(lib, f"harpe_{native}_load"), path, C.byref(items), C.byref(count))
                os.unlink(path)
                call(getattr(lib, f"harpe_{native}_save"), path, items, count)
                getattr(lib, f"harpe_{native}_free")(items, count)
                self.assertEqual(load(new, *number), models)
            self.assertEqual(sorted(os.listdir(new)), ["7.prof.json", "7.sched.json", "ranks.json"])

    def test_bad_file_is_named_and_failed_writing_leaves_the_old_one(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "ranks.json")
            asyncio.run(common.save_ranks([RankInfo.parse_obj(RANK)], directory))
            wrong = RankInfo.parse_obj(RANK)
            wrong.available_frequencies = [object()]
            with self.assertRaises(ValueError):
                asyncio.run(common.save_ranks([wrong, {"rank": 1}], directory))
            self.assertEqual(common.load_ranks(directory), [RankInfo.parse_obj(RANK)])
            pathlib.Path(path).write_text('[{"rank": -1}]')
            with self.assertRaisesRegex(ValueError, f"{path}: .*\\[0\\].rank: ensure"):
                common.load_ranks(directory)
            self.assertEqual(os.listdir(directory), ["ranks.json"])
            with self.assertRaises(FileNotFoundError):
                common.load_prof(directory, 0)

    def test_to_csv_writes_what_the_library_writes(self):
        results = InstructionProfilingResult(__root__=[OFFLINE, dict(OFFLINE, rank=0, pp_rank=0)])
        self.assertEqual(InstructionProfilingResult.parse_raw(results.json()), results)
        with tempfile.TemporaryDirectory() as directory:
            ours, theirs = (os.path.join(directory, name) for name in ("a.csv", "b.csv"))
            results.to_csv(ours)
            path = os.path.join(directory, "results.json")
            pathlib.Path(path).write_text(results.json())
            items = C.POINTER(b.harpe_offline_profiling_result)()
            count = C.c_size_t()
            call(lib.harpe_offline_profiling_results_load, path.encode(), C.byref(items),
                 C.byref(count))
            call(lib.harpe_offline_profiling_results_write_csv, theirs.encode(), items, count)
            lib.harpe_offline_profiling_results_free(items, count)
            rows = [pathlib.Path(name).read_text().splitlines() for name in (ours, theirs)]
            self.assertEqual(rows[0][0], rows[1][0])
            self.assertEqual(*[[[*line.split(",")[:7], *map(float, line.split(",")[7:])]
                                for line in lines[1:]] for lines in rows])
            self.assertEqual(rows[0][1], "1,0,1,0,1,forward,1410,0.1,30.0")
            for wrong, words in ((os.path.join(directory, "a.txt"), "end in .csv"),):
                with self.assertRaisesRegex(ValueError, words):
                    results.to_csv(wrong)
            del results.__root__[0].backward_energy[1410]
            with self.assertRaisesRegex(ValueError, "rank 1: backward at 1410 MHz"):
                results.to_csv(ours)
