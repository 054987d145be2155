# SPDX-License-Identifier: Apache-2.0
"""Reads and checks Prometheus' text format, for the tests of /metrics."""
import re
import shutil
import subprocess

SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def unescape(value):
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)


def parse(text):
    """Returns {name: {labels as sorted pairs: value}} of an exposition. Checks its form."""
    types, helps, samples = {}, set(), {}
    family = None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in helps, f"HELP of {family} twice"
            helps.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and name not in types, line
            types[name] = kind
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if family != name else name
            assert base == family, f"{name} stands among those of {family}"
            pairs = LABEL.findall(labels or "")
            assert "".join(f'{k}="{v}",' for k, v in pairs).rstrip(",") == (labels or ""), line
            key = tuple(sorted((k, unescape(v)) for k, v in pairs))
            assert key not in samples.setdefault(name, {}), f"twice: {line}"
            samples[name][key] = float(value)
    for name, kind in types.items():
        assert (kind == "counter") == name.endswith("_total"), name
    assert helps == set(types)
    return samples


def of_job(text, job_id, label):
    """Returns the metrics of a job, {name: value}; with this label: {"name value-of-the-label": value}."""
    found = {}
    for name, samples in parse(text).items():
        for labels, value in samples.items():
            labels = dict(labels)
            if labels.get("job_id") == job_id:
                words = (name.removeprefix("harpe_job_"), labels.get(label))
                found[" ".join(filter(None, words))] = value
    return found


def promtool(*arguments, text=None):
    """Returns what promtool finds wrong: "" if nothing, or if promtool is not installed, which is
    then said."""
    if not shutil.which("promtool"):
        print("skipped: promtool is not installed (Debian package prometheus)")
        return ""
    done = subprocess.run(["promtool", *arguments], input=text, text=True, capture_output=True,
                          check=False)
    is_right = done.returncode == 0 and (arguments[1] != "metrics" or not done.stdout + done.stderr)
    return "" if is_right else f"exit {done.returncode}\n{done.stdout}{done.stderr}"
