#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The differences between boards, as NVML documents them: the power that each model reports, a
superchip's module, and limits that do not come through the driver. Also the noise of power sensors,
and processes, which are listed as long as they hold a context. Uses an independent client
(nvml_client.py)."""
import ctypes as C
import os
import statistics
import time

from nvml_client import *

AVERAGE, INSTANT, MIN_LIMIT, MAX_LIMIT, DEFAULT_LIMIT, CURRENT_LIMIT, ENERGY, REQUESTED_LIMIT = range(
    185, 193)
TOTAL_ENERGY = 83
GPU, MODULE, MEMORY = 0, 1, 2
MODELS = "V100,A40,A100,H100,GH200"
IDLE_MW = (42000, 31000, 62000, 71000, 78000)
MODULE_REST_W = 84  # of a GH200, docs/emulator.md


class FieldsTest(EmulatorTestCase):
    def test_the_average_of_power_is_told_from_ampere_on_but_not_by_ga100(self):
        nvml = self.start(MODELS)
        codes = [nvml.fields(nvml.gpu(i), (AVERAGE, GPU), (INSTANT, GPU)) for i in range(5)]
        expected = [NOT_SUPPORTED, SUCCESS, NOT_SUPPORTED, SUCCESS, SUCCESS]
        self.assertEqual([average[0] for average, _ in codes], expected)
        self.assertEqual([instant for _, instant in codes], [(SUCCESS, mw) for mw in IDLE_MW])
        for index, (average, _) in enumerate(codes):
            if average[0] == SUCCESS:  # nvmlDeviceGetPowerUsage returns the average there
                self.assertEqual(average[1], IDLE_MW[index])

    def test_one_value_that_is_refused_leaves_the_others_alone(self):
        nvml = self.start("A100")
        self.assertEqual([code for code, _ in nvml.fields(
            nvml.gpu(), (INSTANT, GPU), (AVERAGE, GPU), (TOTAL_ENERGY, 0), (AVERAGE, MEMORY),
            (INSTANT, 7), (CURRENT_LIMIT, GPU))],
            [SUCCESS, NOT_SUPPORTED, SUCCESS, NOT_SUPPORTED, NOT_SUPPORTED, SUCCESS])

    def test_hopper_tells_the_average_power_of_its_memory(self):
        nvml = self.start(MODELS)
        for index in range(5):
            (average, memory_mw), (instant, _), (limit, _) = nvml.fields(
                nvml.gpu(index), (AVERAGE, MEMORY), (INSTANT, MEMORY), (CURRENT_LIMIT, MEMORY))
            self.assertEqual(average, SUCCESS if index >= 3 else NOT_SUPPORTED)
            self.assertEqual((instant, limit), (NOT_SUPPORTED, NOT_SUPPORTED))
            if average == SUCCESS:
                self.assertTrue(0 < memory_mw < IDLE_MW[index])

    def test_a_superchip_tells_of_its_module(self):
        nvml = self.start("GH200,H100", scale=20, faults="energy_step=0")
        gpu, other = nvml.gpu(0), nvml.gpu(1)
        info = (C.c_uint * 2)(C.sizeof(C.c_uint * 2) | 1 << 24)
        nvml.nvmlDeviceGetC2cModeInfoV(gpu, info)
        self.assertEqual(info[1], 1)
        self.assertEqual(nvml.code("nvmlDeviceGetC2cModeInfoV", other, info), NOT_SUPPORTED)
        info[0] = 0
        self.assertEqual(nvml.code("nvmlDeviceGetC2cModeInfoV", gpu, info), VERSION_MISMATCH)
        wanted = [(field, MODULE) for field in range(AVERAGE, REQUESTED_LIMIT + 1)]
        self.assertEqual({code for code, _ in nvml.fields(gpu, *wanted)}, {SUCCESS})
        self.assertEqual({code for code, _ in nvml.fields(other, *wanted)}, {NOT_SUPPORTED})
        self.assertEqual(nvml.fields(gpu, (INSTANT, GPU), (INSTANT, MODULE), (MAX_LIMIT, MODULE)),
                         [(SUCCESS, 78000), (SUCCESS, 78000 + 1000 * MODULE_REST_W),
                          (SUCCESS, 1000000)])

    def test_a_superchips_counter_covers_the_module(self):
        nvml = self.start("GH200", scale=20, faults="energy_step=0")
        gpu = nvml.gpu()
        begin_j, begin_s = nvml.energy_at(gpu)
        time.sleep(0.2)
        end_j, end_s = nvml.energy_at(gpu)
        power_w = (end_j - begin_j) / (end_s - begin_s)
        self.assertAlmostEqual(power_w / (78 + MODULE_REST_W), 1, delta=0.05)
        child = self.spawn("print('go', flush=True); nvml.work(0, 100000.0)")
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        # the average of the last second contains the work, not the module
        self.wait_until(lambda: nvml.fields(gpu, (AVERAGE, GPU))[0][1] > 650000)
        average, module = nvml.fields(gpu, (AVERAGE, GPU), (AVERAGE, MODULE))
        self.assertLess(average[1], 708500)
        self.assertAlmostEqual(module[1] - average[1], 1000 * MODULE_REST_W, delta=50000)
        (code, before_mj), = nvml.fields(gpu, (TOTAL_ENERGY, 0))
        self.assertEqual(code, SUCCESS)
        energies_mj = [value for _, value in nvml.fields(gpu, (ENERGY, GPU), (ENERGY, MODULE))]
        after_mj = nvml.fields(gpu, (TOTAL_ENERGY, 0))[0][1]
        for energy_mj in energies_mj:
            self.assertTrue(before_mj <= energy_mj <= after_mj, (before_mj, energy_mj, after_mj))


class EnforcedLimitTest(EmulatorTestCase):
    def limits_w(self, nvml, gpu):
        (_, current), (_, requested) = nvml.fields(gpu, (CURRENT_LIMIT, GPU), (REQUESTED_LIMIT, GPU))
        enforced = nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu)
        management = nvml.number("nvmlDeviceGetPowerManagementLimit", gpu)
        self.assertEqual((enforced, management), (current, requested))
        return management // 1000, enforced // 1000

    def test_the_lower_of_two_limits_is_enforced(self):
        nvml = self.start(faults="enforced_limit=250")
        gpu = nvml.gpu()
        self.assertEqual(self.limits_w(nvml, gpu), (400, 250))
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 200000)
        self.assertEqual(self.limits_w(nvml, gpu), (200, 200))
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 400000)
        self.assertEqual(self.limits_w(nvml, gpu), (400, 250))

    def test_a_limit_from_outside_throttles_work_under_way_of_every_process(self):
        nvml = self.start(HARPE_EMULATOR_FAULTS_FILE=f"/tmp/harpe-test-faults-{os.getpid()}")
        path = os.environ["HARPE_EMULATOR_FAULTS_FILE"]
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        child = self.spawn("import os; os.environ.pop('HARPE_EMULATOR_FAULTS_FILE', None)\n"
                           "print('go', flush=True); nvml.work(0, 1000.0)")
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        gpu = nvml.gpu()
        power = lambda: nvml.number("nvmlDeviceGetPowerUsage", gpu)
        self.wait_until(lambda: power() == 388000)
        with open(path, "w") as file:
            file.write("enforced_limit=250")
        self.assertTrue(200000 < power() <= 250000)
        reasons = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", gpu, kind=C.c_ulonglong)
        self.assertEqual(reasons, 4)  # SwPowerCap
        with open(path, "w") as file:
            file.write("enforced_limit=0")
        self.assertEqual(power(), 388000)


class NoiseTest(EmulatorTestCase):
    def read(self, nvml, gpu, count, name="nvmlDeviceGetPowerUsage"):
        """Returns `count` readings, one in each of the sensor's periods."""
        seen = []
        while len(seen) < count:
            value = nvml.number(name, gpu)
            if not seen or value != seen[-1]:
                seen.append(value)
        return seen

    def test_readings_differ_from_period_to_period_about_the_true_power(self):
        for model, idle_mw in zip(MODELS.split(","), IDLE_MW):
            nvml = self.start(model, scale=50, noise=2)
            seen = self.read(nvml, nvml.gpu(), 200)
            share = 0.02 if model in ("V100", "A100") else 0.006  # otherwise an average over 1 s
            deviation = statistics.pstdev(seen) / idle_mw
            self.assertTrue(0.8 * share < deviation < 1.2 * share, (model, deviation))
            self.assertAlmostEqual(statistics.mean(seen) / idle_mw, 1, delta=share / 3)
            self.assertLess(max(abs(value / idle_mw - 1) for value in seen), 3.5 * share)

    def test_a_reading_holds_for_the_sensors_period(self):
        nvml = self.start("A100", scale=0.01, noise=2)  # 10 s a period
        gpu = nvml.gpu()
        values = {nvml.number("nvmlDeviceGetPowerUsage", gpu) for _ in range(100)}
        self.assertLessEqual(len(values), 2)

    def test_a_client_that_drops_repeated_samples_measures_energy(self):
        nvml = self.start("A100", scale=5, noise=0.5)
        gpu, samples = nvml.gpu(), []
        while len(samples) < 2 or samples[-1][0] < samples[0][0] + 4:
            power_mw, at_s = nvml.number("nvmlDeviceGetPowerUsage", gpu), nvml.now_s()
            if not samples or samples[-1][1] != power_mw:
                samples.append((at_s, power_mw))
        energy_j = sum((b[0] - a[0]) * (a[1] + b[1]) / 2e3 for a, b in zip(samples, samples[1:]))
        self.assertAlmostEqual(energy_j / (62 * (samples[-1][0] - samples[0][0])), 1, delta=0.01)

    def first_readings(self, **options):
        nvml = self.start("A100", scale=0.001, **options)  # 100 s a period: the first one
        return nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu())

    def test_the_same_seed_gives_the_same_noise(self):
        one = [self.first_readings(noise=5, HARPE_EMULATOR_SEED=str(seed)) for seed in (1, 2, 3)]
        again = [self.first_readings(noise=5, HARPE_EMULATOR_SEED=str(seed)) for seed in (1, 2, 3)]
        self.assertEqual(one, again)
        self.assertEqual(len(set(one)), 3)
        self.assertEqual(self.first_readings(noise=5), one[0])  # 1 is the default
        self.assertEqual(self.first_readings(noise=0), 62000)

    def test_gpus_and_sensors_have_noise_of_their_own(self):
        nvml = self.start("2xH100", scale=0.001, noise=5)
        seen = [value for gpu in range(2) for _, value in nvml.fields(
            nvml.gpu(gpu), (INSTANT, GPU), (AVERAGE, GPU), (AVERAGE, MEMORY))]
        self.assertEqual(len(set(seen)), 6)

    def test_the_energy_counter_has_no_noise(self):
        nvml = self.start("A100", scale=50, faults="energy_step=0", noise=20)
        gpu = nvml.gpu()
        begin_j, begin_s = nvml.energy_at(gpu)
        time.sleep(0.2)
        end_j, end_s = nvml.energy_at(gpu)
        self.assertAlmostEqual((end_j - begin_j) / (62 * (end_s - begin_s)), 1, delta=0.01)
        energy_j = C.c_double()
        nvml.harpe_emulator_energy(0, C.c_int64(int(end_s * 1e9)), C.byref(energy_j))
        self.assertAlmostEqual(energy_j.value / end_j, 1, delta=0.02)

    def test_noise_is_there_unless_it_is_switched_off(self):
        nvml = self.start("A100", scale=50)
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu()), 62000)
        del os.environ["HARPE_EMULATOR_NOISE"]
        os.environ["HARPE_EMULATOR_CLUSTER"] += "-default"
        self.addCleanup(os.unlink, f"/dev/shm/harpe-emulator-{os.getuid()}-{self.name}-default")
        child = self.spawn("print({nvml.number('nvmlDeviceGetPowerUsage', nvml.gpu())"
                           " for _ in range(20000)})")
        seen = eval(child.communicate()[0])
        self.assertGreater(len(seen), 1)
        self.assertLess(max(abs(value / 62000 - 1) for value in seen), 0.02)


class ContextsTest(EmulatorTestCase):
    def test_a_process_is_listed_until_it_exits_although_its_work_is_over(self):
        nvml = self.start("2xA100")
        child = self.spawn("import time; nvml.work(0, 0.01); print('idle', flush=True); time.sleep(600)")
        child.stdout.readline()
        gpu, free = nvml.gpu(), Memory()
        for _ in range(3):
            self.assertEqual(list(nvml.processes(gpu)), [child.pid])
            time.sleep(0.1)
        self.assertEqual(nvml.processes(nvml.gpu(1)), {})
        self.assertGreater(nvml.processes(gpu)[child.pid], 100 << 20)
        nvml.nvmlDeviceGetMemoryInfo(gpu, C.byref(free))
        # the process holds a context and nothing else
        self.assertEqual(nvml.number("nvmlDeviceGetPowerUsage", gpu), 83000)
        child.kill()
        child.communicate()
        self.assertEqual(nvml.processes(gpu), {})
        after = Memory()
        nvml.nvmlDeviceGetMemoryInfo(gpu, C.byref(after))
        self.assertEqual(after.used, 512 << 20)
        self.assertGreater(free.used, after.used)

    def test_the_power_of_a_context_ends_with_its_process(self):
        nvml = self.start()
        gpu, power_w = nvml.gpu(), []
        child = self.spawn("import time; nvml.harpe_emulator_open_context(0, 0)\n"
                           "print('open', flush=True); time.sleep(600)")
        child.stdout.readline()
        look = lambda: nvml.number("nvmlDeviceGetPowerUsage", gpu) / 1e3
        power_w.append(look())
        nvml.nvmlDeviceSetGpuLockedClocks(gpu, 210, 345)
        power_w.append(look())
        self.assertEqual(nvml.number("nvmlDeviceGetClockInfo", gpu, 0), 345)
        child.kill()
        child.communicate()
        self.wait_until(lambda: look() == 62)  # without a look at the processes
        self.assertEqual(power_w[0], 83)
        self.assertTrue(62 < power_w[1] < 64, power_w)
        self.assertEqual(nvml.number("nvmlDeviceGetClockInfo", gpu, 0), 210)

    def test_a_process_that_only_looks_is_not_listed(self):
        nvml = self.start()
        nvml.number("nvmlDeviceGetPowerUsage", nvml.gpu())
        nvml.nvmlDeviceSetPowerManagementLimit(nvml.gpu(), 300000)
        self.assertEqual(nvml.processes(nvml.gpu()), {})

    def test_contexts_can_be_opened_and_closed(self):
        nvml = self.start("2xA100")
        gpu = nvml.gpu(1)
        nvml.harpe_emulator_open_context(1, C.c_uint64(3 << 30))
        nvml.harpe_emulator_open_context(1, C.c_uint64(1 << 30))
        self.assertEqual(nvml.processes(gpu), {os.getpid(): 3 << 30})
        nvml.harpe_emulator_close_context(1)
        self.assertEqual(nvml.processes(gpu), {})
        nvml.harpe_emulator_close_context(1)
        nvml.harpe_emulator_open_context(1, C.c_uint64(0))
        self.assertGreater(nvml.processes(gpu)[os.getpid()], 0)
        self.assertEqual(nvml.code("harpe_emulator_open_context", 2, C.c_uint64(0)),
                         INVALID_ARGUMENT)
        self.assertEqual(nvml.code("harpe_emulator_open_context", 0, C.c_uint64(41 << 30)),
                         INVALID_ARGUMENT)
        nvml.harpe_emulator_close_context(1)

    def test_a_child_of_fork_is_listed_when_it_works_itself(self):
        nvml = self.start()
        nvml.work(0, 0.001)
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(ours, 1)
            nvml.work(0, 0.001)
            os.read(ours, 1)
            os._exit(0)
        self.assertEqual(list(nvml.processes(nvml.gpu())), [os.getpid()])
        os.write(theirs, b"1")
        self.wait_until(lambda: set(nvml.processes(nvml.gpu())) == {os.getpid(), child})
        os.write(theirs, b"2")
        os.waitpid(child, 0)
        self.assertEqual(list(nvml.processes(nvml.gpu())), [os.getpid()])
        nvml.harpe_emulator_close_context(0)

    def test_dead_processes_leave_room_for_others(self):
        nvml = self.start()
        for _ in range(70):
            child = os.fork()
            if child == 0:
                nvml.work(0, 0.0001)
                os._exit(0)
            os.waitpid(child, 0)
        nvml.work(0, 0.001)
        self.assertEqual(list(nvml.processes(nvml.gpu())), [os.getpid()])
