#!/usr/bin/env bash
# Checks ./demo and ./check on a simulated machine without make, git, cmake and a compiler.
# Stand-ins record their calls, and the installation of a package adds its command.
#
# Usage: two_commands.sh <project root>
set -u
source=$(cd -- "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
project=$folder/project
log=$folder/log
status=0

# pretend <command> <shell text>: adds a stand-in to the PATH of the simulated machine.
pretend() {
    printf '#!/bin/bash\n%s\n' "$2" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

new_machine() {
    local tool
    rm -rf -- "$folder/bin" "$project" "$log"
    mkdir -p "$folder/bin" "$folder/tools" "$project/scripts"
    for tool in sh bash dirname tr cut env cat nproc true chmod; do
        ln -s "$(type -P "$tool")" "$folder/bin/$tool"
    done
    cp "$source/demo" "$source/check" "$project"
    cp "$source"/scripts/{bootstrap.sh,apt_get.sh,packages.txt} "$project/scripts"
    for tool in demo check; do
        printf '#!/bin/bash\necho "%s.sh $PWD ${PROFILE-} ${P2P_POWER-} ${NUM_MBS-}" >>%q\n' "$tool" "$log" \
            >"$project/scripts/$tool.sh"
        chmod +x "$project/scripts/$tool.sh"
    done
    pretend dpkg-query ''
    pretend id 'echo 0'
    pretend apt-get "echo \"apt-get \$*\" >>'$log'
case \$* in *' -y '*' cmake '*)
printf '#!/bin/bash\necho \"cmake \$PWD \$*\" >>%s\n' '$log' >'$folder/bin/cmake'; chmod +x '$folder/bin/cmake' ;; esac"
}

# run <folder> <command...>: runs it there as the machine's user would.
run() {
    (cd -- "$1" && shift &&
        exec env -i PATH="$folder/bin" "$@" >"$folder/out" 2>"$folder/err" </dev/null)
}

expect() {
    local what=$1
    shift
    if ! "$@"; then
        printf 'FAILED: %s\n' "$what"
        head -n 5 "$folder/out" "$folder/err" "$log" 2>/dev/null
        status=1
    fi
}

called() { cut -d ' ' -f 1,2 "$log" | tr '\n' ';'; }
fails_with() {
    local wanted=$1
    shift
    run "$@"
    [ $? -eq "$wanted" ]
}

new_machine
expect './demo works on an empty machine' run "$project" ./demo
expect './demo installs, configures, builds and runs, in that order' test "$(called)" = \
    "apt-get update;apt-get install;apt-get install;cmake $project;cmake $project;demo.sh $project;"
expect './demo announces what it installs' grep -q 'bootstrap: installing make cmake .*(for: build)' "$folder/out"
expect './demo installs make' grep -q 'install -y .* make cmake ' "$log"
expect './demo installs nothing for tests' eval '! grep -q clang-tidy "$log"'
expect './demo builds the release' grep -q -- '--build --preset release -j [0-9]' "$log"

new_machine
pretend id 'echo 1000'
pretend sudo "echo sudo \"\$*\" >>'$log'; exec \"\$@\""
expect './check works for a user with sudo' run "$project" ./check
expect './check installs with sudo' grep -q '^sudo env .*apt-get install -y .* libcmocka-dev ' "$log"
expect './check says what for' grep -q '(for: build check' "$folder/out"
expect './check runs the tests last' test "$(tail -n 1 "$log" | cut -d ' ' -f 1)" = check.sh

for command in demo check; do
    new_machine
    pretend id 'echo 1000'
    expect "./$command fails without root and sudo" fails_with 1 "$project" "./$command"
    expect "./$command says what root has to run" grep -q 'as root, run: apt-get update && apt-get install' \
        "$folder/err"
    expect "./$command says it in one line" test "$(wc -l <"$folder/err")" -eq 1
    expect "./$command then does nothing else" test ! -e "$log"

    for option in --help -h; do
        expect "./$command $option succeeds" run "$project" "./$command" "$option"
        expect "./$command $option says how to call it" grep -q "^Usage: ./$command" "$folder/out"
        expect "./$command $option prints no error" test ! -s "$folder/err"
    done
    for wrong in --verbose fast '' ' ' PROFILE= '--help me'; do
        expect "./$command '$wrong' is refused" fails_with 2 "$project" "./$command" "$wrong"
        expect "./$command '$wrong' is answered in one line" test "$(wc -l <"$folder/err")" -eq 1
        expect "./$command '$wrong' is told of --help" grep -q -- "./$command --help" "$folder/err"
        expect "./$command '$wrong' prints nothing else" test ! -s "$folder/out"
    done
    expect "./$command with two arguments is refused" fails_with 2 "$project" "./$command" a b
    expect "bad usage of ./$command installs nothing" test ! -e "$log"
done

new_machine
expect './demo works from another folder' run "$folder" project/demo PROFILE='my file.csv' NUM_MBS=16 P2P_POWER=75
expect './demo builds in its own folder' grep -q "^cmake $project --preset release" "$log"
expect 'a profile is looked for where the user is' grep -qx "demo.sh $folder my file.csv 75 16" "$log"

new_machine
expect 'HARPE_NO_BOOTSTRAP is respected' fails_with 127 "$project" env HARPE_NO_BOOTSTRAP=1 ./demo
expect 'HARPE_NO_BOOTSTRAP installs nothing' test ! -e "$log"

expect 'make demo is ./demo' test "$(make -s -n -C "$source" demo | tail -n 1)" = ./demo
expect 'make check is ./check' test "$(make -s -n -C "$source" check | tail -n 1)" = ./check

exit $status
