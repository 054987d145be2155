#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that packaging/make_completions.py makes completions out of the program's help which the installed shells accept
and use.

Usage: completion.py <project root> <harpe>
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

# The line typed so far -> some of the words that must be offered.
QUESTIONS = [
    ("harpe tra", {"train-sim"}),
    ("harpe help ev", {"evaluate"}),
    ("harpe plan --sch", {"--schedule"}),
    ("harpe plan --schedule zb-", {"zb-h1", "zb-v"}),
    ("harpe power-limit re", {"replay"}),
    ("harpe power-limit replay --sel", {"--selector"}),
    ("harpe power-limit run --gu", set()),
    ("harpe jobs ev", {"evict"}),
    ("harpe agent ho", {"hold"}),
    ("harpe agent --quiet --con", {"--config"}),
    ("harpe agent hold --power", {"--power-limit"}),
    ("harpe serve --log-level war", {"warning"}),
    ("harpe plan --num-mbs 8 --inst-profile prof", {"profile.csv"}),
]


def ask_bash(script, line, directory):
    words = line.split()
    question = (f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
                "_harpe; printf '%s\\n' \"${COMPREPLY[@]}\" $(compgen -f -- \"${COMP_WORDS[-1]}\")")
    return run(["bash", "-c", question], directory)


def ask_fish(script, line, directory):
    return run(["fish", "--no-config", "-c", f"source {script}; complete -C {line!r}"], directory)


def run(command, directory):
    done = subprocess.run(command, cwd=directory, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)
    if done.returncode or done.stderr:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stderr}")
    # fish adds a tab and a description to each word.
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


def main():
    root, harpe = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="harpe-completion-") as name:
        directory = pathlib.Path(name)
        (directory / "profile.csv").touch()
        subprocess.run([sys.executable, root / "packaging" / "make_completions.py", harpe, directory],
                       check=True)
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                run([shell, "-n", str(directory / f"harpe.{shell}")], directory)
            else:
                print(f"{shell} is not installed: its script was not read")
        for shell, ask in (("bash", ask_bash), ("fish", ask_fish)):
            for line, expected in QUESTIONS if shutil.which(shell) else []:
                answers = ask(directory / f"harpe.{shell}", line, directory)
                if not expected <= answers:
                    wrong.append(f"{shell}: {line!r} offers {sorted(answers)}, not {expected}")
    print("\n".join(wrong) or "the shells accept the completions")
    sys.exit(1 if wrong else 0)


main()
