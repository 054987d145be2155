# SPDX-License-Identifier: Apache-2.0
"""Checks the Kubernetes manifests and the Helm chart of the node agent without a cluster: the
schemas of Kubernetes accept every document, the chart renders the plain manifests, and the pods
have only the privileges that they need. Uses kubernetes-validate (PyPI), helm and PyYAML if they
are installed; HARPE_KUBERNETES_VALIDATE and HARPE_HELM can name programs that are not in PATH."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

SOURCE = pathlib.Path(os.environ["HARPE_SOURCE_DIR"])
MANIFESTS = sorted((SOURCE / "packaging" / "kubernetes").glob("*.yaml"))
CHART = SOURCE / "packaging" / "helm" / "harpe-agent"
VALIDATE = os.environ.get("HARPE_KUBERNETES_VALIDATE") or shutil.which("kubernetes-validate")
HELM = os.environ.get("HARPE_HELM") or shutil.which("helm")
KUBERNETES = "1.31.0"
VERSION = re.search(r"^project\(Harpe VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text(), re.M)[1]

needs_validator = unittest.skipUnless(VALIDATE, "kubernetes-validate not found: pip install kubernetes-validate")
needs_helm = unittest.skipUnless(HELM, "helm not found")
needs_yaml = unittest.skipUnless(yaml, "PyYAML not found: apt-get install python3-yaml")


def run(*command):
    return subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def render(*options):
    done = run(HELM, "template", "harpe-agent", CHART, "--namespace", "harpe", "--kube-version", KUBERNETES, *options)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


def documents(text):
    return [each for each in yaml.safe_load_all(text) if each]


def plain():
    """Returns all plain documents by kind."""
    return {each["kind"]: each for path in MANIFESTS for each in documents(path.read_text())}


class Schemas(unittest.TestCase):
    def validate(self, text):
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            path = pathlib.Path(folder, "documents.yaml")
            path.write_text(text)
            return run(VALIDATE, "--strict", path)

    @needs_validator
    def test_the_schemas_accept_the_manifests(self):
        self.assertGreaterEqual(len(MANIFESTS), 4)
        for path in MANIFESTS:
            with self.subTest(path.name):
                done = self.validate(path.read_text())
                self.assertEqual(done.returncode, 0, done.stdout)

    @needs_validator
    def test_the_validator_finds_faults(self):
        good = (SOURCE / "packaging" / "kubernetes" / "daemonset.yaml").read_text()
        for old, new in (("hostPID: true", "hostPID: often"), ("hostPID: true", "hostPid: true"),
                         ("periodSeconds: 60", "periodSeconds: [60]"), ("  selector:", "  selectors:")):
            with self.subTest(new):
                self.assertIn(old, good)
                self.assertNotEqual(self.validate(good.replace(old, new)).returncode, 0)

    @needs_validator
    @needs_helm
    def test_the_schemas_accept_what_the_chart_renders(self):
        for options in ((), ("--set", "privileged=true"), ("--set", "runtimeClassName=,priorityClassName="),
                        ("--set", "nodeSelector=null,tolerations=null,resources=null"),
                        ("--set-string", "podAnnotations.note=yes", "--set", "image.pullSecrets[0].name=key"),
                        ("--set-string", "extraArgs[0]=--quiet,image.tag=1e3")):
            with self.subTest(options):
                done = self.validate(render(*options))
                self.assertEqual(done.returncode, 0, done.stdout)


class Chart(unittest.TestCase):
    @needs_helm
    def test_lint(self):
        done = run(HELM, "lint", "--strict", "--kube-version", KUBERNETES, CHART)
        self.assertEqual(done.returncode, 0, done.stdout)

    @needs_helm
    @needs_yaml
    def test_the_chart_renders_to_the_plain_manifests(self):
        rendered = {each["kind"]: each for each in documents(render())}
        expected = plain()
        self.assertEqual(rendered["ServiceAccount"], expected["ServiceAccount"])
        self.assertEqual(rendered["ConfigMap"], expected["ConfigMap"])
        self.assertEqual(rendered["DaemonSet"]["spec"]["template"]["spec"], expected["DaemonSet"]["spec"]["template"]["spec"])
        self.assertEqual(rendered["DaemonSet"]["spec"]["updateStrategy"], expected["DaemonSet"]["spec"]["updateStrategy"])

    @needs_helm
    @needs_yaml
    def test_a_change_of_the_rules_restarts_the_agents(self):
        def annotations(*options):
            spec = next(each for each in documents(render(*options)) if each["kind"] == "DaemonSet")["spec"]
            return spec["template"]["metadata"]["annotations"]
        self.assertEqual(annotations(), annotations())
        self.assertNotEqual(annotations(), annotations("--set", "rules=allow_users = alice"))

    @needs_helm
    @needs_yaml
    def test_rules_of_several_lines_and_odd_options_arrive_unchanged(self):
        rules = "# a comment: with a colon\nallow_users = alice, 1000\ndefault_locked_clocks = all 210 1410\n"
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as values:
            yaml.safe_dump({"rules": rules, "extraArgs": ["--zeusd-socket", "/run/harpe/{{ zeusd }}.sock", "yes"]}, values)
            values.flush()
            rendered = {each["kind"]: each for each in documents(render("--values", values.name))}
        self.assertEqual(rendered["ConfigMap"]["data"]["agent.conf"], rules)
        container = rendered["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["args"][-3:], ["--zeusd-socket", "/run/harpe/{{ zeusd }}.sock", "yes"])


@needs_yaml
class Documents(unittest.TestCase):
    def test_versions(self):
        self.assertEqual(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], VERSION)
        for kind, of in (("DaemonSet", lambda each: each["spec"]["template"]["spec"]), ("Pod", lambda each: each["spec"])):
            self.assertEqual(of(plain()[kind])["containers"][0]["image"], f"harpe-agent:{VERSION}")

    def test_the_agent_sees_the_holders_and_has_time_to_restore(self):
        spec = plain()["DaemonSet"]["spec"]["template"]["spec"]
        self.assertIs(spec["hostPID"], True)
        self.assertGreater(spec["terminationGracePeriodSeconds"], 60)
        context = spec["containers"][0]["securityContext"]
        self.assertEqual(context["capabilities"], {"drop": ["ALL"], "add": ["SYS_ADMIN"]})
        self.assertNotIn("privileged", context)

    def test_the_pod_mounts_the_directory_of_the_agent(self):
        everything = plain()

        def directory(spec):
            mount = next(each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == "/run/harpe")
            return next(each["hostPath"]["path"] for each in spec["volumes"] if each["name"] == mount["name"])
        pod = everything["Pod"]["spec"]
        self.assertEqual(directory(pod), directory(everything["DaemonSet"]["spec"]["template"]["spec"]))
        self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
        self.assertNotIn("hostPID", pod)

    def test_the_agent_accepts_the_rules(self):
        harpe = os.environ["HARPE"]
        with tempfile.TemporaryDirectory(prefix="harpe-test-") as folder:
            for rules in (plain()["ConfigMap"]["data"]["agent.conf"],
                          (SOURCE / "packaging" / "agent.conf.example").read_text(),
                          re.sub(r"^#(?=\w)", "", (SOURCE / "packaging" / "agent.conf.example").read_text()
                                 .replace("#allow_groups = training", "#allow_groups = root"), flags=re.M)):
                path = pathlib.Path(folder, "agent.conf")
                path.write_text(rules)
                # The agent reads the rules before it looks for a driver. This test has no driver.
                done = subprocess.run([harpe, "agent", "--config", path, "--socket", f"{folder}/agent.sock"],
                                      env=dict(os.environ, HARPE_NVML_LIBRARY=f"{folder}/none"), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
                self.assertNotIn("agent.conf", done.stdout)
                path.write_text(rules + "\nno_such_rule = 1\n")
                done = subprocess.run([harpe, "agent", "--config", path], text=True, timeout=120,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertIn("no_such_rule", done.stdout)
                self.assertEqual(done.returncode, 2)
