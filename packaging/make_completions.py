#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes harpe.bash, harpe.zsh and harpe.fish from the output of `harpe COMMAND --help`. The build runs
it (cmake/HarpeInstall.cmake).

Usage: make_completions.py HARPE DIRECTORY
"""
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

# The words that may follow a command. After the commands of HAVE_OWN_OPTIONS, each word has options
# of its own.
SUBCOMMANDS = {"power-limit": ["replay", "run"], "profile": ["p2p", "convert"],
               "jobs": ["list", "link", "show", "watch", "evict"], "monitor": ["energy", "power"],
               "graph": ["import"], "fleet": ["solve", "simulate", "status", "budget", "group",
                                                     "job", "load", "event", "prices", "audit", "token"],
               "store": ["backup", "check", "restore", "accept"],
               "agent": ["hold", "status", "restore"]}
HAVE_OWN_OPTIONS = ("power-limit", "profile", "agent", "fleet")
# Values of options, by option and the name of its argument; every one must be in the help text.
VALUES = {
    ("cost-model", "NAME"): "hull exponential",
    ("plans", "all|N|none"): "all none",
    ("format", "FORMAT"): "kineto chakra",
    ("switch-latency", "S|FILE"): "profile",
    ("gpu", "MODEL"): "V100 A40 A100 H100",
    ("selector", "NAME"): "zeus-cost energy time max-slowdown",
    ("log-level", "LEVEL"): "debug info warning error",
    ("log-format", "FORMAT"): "text json",
    ("scheduler", "NAME"): "Perseus",
}
MORE_VALUES = {("serve", "scheduler"): "PointSolution PointSolution3D AllMaxFrequency "
                                       "HighestFrequency Perseus InstructionProfiler "
                                       "python: program:",
               ("tune", "knob"): "clock limit clock,limit"}
FILES = re.compile(r"^(FILE|FILE\.py|NAME\|FILE|S\|FILE|WHERE|PROGRAM)$")
OPTION = re.compile(r"^  (?:-(\S), |    )(--\S.*?)(?:(?<=\S)  +(\S.*))?$")
HEADER = "# Made by packaging/make_completions.py out of harpe's help: do not edit.\n"


@dataclass
class Option:
    short: str
    longs: list
    argument: str  # "" when it takes none
    text: str
    values: list = field(default_factory=list)

    @property
    def names(self):
        return ([f"-{self.short}"] if self.short else []) + [f"--{name}" for name in self.longs]

    @property
    def kind(self):
        """How a shell completes the argument: with values, files or directories. "none": there is no
        argument; "words": the shell offers nothing."""
        if not self.argument:
            return "none"
        if self.values and "FILE" not in self.argument:
            return "values"
        if FILES.match(self.argument):
            return "files"
        return "directories" if self.argument == "DIR" else "words"


# ---- Reading the help ----------------------------------------------------------------------------


def help_of(harpe, *words):
    return subprocess.run([harpe, *words, "--help"], check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout


def short_text(text):
    """Returns the first clause of the text, which is enough for a menu, or the whole text if that
    clause is only one word."""
    whole = " ".join(text.split())
    clause = re.split(r"; |: | \(|\. ", whole)[0].rstrip(".:;")
    return clause if " " in clause else whole


def schedules(text):
    """Returns the names that the help of harpe plan lists under "Schedules:"."""
    table = re.search(r"^Schedules:\n((?: .*\n)+)", text, re.MULTILINE).group(1)
    return re.findall(r"^  (\S+)", table, re.MULTILINE)


def values_of(command, option, text):
    name = option.longs[0]
    given = MORE_VALUES.get((command, name), VALUES.get((name, option.argument), ""))
    for value in given.split():
        if value.rstrip(":") not in text:
            sys.exit(f"harpe {command} --help knows no {value} for --{name}: see VALUES in {__file__}")
    return given.split()


def options_of(command, text):
    options = []
    for line in re.split(r"^(?:Mandatory|Example)", text, flags=re.MULTILINE)[0].splitlines():
        match = OPTION.match(line)
        if match:
            names = match.group(2).split(", ")
            options.append(Option(match.group(1) or "", [n[2:].split("=")[0] for n in names],
                                  names[0].partition("=")[2], match.group(3) or ""))
        elif options and re.match(r" {20,}\S", line):
            options[-1].text += " " + line.strip()
    for option in options:
        option.text = short_text(option.text)
        option.values = values_of(command, option, text)
    return options


def read_commands(harpe):
    """Returns {command: summary} and {"command" or "command word": options}."""
    groups = help_of(harpe).partition("\nOptions:\n")[0]
    summaries = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", groups, re.MULTILINE))
    options, names = {}, schedules(help_of(harpe, "plan"))
    for command in summaries:
        options[command] = options_of(command, help_of(harpe, command))
        for word in SUBCOMMANDS.get(command, []) if command in HAVE_OWN_OPTIONS else []:
            options[f"{command} {word}"] = options_of(command, help_of(harpe, command, word))
        for option in options[command]:
            if option.longs[0] == "schedule":
                option.values = names
    return summaries, options


# ---- bash ----------------------------------------------------------------------------------------

BASH = r"""# shellcheck shell=bash disable=SC2207
_harpe() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} i
    # bash takes --option=value apart at the sign.
    if [ "$cur" = = ]; then
        cur=
    elif [ "$prev" = = ]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '@COMMANDS@ help --help --usage --version' -- "$cur"))
        return
    fi
    # Behind -- it is another program's line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        [ "${COMP_WORDS[i]}" = -- ] || continue
        [ $((i + 1)) -lt "$COMP_CWORD" ] || COMPREPLY=($(compgen -c -- "$cur"))
        return
    done
    if [ "$command" = help ]; then
        COMPREPLY=($(compgen -W '@COMMANDS@' -- "$cur"))
        return
    fi
    case $command in
    @OWN@)
        [ "$COMP_CWORD" -eq 2 ] || [ "${COMP_WORDS[2]:0:1}" = - ] ||
            command="$command ${COMP_WORDS[2]}"
        ;;
    esac
    case "$command $prev" in
@ARGUMENTS@
    esac
    if [ "${cur:0:1}" = - ]; then
        case $command in
@OPTIONS@
        esac
    elif [ "$COMP_CWORD" -eq 2 ]; then
        case $command in
@SUBCOMMANDS@
        esac
    fi
}
# Without an answer above: files.
complete -o default -F _harpe harpe
"""


def bash(summaries, options):
    arguments, words = [], []
    for command, of_command in options.items():
        by_answer = {}
        for option in of_command:
            if option.kind != "none":
                answer = {"values": f"COMPREPLY=($(compgen -W '{' '.join(option.values)}' -- \"$cur\"))",
                          "files": "return", "directories": 'COMPREPLY=($(compgen -d -- "$cur"))',
                          "words": "compopt +o default 2>/dev/null"}[option.kind]
                if option.values and option.kind == "files":
                    answer = (f"COMPREPLY=($(compgen -W '{' '.join(option.values)}' -- \"$cur\") "
                              "$(compgen -f -- \"$cur\"))")
                by_answer.setdefault(answer, []).extend(option.names)
        for answer, names in by_answer.items():
            pattern = " | ".join(f"'{command} {name}'" for name in names)
            lines = [answer] if answer == "return" else [answer, "return"]
            arguments.append(f"    {pattern})\n" + "".join(f"        {line}\n" for line in lines) +
                             "        ;;")
        names = " ".join(name for option in of_command for name in option.names)
        words.append(f"        '{command}') COMPREPLY=($(compgen -W '{names}' -- \"$cur\")) ;;")
    subcommands = [f"        {command}) COMPREPLY=($(compgen -W '{' '.join(of)}' -- \"$cur\")) ;;"
                   for command, of in SUBCOMMANDS.items()]
    text = BASH
    for name, value in (("COMMANDS", " ".join(summaries)), ("ARGUMENTS", "\n".join(arguments)),
                        ("OPTIONS", "\n".join(words)), ("SUBCOMMANDS", "\n".join(subcommands)),
                        ("OWN", " | ".join(HAVE_OWN_OPTIONS))):
        text = text.replace(f"@{name}@", value)
    return HEADER + text


# ---- zsh -----------------------------------------------------------------------------------------

ZSH = r"""_harpe() {
    local context state state_descr line
    typeset -A opt_args
    _arguments -C '1:command:->commands' '*::argument:->arguments' \
        '(-)--help[Give this help list]' '(-)--version[Print program version]'
    case $state in
    commands)
        local -a commands=(
@COMMANDS@
            'help:The same as harpe COMMAND --help'
        )
        _describe command commands
        ;;
    arguments)
        local command=$words[1]
        case $command in
        @OWN@)
            if ((CURRENT > 2)); then
                command="$command $words[2]"
                shift words
                ((CURRENT--))
            fi
            ;;
        esac
        case $command in
@OPTIONS@
        esac
        ;;
    esac
}
_harpe "$@"
"""


def zsh_quoted(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_specs(option):
    action = {"none": "", "files": ":_files", "directories": ":_files -/", "words": ": ",
              "values": f":({' '.join(option.values)})"}[option.kind]
    if option.values and option.kind == "files":
        action = f": _alternative \"v\\:name\\:({' '.join(option.values)})\" \"f\\:file\\:_files\""
    argument = f":{zsh_quoted(option.argument)}{action}" if option.argument else ""
    several = "*" if option.longs[0] == "plan" and option.argument == "FILE" else ""
    apart = "" if several else f"({' '.join(option.names).replace('?', chr(92) + '?')})"
    for name in option.names:
        sign = ("=" if name.startswith("--") else "+") if argument else ""
        yield f"'{apart}{several}{name.replace('?', chr(92) + '?')}{sign}[{zsh_quoted(option.text)}]{argument}'"


def zsh(summaries, options):
    commands = [f"            '{name}:{zsh_quoted(text)}'" for name, text in summaries.items()]
    cases = []
    for command, of_command in options.items():
        specs = [spec for option in of_command for spec in zsh_specs(option)]
        if command in SUBCOMMANDS:
            specs.append(f"'1:what:({' '.join(SUBCOMMANDS[command])})'")
        specs.append("'*:file:_files'" if command not in ("emulate", "run") else "'*::command:_normal'")
        body = " \\\n                ".join(specs)
        cases.append(f"        '{command}')\n            _arguments -s -S \\\n"
                     f"                {body}\n            ;;")
    cases.append(f"        help)\n            _values command {' '.join(summaries)}\n            ;;")
    text = ZSH
    for name, value in (("COMMANDS", "\n".join(commands)), ("OPTIONS", "\n".join(cases)),
                        ("OWN", " | ".join(HAVE_OWN_OPTIONS))):
        text = text.replace(f"@{name}@", value)
    return "#compdef harpe\n" + HEADER + text


# ---- fish ----------------------------------------------------------------------------------------


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(summaries, options):
    lines = [f"complete -c harpe -n __fish_use_subcommand -f -a {name} -d {fish_quoted(text)}"
             for name, text in summaries.items()]
    lines.append("complete -c harpe -n __fish_use_subcommand -f -a help")
    lines.append("complete -c harpe -n __fish_use_subcommand -l help -l version")
    lines.append("complete -c harpe -n '__fish_seen_subcommand_from help' -f -a "
                 f"{fish_quoted(' '.join(summaries))}")
    for command, of in SUBCOMMANDS.items():
        lines.append(f"complete -c harpe -n '__fish_seen_subcommand_from {command}; and not "
                     f"__fish_seen_subcommand_from {' '.join(of)}' -f -a {fish_quoted(' '.join(of))}")
    for command, of_command in options.items():
        words = command.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        if command in HAVE_OWN_OPTIONS:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(SUBCOMMANDS[command])}"
        for option in of_command:
            names = (f"-s {fish_quoted(option.short)} " if option.short else "") + " ".join(
                f"-l {name}" for name in option.longs)
            kind = {"none": "", "files": " -r -F", "directories": " -x -a '(__fish_complete_directories)'",
                    "words": " -x", "values": " -x"}[option.kind]
            values = f" -a {fish_quoted(' '.join(option.values))}" if option.values else ""
            lines.append(f"complete -c harpe -n '{seen}' {names}{kind}{values} "
                         f"-d {fish_quoted(option.text)}")
    return HEADER + "\n".join(lines) + "\n"


def main():
    harpe = sys.argv[1]
    directory = pathlib.Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    summaries, options = read_commands(harpe)
    for shell, make in (("bash", bash), ("zsh", zsh), ("fish", fish)):
        (directory / f"harpe.{shell}").write_text(make(summaries, options), encoding="utf-8")


main()
