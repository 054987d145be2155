# Made by packaging/completion/make_completions.py out of harpe's help: do not edit.
# shellcheck shell=bash disable=SC2207
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
        COMPREPLY=($(compgen -W 'plan choose evaluate graph gpus monitor profile power-limit run serve jobs store fleet agent synth emulate train-sim help --help --usage --version' -- "$cur"))
        return
    fi
    # Behind -- it is another program's line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        [ "${COMP_WORDS[i]}" = -- ] || continue
        [ $((i + 1)) -lt "$COMP_CWORD" ] || COMPREPLY=($(compgen -c -- "$cur"))
        return
    done
    if [ "$command" = help ]; then
        COMPREPLY=($(compgen -W 'plan choose evaluate graph gpus monitor profile power-limit run serve jobs store fleet agent synth emulate train-sim' -- "$cur"))
        return
    fi
    case $command in
    power-limit | profile | agent | fleet)
        [ "$COMP_CWORD" -eq 2 ] || [ "${COMP_WORDS[2]:0:1}" = - ] ||
            command="$command ${COMP_WORDS[2]}"
        ;;
    esac
    case "$command $prev" in
    'plan --chunks' | 'plan --epilogue' | 'plan --gpus-per-stage' | 'plan --microbatch-group-size' | 'plan -m' | 'plan --num-mbs' | 'plan -n' | 'plan --num-stages' | 'plan --overhead-power' | 'plan --prologue' | 'plan -p' | 'plan --p2p-power' | 'plan --transfer-time' | 'plan --memory-limit' | 'plan --noise-factor' | 'plan --unit-time' | 'plan --slowdown' | 'plan --smooth[' | 'plan --time' | 'plan --max-peak-power' | 'plan --max-swing' | 'plan --min-dwell' | 'plan --plans' | 'plan --switch-energy' | 'plan --threads')
        compopt +o default 2>/dev/null
        return
        ;;
    'plan --graph' | 'plan -i' | 'plan --inst-profile' | 'plan --wait-powers' | 'plan --replica' | 'plan --export-graph')
        return
        ;;
    'plan -s' | 'plan --schedule')
        COMPREPLY=($(compgen -W '1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe' -- "$cur") $(compgen -f -- "$cur"))
        return
        ;;
    'plan --cost-model')
        COMPREPLY=($(compgen -W 'hull exponential' -- "$cur"))
        return
        ;;
    'plan -o' | 'plan --output-dir')
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    'plan --switch-latency')
        COMPREPLY=($(compgen -W 'profile' -- "$cur") $(compgen -f -- "$cur"))
        return
        ;;
    'choose --deadline' | 'choose --max-slowdown' | 'choose --power-cap' | 'choose --straggler' | 'choose --time' | 'choose --carbon' | 'choose --carbon-price' | 'choose --energy-price' | 'choose --gpu-hour-price' | 'choose --iterations' | 'choose --max-peak-power' | 'choose --max-swing' | 'choose --overhead-power')
        compopt +o default 2>/dev/null
        return
        ;;
    'evaluate --chunks' | 'evaluate --epilogue' | 'evaluate --gpus-per-stage' | 'evaluate --microbatch-group-size' | 'evaluate -m' | 'evaluate --num-mbs' | 'evaluate -n' | 'evaluate --num-stages' | 'evaluate --overhead-power' | 'evaluate --prologue' | 'evaluate -p' | 'evaluate --p2p-power' | 'evaluate --transfer-time' | 'evaluate --memory-limit' | 'evaluate --noise-factor' | 'evaluate --unit-time' | 'evaluate --switch-energy' | 'evaluate --switch-lead')
        compopt +o default 2>/dev/null
        return
        ;;
    'evaluate -i' | 'evaluate --inst-profile' | 'evaluate --wait-powers' | 'evaluate -P' | 'evaluate --plan')
        return
        ;;
    'evaluate -s' | 'evaluate --schedule')
        COMPREPLY=($(compgen -W '1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe' -- "$cur") $(compgen -f -- "$cur"))
        return
        ;;
    'evaluate --cost-model')
        COMPREPLY=($(compgen -W 'hull exponential' -- "$cur"))
        return
        ;;
    'evaluate --switch-latency')
        COMPREPLY=($(compgen -W 'profile' -- "$cur") $(compgen -f -- "$cur"))
        return
        ;;
    'graph --communication' | 'graph --step' | 'graph --blocking-power' | 'graph --compute-share' | 'graph --min-activity')
        compopt +o default 2>/dev/null
        return
        ;;
    'graph --format')
        COMPREPLY=($(compgen -W 'kineto chakra' -- "$cur"))
        return
        ;;
    'graph -g' | 'graph --gpu')
        COMPREPLY=($(compgen -W 'V100 A40 A100 H100' -- "$cur"))
        return
        ;;
    'graph -o' | 'graph --output')
        return
        ;;
    'monitor -g' | 'monitor --gpus' | 'monitor -d' | 'monitor --duration' | 'monitor -i' | 'monitor --interval')
        compopt +o default 2>/dev/null
        return
        ;;
    'monitor --rapl-path')
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    'monitor --csv')
        return
        ;;
    'profile p2p -d' | 'profile p2p --duration' | 'profile p2p -g' | 'profile p2p --gpu' | 'profile p2p --peer')
        compopt +o default 2>/dev/null
        return
        ;;
    'profile p2p --python')
        return
        ;;
    'profile convert -o' | 'profile convert --output')
        return
        ;;
    'power-limit replay --epoch-steps' | 'power-limit replay --epochs' | 'power-limit replay --eta' | 'power-limit replay --factor' | 'power-limit replay --pl-step' | 'power-limit replay --profile-steps' | 'power-limit replay --wait-steps' | 'power-limit replay --warmup-steps')
        compopt +o default 2>/dev/null
        return
        ;;
    'power-limit replay --selector')
        COMPREPLY=($(compgen -W 'zeus-cost energy time max-slowdown' -- "$cur"))
        return
        ;;
    'power-limit run --profile' | 'power-limit run --ca-file' | 'power-limit run --token-file')
        return
        ;;
    'power-limit run --eta' | 'power-limit run --factor' | 'power-limit run --pl-step' | 'power-limit run --profile-steps' | 'power-limit run --wait-steps' | 'power-limit run --warmup-steps' | 'power-limit run --group' | 'power-limit run --hold' | 'power-limit run --max-slowdown' | 'power-limit run --member' | 'power-limit run --server' | 'power-limit run --weight')
        compopt +o default 2>/dev/null
        return
        ;;
    'power-limit run --selector')
        COMPREPLY=($(compgen -W 'zeus-cost energy time max-slowdown' -- "$cur"))
        return
        ;;
    'run -j' | 'run --job' | 'run -s' | 'run --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'serve --listen' | 'serve --port' | 'serve --scheduler-args' | 'serve --allowed-hosts' | 'serve --set')
        compopt +o default 2>/dev/null
        return
        ;;
    'serve --scheduler')
        COMPREPLY=($(compgen -W 'PointSolution PointSolution3D AllMaxFrequency HighestFrequency Perseus InstructionProfiler python: program:' -- "$cur"))
        return
        ;;
    'serve --dump-dir' | 'serve --state-dir')
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    'serve --store' | 'serve --audit-log' | 'serve --tls-cert' | 'serve --tls-key' | 'serve --token-file' | 'serve --tokens' | 'serve --config' | 'serve --log-file')
        return
        ;;
    'serve --log-format')
        COMPREPLY=($(compgen -W 'text json' -- "$cur"))
        return
        ;;
    'serve --log-level')
        COMPREPLY=($(compgen -W 'debug info warning error' -- "$cur"))
        return
        ;;
    'jobs --ca-file' | 'jobs --token-file')
        return
        ;;
    'jobs --server' | 'jobs --limit' | 'jobs --search' | 'jobs --sort')
        compopt +o default 2>/dev/null
        return
        ;;
    'store --config' | 'store --store')
        return
        ;;
    'store --state-dir')
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    'fleet --at')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet --prices' | 'fleet -o' | 'fleet --output')
        return
        ;;
    'fleet solve --at')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet solve --prices' | 'fleet solve -o' | 'fleet solve --output')
        return
        ;;
    'fleet simulate --at')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet simulate --prices' | 'fleet simulate -o' | 'fleet simulate --output')
        return
        ;;
    'fleet status --group' | 'fleet status --margin' | 'fleet status --max-slowdown' | 'fleet status --overhead' | 'fleet status --parent' | 'fleet status --priority' | 'fleet status --weight' | 'fleet status --for' | 'fleet status --from' | 'fleet status --note' | 'fleet status --notice' | 'fleet status --ramp' | 'fleet status --share' | 'fleet status --watts' | 'fleet status --carbon-price' | 'fleet status --currency' | 'fleet status --every' | 'fleet status --time-value' | 'fleet status --limit' | 'fleet status --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet status --feed-ca-file' | 'fleet status --ca-file' | 'fleet status --token-file')
        return
        ;;
    'fleet budget --group' | 'fleet budget --margin' | 'fleet budget --max-slowdown' | 'fleet budget --overhead' | 'fleet budget --parent' | 'fleet budget --priority' | 'fleet budget --weight' | 'fleet budget --for' | 'fleet budget --from' | 'fleet budget --note' | 'fleet budget --notice' | 'fleet budget --ramp' | 'fleet budget --share' | 'fleet budget --watts' | 'fleet budget --carbon-price' | 'fleet budget --currency' | 'fleet budget --every' | 'fleet budget --time-value' | 'fleet budget --limit' | 'fleet budget --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet budget --feed-ca-file' | 'fleet budget --ca-file' | 'fleet budget --token-file')
        return
        ;;
    'fleet group --group' | 'fleet group --margin' | 'fleet group --max-slowdown' | 'fleet group --overhead' | 'fleet group --parent' | 'fleet group --priority' | 'fleet group --weight' | 'fleet group --for' | 'fleet group --from' | 'fleet group --note' | 'fleet group --notice' | 'fleet group --ramp' | 'fleet group --share' | 'fleet group --watts' | 'fleet group --carbon-price' | 'fleet group --currency' | 'fleet group --every' | 'fleet group --time-value' | 'fleet group --limit' | 'fleet group --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet group --feed-ca-file' | 'fleet group --ca-file' | 'fleet group --token-file')
        return
        ;;
    'fleet job --group' | 'fleet job --margin' | 'fleet job --max-slowdown' | 'fleet job --overhead' | 'fleet job --parent' | 'fleet job --priority' | 'fleet job --weight' | 'fleet job --for' | 'fleet job --from' | 'fleet job --note' | 'fleet job --notice' | 'fleet job --ramp' | 'fleet job --share' | 'fleet job --watts' | 'fleet job --carbon-price' | 'fleet job --currency' | 'fleet job --every' | 'fleet job --time-value' | 'fleet job --limit' | 'fleet job --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet job --feed-ca-file' | 'fleet job --ca-file' | 'fleet job --token-file')
        return
        ;;
    'fleet load --group' | 'fleet load --margin' | 'fleet load --max-slowdown' | 'fleet load --overhead' | 'fleet load --parent' | 'fleet load --priority' | 'fleet load --weight' | 'fleet load --for' | 'fleet load --from' | 'fleet load --note' | 'fleet load --notice' | 'fleet load --ramp' | 'fleet load --share' | 'fleet load --watts' | 'fleet load --carbon-price' | 'fleet load --currency' | 'fleet load --every' | 'fleet load --time-value' | 'fleet load --limit' | 'fleet load --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet load --feed-ca-file' | 'fleet load --ca-file' | 'fleet load --token-file')
        return
        ;;
    'fleet event --group' | 'fleet event --margin' | 'fleet event --max-slowdown' | 'fleet event --overhead' | 'fleet event --parent' | 'fleet event --priority' | 'fleet event --weight' | 'fleet event --for' | 'fleet event --from' | 'fleet event --note' | 'fleet event --notice' | 'fleet event --ramp' | 'fleet event --share' | 'fleet event --watts' | 'fleet event --carbon-price' | 'fleet event --currency' | 'fleet event --every' | 'fleet event --time-value' | 'fleet event --limit' | 'fleet event --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet event --feed-ca-file' | 'fleet event --ca-file' | 'fleet event --token-file')
        return
        ;;
    'fleet prices --group' | 'fleet prices --margin' | 'fleet prices --max-slowdown' | 'fleet prices --overhead' | 'fleet prices --parent' | 'fleet prices --priority' | 'fleet prices --weight' | 'fleet prices --for' | 'fleet prices --from' | 'fleet prices --note' | 'fleet prices --notice' | 'fleet prices --ramp' | 'fleet prices --share' | 'fleet prices --watts' | 'fleet prices --carbon-price' | 'fleet prices --currency' | 'fleet prices --every' | 'fleet prices --time-value' | 'fleet prices --limit' | 'fleet prices --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet prices --feed-ca-file' | 'fleet prices --ca-file' | 'fleet prices --token-file')
        return
        ;;
    'fleet audit --group' | 'fleet audit --margin' | 'fleet audit --max-slowdown' | 'fleet audit --overhead' | 'fleet audit --parent' | 'fleet audit --priority' | 'fleet audit --weight' | 'fleet audit --for' | 'fleet audit --from' | 'fleet audit --note' | 'fleet audit --notice' | 'fleet audit --ramp' | 'fleet audit --share' | 'fleet audit --watts' | 'fleet audit --carbon-price' | 'fleet audit --currency' | 'fleet audit --every' | 'fleet audit --time-value' | 'fleet audit --limit' | 'fleet audit --server')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet audit --feed-ca-file' | 'fleet audit --ca-file' | 'fleet audit --token-file')
        return
        ;;
    'fleet token --group' | 'fleet token --role' | 'fleet token --watts')
        compopt +o default 2>/dev/null
        return
        ;;
    'fleet token --tokens')
        return
        ;;
    'agent --config' | 'agent --zeusd-key')
        return
        ;;
    'agent --metrics-listen' | 'agent --socket' | 'agent --zeusd-listen' | 'agent --zeusd-socket')
        compopt +o default 2>/dev/null
        return
        ;;
    'agent --state-dir')
        COMPREPLY=($(compgen -d -- "$cur"))
        return
        ;;
    'agent hold --clock' | 'agent hold --gpu' | 'agent hold --power-limit')
        compopt +o default 2>/dev/null
        return
        ;;
    'agent status --socket')
        compopt +o default 2>/dev/null
        return
        ;;
    'agent restore --gpu' | 'agent restore --socket')
        compopt +o default 2>/dev/null
        return
        ;;
    'synth --forward-time' | 'synth --imbalance' | 'synth --noise' | 'synth -n' | 'synth --stages' | 'synth --num-stages' | 'synth --seed' | 'synth --gpus-per-stage' | 'synth --outliers' | 'synth --replicas' | 'synth --variability')
        compopt +o default 2>/dev/null
        return
        ;;
    'synth -g' | 'synth --gpu')
        COMPREPLY=($(compgen -W 'V100 A40 A100 H100' -- "$cur"))
        return
        ;;
    'synth -o' | 'synth --output')
        return
        ;;
    'emulate -c' | 'emulate --cluster' | 'emulate -f' | 'emulate --faults' | 'emulate -g' | 'emulate --gpus' | 'emulate --noise' | 'emulate --physics' | 'emulate --seed' | 'emulate -s' | 'emulate --time-scale')
        compopt +o default 2>/dev/null
        return
        ;;
    'emulate --faults-file' | 'emulate -p' | 'emulate --profile')
        return
        ;;
    'train-sim --chunks' | 'train-sim --dp' | 'train-sim --forward-time' | 'train-sim --imbalance' | 'train-sim --microbatch-group-size' | 'train-sim --num-mbs' | 'train-sim --p2p-power' | 'train-sim --physics' | 'train-sim --pp' | 'train-sim --stages' | 'train-sim --seed' | 'train-sim --tp' | 'train-sim --scheduler-args' | 'train-sim --server' | 'train-sim --kill-rank' | 'train-sim --learning-limit' | 'train-sim --restart-server' | 'train-sim --steps' | 'train-sim --straggler' | 'train-sim --time-scale')
        compopt +o default 2>/dev/null
        return
        ;;
    'train-sim --gpu')
        COMPREPLY=($(compgen -W 'V100 A40 A100 H100' -- "$cur"))
        return
        ;;
    'train-sim -i' | 'train-sim --inst-profile' | 'train-sim --ca-file' | 'train-sim --plan' | 'train-sim --log-steps')
        return
        ;;
    'train-sim --schedule')
        COMPREPLY=($(compgen -W '1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe' -- "$cur"))
        return
        ;;
    'train-sim --scheduler')
        COMPREPLY=($(compgen -W 'Perseus' -- "$cur"))
        return
        ;;
    esac
    if [ "${cur:0:1}" = - ]; then
        case $command in
        'plan') COMPREPLY=($(compgen -W '--chunks --epilogue --gpus-per-stage --graph -i --inst-profile --microbatch-group-size -m --num-mbs -n --num-stages --overhead-power --overlap-moe-expert-parallel-comm --prologue -p --p2p-power -s --schedule --transfer-time --wait-powers --cost-model --memory-limit --noise-factor --unit-time --replica --replicas --slowdown --smooth[ --time --bound-only --export-graph -f --force -j --json --max-peak-power --max-swing --min-dwell --no-pictures -o --output-dir --plans -q --quiet --switch-energy --switch-latency --threads --verify -? --help --usage -V --version' -- "$cur")) ;;
        'choose') COMPREPLY=($(compgen -W '--deadline --max-slowdown --min-energy --power-cap --straggler --time --carbon --carbon-price --energy-price --gpu-hour-price --iterations --max-peak-power --max-swing --overhead-power -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'evaluate') COMPREPLY=($(compgen -W '--chunks --epilogue --gpus-per-stage -i --inst-profile --microbatch-group-size -m --num-mbs -n --num-stages --overhead-power --overlap-moe-expert-parallel-comm --prologue -p --p2p-power -s --schedule --transfer-time --wait-powers --cost-model --memory-limit --noise-factor --unit-time -j --json -P --plan -q --quiet --switch-energy --switch-latency --switch-lead -? --help --usage -V --version' -- "$cur")) ;;
        'graph') COMPREPLY=($(compgen -W '--communication --format --step --blocking-power --compute-share -g --gpu --min-activity -f --force -j --json -o --output -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        'gpus') COMPREPLY=($(compgen -W '-a --all --dry-run -j --json --restore -? --help --usage -V --version' -- "$cur")) ;;
        'monitor') COMPREPLY=($(compgen -W '-g --gpus --no-cpu --rapl-path -d --duration -i --interval --csv -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'profile') COMPREPLY=($(compgen -W '-? --help --usage -V --version' -- "$cur")) ;;
        'profile p2p') COMPREPLY=($(compgen -W '-d --duration -g --gpu --peer --python --torch -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'profile convert') COMPREPLY=($(compgen -W '-f --force -j --json -o --output -? --help --usage -V --version' -- "$cur")) ;;
        'power-limit') COMPREPLY=($(compgen -W '' -- "$cur")) ;;
        'power-limit replay') COMPREPLY=($(compgen -W '--epoch-steps --epochs --eta --factor --selector --pl-step --profile-steps --wait-steps --warmup-steps -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'power-limit run') COMPREPLY=($(compgen -W '--no-guard --profile --eta --factor --selector --pl-step --profile-steps --wait-steps --warmup-steps --ca-file --group --hold --max-slowdown --member --server --token-file --weight -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'run') COMPREPLY=($(compgen -W '-j --job -m --measure-only -p --power-limit -s --server -? --help --usage -V --version' -- "$cur")) ;;
        'serve') COMPREPLY=($(compgen -W '--listen --port --scheduler --scheduler-args --dump-dir --no-dump --state-dir --store --allowed-hosts --audit-log --insecure --tls-cert --tls-key --token-file --tokens --config --print-settings --set --log-file --log-format --log-level -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        'jobs') COMPREPLY=($(compgen -W '--ca-file --server --token-file -j --json --limit -q --quiet --search --sort -y --yes -? --help --usage -V --version' -- "$cur")) ;;
        'store') COMPREPLY=($(compgen -W '--config --state-dir --store --force -j --json -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        'fleet') COMPREPLY=($(compgen -W '--at --prices -f --force -j --json -o --output -? --help --usage -V --version' -- "$cur")) ;;
        'fleet solve') COMPREPLY=($(compgen -W '--at --prices -f --force -j --json -o --output -? --help --usage -V --version' -- "$cur")) ;;
        'fleet simulate') COMPREPLY=($(compgen -W '--at --prices -f --force -j --json -o --output -? --help --usage -V --version' -- "$cur")) ;;
        'fleet status') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet budget') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet group') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet job') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet load') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet event') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet prices') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet audit') COMPREPLY=($(compgen -W '--group --margin --max-slowdown --overhead --parent --priority --weight --exceed-slowdown --for --from --note --notice --ramp --share --watts --carbon-price --currency --every --feed-ca-file --time-value --limit --ca-file --server --token-file -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'fleet token') COMPREPLY=($(compgen -W '--group --role --tokens --watts -j --json -? --help --usage -V --version' -- "$cur")) ;;
        'agent') COMPREPLY=($(compgen -W '--config --metrics-listen --socket --state-dir --zeusd-key --zeusd-listen --zeusd-no-restore --zeusd-socket -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        'agent hold') COMPREPLY=($(compgen -W '--clock --gpu --power-limit --wait -? --help --usage -V --version' -- "$cur")) ;;
        'agent status') COMPREPLY=($(compgen -W '-j --json --socket -? --help --usage -V --version' -- "$cur")) ;;
        'agent restore') COMPREPLY=($(compgen -W '--gpu --socket -? --help --usage -V --version' -- "$cur")) ;;
        'synth') COMPREPLY=($(compgen -W '--forward-time -g --gpu --imbalance --noise -n --stages --num-stages --seed --split-backward --gpus-per-stage --outliers --replicas --variability -f --force -j --json -o --output -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        'emulate') COMPREPLY=($(compgen -W '-c --cluster --faults-file -f --faults -g --gpus --noise --physics -p --profile --seed -s --time-scale --visible-to-torch -? --help --usage -V --version' -- "$cur")) ;;
        'train-sim') COMPREPLY=($(compgen -W '--chunks --dp --forward-time --gpu --imbalance -i --inst-profile --microbatch-group-size --num-mbs --overlap-moe-expert-parallel-comm --p2p-power --physics --pp --stages --schedule --seed --tp --anticipate --ca-file --offline --plan --scheduler --scheduler-args --server --kill-rank --learning-limit --mpi --real-time --restart-server --steps --straggler --time-scale --json --log-steps -q --quiet -? --help --usage -V --version' -- "$cur")) ;;
        esac
    elif [ "$COMP_CWORD" -eq 2 ]; then
        case $command in
        power-limit) COMPREPLY=($(compgen -W 'replay run' -- "$cur")) ;;
        profile) COMPREPLY=($(compgen -W 'p2p convert' -- "$cur")) ;;
        jobs) COMPREPLY=($(compgen -W 'list link show watch evict' -- "$cur")) ;;
        monitor) COMPREPLY=($(compgen -W 'energy power' -- "$cur")) ;;
        graph) COMPREPLY=($(compgen -W 'import' -- "$cur")) ;;
        fleet) COMPREPLY=($(compgen -W 'solve simulate status budget group job load event prices audit token' -- "$cur")) ;;
        store) COMPREPLY=($(compgen -W 'backup check restore accept' -- "$cur")) ;;
        agent) COMPREPLY=($(compgen -W 'hold status restore' -- "$cur")) ;;
        esac
    fi
}
# Without an answer above: files.
complete -o default -F _harpe harpe
