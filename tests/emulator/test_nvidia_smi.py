#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The emulator's nvidia-smi, tested from the outside: it is found in the PATH of `harpe
emulate`, its CSV, XML and tables agree with NVML, its set calls reach the GPUs, and it uses no
other library."""
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

from nvml_client import *

SMI = pathlib.Path(os.environ.get("HARPE_SMI", pathlib.Path(LIBRARY).parent / "bin/nvidia-smi"))

# The query of GPUtil 1.4.0.
GPUTIL = ("index,uuid,utilization.gpu,memory.total,memory.used,memory.free,driver_version,name,"
          "gpu_serial,display_active,display_mode,temperature.gpu")


def as_loaded(environment):
    """The runtimes of sanitizers are for Python alone."""
    return {key: value for key, value in environment.items() if key != "LD_PRELOAD"}


class SmiTest(EmulatorTestCase):
    def setUp(self):
        self.nvml = self.start("2xA100,H100,GH200")

    def smi(self, *arguments, code=0, **changes):
        environment = as_loaded({**os.environ, "HARPE_NVML_LIBRARY": LIBRARY, **changes})
        result = subprocess.run([SMI, *arguments], capture_output=True, text=True, timeout=60,
                                env=environment, check=False)
        self.assertEqual(result.returncode, code, (arguments, result.stdout, result.stderr))
        return result.stdout

    def query(self, fields, *options, format="csv"):
        rows = csv.reader(self.smi(f"--query-gpu={fields}", f"--format={format}",
                                   *options).splitlines(), skipinitialspace=True)
        return list(rows)

    # ---- Queries ------------------------------------------------------------------------------

    def test_a_query_agrees_with_nvml(self):
        self.nvml.nvmlDeviceSetPowerManagementLimit(self.nvml.gpu(1), 250000)
        self.nvml.nvmlDeviceSetPersistenceMode(self.nvml.gpu(2), 1)
        head, *rows = self.query("index,name,uuid,pci.bus_id,power.limit,power.draw,memory.total,"
                                 "clocks.max.sm,persistence_mode,temperature.gpu,pstate,compute_cap")
        self.assertEqual(head, ["index", "name", "uuid", "pci.bus_id", "power.limit [W]",
                                "power.draw [W]", "memory.total [MiB]", "clocks.max.sm [MHz]",
                                "persistence_mode", "temperature.gpu", "pstate", "compute_cap"])
        for index, row in enumerate(rows):
            gpu, pci = self.nvml.gpu(index), PciInfo()
            self.nvml.nvmlDeviceGetPciInfo_v3(gpu, C.byref(pci))
            limit = self.nvml.number("nvmlDeviceGetPowerManagementLimit", gpu)
            power = self.nvml.number("nvmlDeviceGetPowerUsage", gpu)
            memory = Memory()
            self.nvml.nvmlDeviceGetMemoryInfo(gpu, C.byref(memory))
            clock = self.nvml.number("nvmlDeviceGetMaxClockInfo", gpu, 1)
            self.assertEqual(row, [
                str(index), self.nvml.text("nvmlDeviceGetName", gpu),
                self.nvml.text("nvmlDeviceGetUUID", gpu), pci.busId.decode(),
                f"{limit / 1e3:.2f} W", f"{power / 1e3:.2f} W", f"{memory.total >> 20} MiB",
                f"{clock} MHz", "Enabled" if index == 2 else "Disabled",
                str(self.nvml.number("nvmlDeviceGetTemperature", gpu, 0)), "P0",
                "8.0" if index < 2 else "9.0"])
        self.assertEqual(len(rows), 4)

    def test_noheader_and_nounits(self):
        fields = "index,memory.total,power.draw.instant"
        plain = self.query(fields)
        self.assertEqual(self.query(fields, format="csv,noheader"), plain[1:])
        bare = self.query(fields, format="csv,noheader,nounits")
        self.assertEqual(bare[0], ["0", "81920", "62.00"])
        self.assertEqual(self.query(fields, format="csv,nounits"), [plain[0], *bare])
        self.assertEqual(self.query(fields, format="csv, noheader, nounits"), bare)

    def test_gputils_query_is_twelve_fields_a_line(self):
        rows = self.query(GPUTIL, format="csv,noheader,nounits")
        self.assertEqual([len(row) for row in rows], [12] * 4)
        for row in rows:
            for number in (0, 2, 3, 4, 5, 11):
                float(row[number])

    def test_unknown_fields_are_refused_as_nvidias_program_does(self):
        for fields, bad in (("nonsense", "nonsense"), ("index,power.dra", "power.dra"),
                            ("index,,name", ""), ("Index", "Index"), ("name,uuid ,x y", "x y")):
            out = self.smi(f"--query-gpu={fields}", "--format=csv", code=2)
            self.assertEqual(out.splitlines()[0], f'Field "{bad}" is not a valid field to query.')
        self.assertIn("--format", self.smi("--query-gpu=name", code=2))
        self.smi("--query-gpu=name", "--format=json", code=2)
        self.smi("--query-gpu", code=2)

    def test_every_field_of_the_help_can_be_queried(self):
        names = re.findall('"([a-zA-Z_.]+)"', self.smi("--help-query-gpu"))
        self.assertGreater(len(names), 100)
        self.assertEqual(len(set(names)), len(names))
        for start in range(0, len(names), 40):
            rows = self.query(",".join(names[start:start + 40]), format="csv,noheader")
            self.assertEqual({len(row) for row in rows}, {len(names[start:start + 40])})
            self.assertNotIn("[Unknown Error]", [value for row in rows for value in row])

    def test_what_a_gpu_does_not_tell_is_not_available(self):
        rows = self.query("fan.speed,power.draw.average,memory.power.draw.average,"
                          "module.power.draw.instant,serial", format="csv,noheader")
        missing = [[value == "[N/A]" for value in row] for row in rows]
        self.assertEqual(missing, [[True, True, True, True, True], [True, True, True, True, True],
                                   [True, False, False, True, True],
                                   [True, False, False, False, True]])

    def test_a_lost_gpu_is_told(self):
        out = self.smi("--query-gpu=index,power.draw", "--format=csv,noheader",
                       HARPE_EMULATOR_FAULTS="lost_after=2@1")
        self.assertIn("[GPU is lost]", out.splitlines()[1])
        self.assertIn("62.00 W", out.splitlines()[0])

    def test_gpus_are_chosen_by_index_uuid_and_pci_address(self):
        uuid, pci = self.nvml.text("nvmlDeviceGetUUID", self.nvml.gpu(2)), PciInfo()
        self.nvml.nvmlDeviceGetPciInfo_v3(self.nvml.gpu(3), C.byref(pci))
        for ids, expected in (("0", "0"), ("1,3", "13"), (uuid, "2"), (pci.busId.decode(), "3"),
                              (pci.busIdLegacy.decode().lower(), "3"), (f"0,{uuid}", "02")):
            for arguments in (("-i", ids), (f"--id={ids}",)):
                rows = self.query("index", *arguments, format="csv,noheader")
                self.assertEqual("".join(row[0] for row in rows), expected)
        for ids in ("4", "GPU-nonsense", "0,9", "", "-1"):
            self.assertEqual(self.smi("--query-gpu=index", "--format=csv", f"--id={ids}", code=6),
                             "No devices were found\n")

    def test_visible_devices_change_nothing(self):
        self.assertEqual(len(self.smi("-L", CUDA_VISIBLE_DEVICES="1").splitlines()), 4)

    def test_processes_are_lines_of_csv(self):
        fields = "--query-compute-apps=pid,process_name,gpu_uuid,used_memory"
        self.assertEqual(self.smi(fields, "--format=csv").splitlines(),
                         ["pid, process_name, gpu_uuid, used_gpu_memory [MiB]".replace(
                             "used_gpu_memory", "used_memory")])
        self.nvml.harpe_emulator_open_context(1, C.c_uint64(2 << 30))
        self.addCleanup(self.nvml.code, "harpe_emulator_close_context", 1)
        pid, name, uuid, memory = self.smi(fields, "--format=csv,noheader,nounits").split(", ")
        self.assertEqual((int(pid), int(memory)), (os.getpid(), 2048))
        self.assertEqual(uuid, self.nvml.text("nvmlDeviceGetUUID", self.nvml.gpu(1)))
        self.assertIn("python", name)
        self.smi("--query-compute-apps=pid,x", "--format=csv", code=2)

    def test_a_loop_prints_its_header_once_and_goes_on(self):
        process = subprocess.Popen([SMI, "--query-gpu=index", "--format=csv", "-i", "0", "-lms", "5"],
                                   stdout=subprocess.PIPE, text=True,
                                   env=as_loaded(dict(os.environ, HARPE_NVML_LIBRARY=LIBRARY)))
        lines = [process.stdout.readline().strip() for _ in range(4)]
        process.terminate()
        process.communicate()
        self.assertEqual(lines, ["index", "0", "0", "0"])

    # ---- Reports ------------------------------------------------------------------------------

    def test_the_list(self):
        for index, line in enumerate(self.smi("-L").splitlines()):
            gpu = self.nvml.gpu(index)
            name, uuid = (self.nvml.text(f"nvmlDeviceGet{what}", gpu) for what in ("Name", "UUID"))
            self.assertEqual(line, f"GPU {index}: {name} (UUID: {uuid})")

    def test_the_xml_is_well_formed_says_who_made_it_and_agrees_with_nvml(self):
        self.nvml.harpe_emulator_open_context(0, C.c_uint64(1 << 30))
        self.addCleanup(self.nvml.code, "harpe_emulator_close_context", 0)
        text = self.smi("-q", "-x")
        self.assertIn("Harpe", text[:text.index("<nvidia_smi_log>")])
        root = ET.fromstring(text)
        self.assertEqual(root.find("attached_gpus").text, "4")
        self.assertEqual(root.find("driver_version").text,
                         self.nvml.text("nvmlSystemGetDriverVersion"))
        gpus = root.findall("gpu")
        self.assertEqual(len(gpus), 4)
        for index, gpu in enumerate(gpus):
            handle = self.nvml.gpu(index)
            self.assertEqual(gpu.find("uuid").text, self.nvml.text("nvmlDeviceGetUUID", handle))
            self.assertEqual(gpu.get("id"), gpu.find("pci/pci_bus_id").text)
            power = self.nvml.number("nvmlDeviceGetPowerUsage", handle)
            self.assertEqual(gpu.find("gpu_power_readings/power_draw").text, f"{power / 1e3:.2f} W")
            self.assertEqual(gpu.find("utilization/gpu_util").text, "0 %")
            module = gpu.find("module_power_readings/instant_power_draw").text
            self.assertEqual(module, "162.00 W" if index == 3 else "N/A")
        self.assertEqual(gpus[0].find("fb_memory_usage/used").text, "1024 MiB")
        self.assertEqual([p.find("pid").text for p in root.iter("process_info")], [str(os.getpid())])
        clocks = gpus[2].findall("supported_clocks/supported_mem_clock")
        self.assertEqual([clock.find("value").text for clock in clocks], ["2619 MHz", "1593 MHz"])
        self.assertEqual(clocks[0].find("supported_graphics_clock").text, "1980 MHz")

    def test_a_process_with_markup_in_its_name_leaves_the_xml_well_formed(self):
        child = subprocess.Popen(
            ["<b>&\x01\"", "-c", "import sys; sys.path.insert(0, %r); from nvml_client import *\n"
             "nvml = Client(); nvml.nvmlInit_v2(); nvml.work(0, 0.001); print('go', flush=True)\n"
             "import time; time.sleep(600)" % str(pathlib.Path(__file__).parent)],
            executable=sys.executable, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        child.stdout.readline()
        names = [p.find("process_name").text
                 for p in ET.fromstring(self.smi("-q", "-x")).iter("process_info")]
        self.assertEqual(len(names), 1)
        self.assertIn("<b>&", names[0])

    def test_the_text_report_has_chosen_sections(self):
        out = self.smi("-q", "-d", "POWER,clock", "-i", "0")
        self.assertIn("GPU Power Readings\n", out)
        self.assertRegex(out, r"\n        Current Power Limit +: 400\.00 W\n")
        self.assertIn("Max Clocks", out)
        self.assertNotIn("FB Memory", out)
        self.assertRegex(out, r"Attached GPUs +: 4\n")
        self.assertIn("Harpe", self.smi("-q"))
        self.smi("-q", "-d", "NONSENSE", code=2)

    def test_the_table_is_straight_and_says_who_made_it(self):
        self.nvml.work(0, 0.001)
        self.addCleanup(self.nvml.code, "harpe_emulator_close_context", 0)
        lines = self.smi().splitlines()[1:]
        self.assertEqual({len(line) for line in lines if line}, {91})
        out = "\n".join(lines)
        self.assertIn("Harpe's emulator", out)
        self.assertRegex(out, r"Driver Version: [0-9.]+ ")
        self.assertRegex(out, r"CUDA Version: 12\.8 ")
        self.assertIn("400W", out)
        self.assertIn(str(os.getpid()), out)

    # ---- Sets ---------------------------------------------------------------------------------

    def limits_w(self):
        return [self.nvml.number("nvmlDeviceGetPowerManagementLimit", self.nvml.gpu(i)) // 1000
                for i in range(4)]

    def test_power_limits_are_set(self):
        out = self.smi("-i", "1", "-pl", "300")
        self.assertRegex(out, r"Power limit for GPU \S+ was set to 300\.00 W from 400\.00 W\.\n")
        self.assertIn("All done.", out)
        self.assertEqual(self.limits_w(), [400, 300, 700, 900])
        self.smi("--power-limit=250.5", "-i", "0,2")
        self.assertEqual(self.limits_w(), [250, 300, 250, 900])
        out = self.smi("-pl", "450", code=2)  # the first GPU takes at most 400
        self.assertRegex(out, r"450\.00 W is not a valid power limit .* 100\.00 W and 400\.00 W")
        self.assertEqual(self.limits_w(), [250, 300, 250, 900])
        for text in ("x", "-5", "0", "nan", "1e9", "300W"):
            self.smi(f"--power-limit={text}", code=2)

    def test_clocks_are_locked_and_reset(self):
        clock = lambda which: self.nvml.number("nvmlDeviceGetClockInfo", self.nvml.gpu(2), which)
        self.nvml.harpe_emulator_wait(2, 1)
        self.addCleanup(self.nvml.code, "harpe_emulator_close_context", 2)
        out = self.smi("-i", "2", "-lgc", "900,1200")
        self.assertIn('GPU clocks set to "(gpuClkMin 900, gpuClkMax 1200)"', out)
        self.assertEqual(clock(0), 1200)
        self.smi("-i", "2", "--lock-gpu-clocks=600")
        self.assertEqual(clock(0), 600)
        self.smi("-i", "2", "-rgc")
        self.assertEqual(clock(0), 1980)
        self.smi("-i", "2", "-lmc", "1593")
        self.assertEqual(clock(2), 1593)
        self.smi("-i", "2", "-rmc")
        self.assertEqual(clock(2), 2619)
        self.smi("-lgc", "1200,900", code=2)
        self.smi("-lgc", "fast", code=2)
        self.smi("-lgc", "900,", code=2)

    def test_persistence_and_compute_mode_are_set(self):
        self.assertIn("Enabled persistence mode", self.smi("-pm", "1"))
        self.assertIn("already Enabled", self.smi("-pm", "ENABLED"))
        self.assertEqual(self.query("persistence_mode", format="csv,noheader"), [["Enabled"]] * 4)
        self.smi("-pm", "2", code=2)
        self.smi("-c", "3", "-i", "0")
        self.assertEqual(self.query("compute_mode", "-i", "0", format="csv,noheader"),
                         [["Exclusive_Process"]])

    def test_a_set_that_is_not_allowed_is_told(self):
        faults = {"HARPE_EMULATOR_FAULTS": "no_permission"}
        for arguments in (("-pl", "300"), ("-lgc", "900"), ("-rgc",), ("-pm", "1")):
            out = self.smi(*arguments, code=4, **faults)
            self.assertIn("Insufficient Permissions", out)
        self.assertEqual(self.limits_w(), [400, 400, 700, 900])
        self.smi("-pl", "300", code=3, HARPE_EMULATOR_FAULTS="not_supported=power_limit")

    # ---- Environments -------------------------------------------------------------------------

    def test_help_and_version_name_the_emulator(self):
        for arguments in (("-h",), ("--help",), ("--version",)):
            self.assertIn("Harpe", self.smi(*arguments))
        self.smi("-h", HARPE_NVML_LIBRARY="/nowhere")
        for bad in ("--nonsense", "dmon", "-L=1", "-pl"):
            self.smi(bad, code=2)

    def test_it_touches_no_library_but_the_emulators(self):
        minimal = os.environ.get("HARPE_MINIMAL_NVML")
        if minimal:  # a file that this program could take for a driver's library
            for arguments in (("-L",), ("-pl", "100"), ()):
                out = self.smi(*arguments, code=9, HARPE_NVML_LIBRARY=minimal)
                self.assertIn("is not the emulator's library", out)
        for library in ("/nowhere/libnvidia-ml.so.1", ctypes_library()):
            out = self.smi("-pl", "100", code=12 if "nowhere" in library else 9,
                           HARPE_NVML_LIBRARY=library)
            self.assertIn("Harpe's emulator", out)

    def test_harpe_emulate_puts_it_into_the_path(self):
        environment = {key: value for key, value in as_loaded(os.environ).items()
                       if not key.startswith("HARPE_")}
        result = subprocess.run(
            [HARPE, "emulate", "-g", "2xA40", "--", "sh", "-c", "command -v nvidia-smi; nvidia-smi -L"],
            capture_output=True, text=True, env=environment, check=False)
        where, *gpus = result.stdout.splitlines()
        self.assertEqual(os.path.realpath(where), os.path.realpath(SMI), result)
        self.assertEqual(len(gpus), 2)
        self.assertIn("NVIDIA A40", gpus[1])
        self.assertNotEqual(shutil.which("nvidia-smi"), where)


def ctypes_library():
    """Returns a library that every machine has."""
    import ctypes.util
    return ctypes.util.find_library("c") or "libc.so.6"
