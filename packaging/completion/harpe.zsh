#compdef harpe
# Made by packaging/completion/make_completions.py out of harpe's help: do not edit.
_harpe() {
    local context state state_descr line
    typeset -A opt_args
    _arguments -C '1:command:->commands' '*::argument:->arguments' \
        '(-)--help[Give this help list]' '(-)--version[Print program version]'
    case $state in
    commands)
        local -a commands=(
            'plan:Compute the time-energy frontier and frequency plans'
            'choose:Choose a plan from a plan directory'
            'evaluate:Real time and energy of plan files'
            'graph:Make a graph from the traces of a job'
            'gpus:Show the GPUs, and how to solve problems'
            'monitor:Measure a command'\''s energy, or show it live'
            'profile:Measure waits and changes of clock, or convert dumps'
            'power-limit:Find the GPU power limit that suits a job'
            'run:Run a training script with the adapter that fits it'
            'serve:Coordinate jobs\: the pipeline frequency optimizer'\''s server'
            'jobs:Show the jobs of a server, or evict a job'
            'store:Back up, check or restore the store of a server'
            'fleet:Split a power budget over many jobs'
            'agent:Lend GPUs to jobs without root, and restore them'
            'synth:Make a synthetic but plausible profile'
            'emulate:Run a command on emulated GPUs'
            'train-sim:Run a training job on emulated GPUs'
            'help:The same as harpe COMMAND --help'
        )
        _describe command commands
        ;;
    arguments)
        local command=$words[1]
        case $command in
        power-limit | profile | agent | fleet)
            if ((CURRENT > 2)); then
                command="$command $words[2]"
                shift words
                ((CURRENT--))
            fi
            ;;
        esac
        case $command in
        'plan')
            _arguments -s -S \
                '(--chunks)--chunks=[Model chunks of each rank, if there are several]:K: ' \
                '(--epilogue)--epilogue=[Instructions that every rank runs last, for example optimizer]:A,B: ' \
                '(--gpus-per-stage)--gpus-per-stage=[Number of GPUs whose energy each row of the profile contains, if the profile has no column rank or gpus]:N: ' \
                '(--graph)--graph=[Plan a graph of activities]:FILE:_files' \
                '(-i --inst-profile)-i+[Measured time and energy of every instruction]:FILE:_files' \
                '(-i --inst-profile)--inst-profile=[Measured time and energy of every instruction]:FILE:_files' \
                '(--microbatch-group-size)--microbatch-group-size=[interleaved-1f1b\: microbatches that a rank runs on a chunk before it goes on to the next chunk (default\: as torch and Megatron choose it)]:G: ' \
                '(-m --num-mbs)-m+[Microbatches in one iteration]:M: ' \
                '(-m --num-mbs)--num-mbs=[Microbatches in one iteration]:M: ' \
                '(-n --num-stages)-n+[Pipeline stages]:N: ' \
                '(-n --num-stages)--num-stages=[Pipeline stages]:N: ' \
                '(--overhead-power)--overhead-power=[Watts that all machines of the pipeline draw outside of their GPUs]:W: ' \
                '(--overlap-moe-expert-parallel-comm)--overlap-moe-expert-parallel-comm[interleaved-1f1b, and 1f1b on one rank]' \
                '(--prologue)--prologue=[Instructions that every rank runs first, for example dataload]:A,B: ' \
                '(-p --p2p-power)-p+[Blocking power]:W\[,W...\]: ' \
                '(-p --p2p-power)--p2p-power=[Blocking power]:W\[,W...\]: ' \
                '(-s --schedule)-s+[Pipeline schedule by name]:NAME|FILE: _alternative "v\:name\:(1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe)" "f\:file\:_files"' \
                '(-s --schedule)--schedule=[Pipeline schedule by name]:NAME|FILE: _alternative "v\:name\:(1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe)" "f\:file\:_files"' \
                '(--transfer-time)--transfer-time=[Seconds from the end of an instruction to the start of one of another rank that waits for it]:S: ' \
                '(--wait-powers)--wait-powers=[Blocking power of each kind of wait]:FILE:_files' \
                '(--cost-model)--cost-model=[hull (default)\: the measured points themselves; exponential\: a fitted curve]:NAME:(hull exponential)' \
                '(--memory-limit)--memory-limit=[Refuse larger problems]:GIB: ' \
                '(--noise-factor)--noise-factor=[Relaxed Pareto filter if the exponential model has fewer than 4 points]:X: ' \
                '(--unit-time)--unit-time=[Sampling interval of the exponential model in s]:S: ' \
                '(--replica)--replica=[The profile of a further pipeline replica]:FILE:_files' \
                '(--replicas)--replicas[The profile has the columns replica and gpu]' \
                '(--slowdown)--slowdown=[An iteration of the job may take X times the shortest time of the slowest replica]:X: ' \
                '(--smooth[)--smooth[=[Remove noise from the profiles]:X\]: ' \
                '(--time)--time=[An iteration of the job may take S seconds]:S: ' \
                '(--bound-only)--bound-only[Compute and write the lower bound]' \
                '(--export-graph)--export-graph=[Write the pipeline as a graph]:FILE:_files' \
                '(-f --force)-f[Replace an existing plan directory or graph]' \
                '(-f --force)--force[Replace an existing plan directory or graph]' \
                '(-j --json)-j[Print the summary as one JSON object]' \
                '(-j --json)--json[Print the summary as one JSON object]' \
                '(--max-peak-power)--max-peak-power=[Make plans that never draw more than W watts]:W: ' \
                '(--max-swing)--max-swing=[Make plans whose power oscillates by at most W watts, or a percentage of its mean]:W|%: ' \
                '(--min-dwell)--min-dwell=[Make plans in which each clock holds for at least S seconds]:S: ' \
                '(--no-pictures)--no-pictures[Leave out pictures and report.html]' \
                '(-o --output-dir)-o+[Directory to create, completely or not at all]:DIR:_files -/' \
                '(-o --output-dir)--output-dir=[Directory to create, completely or not at all]:DIR:_files -/' \
                '(--plans)--plans=[Plans to make]:all|N|fastest|none: ' \
                '(-q --quiet)-q[Show no progress and no notes on stderr]' \
                '(-q --quiet)--quiet[Show no progress and no notes on stderr]' \
                '(--switch-energy)--switch-energy=[Energy of one change of clock]:J: ' \
                '(--switch-latency)--switch-latency=[Seconds from the request to the new clock, '\''profile'\'' for those of the profile, or a file of '\''harpe profile switch'\'']:S|FILE: _alternative "v\:name\:(profile)" "f\:file\:_files"' \
                '(--threads)--threads=[Make plans on at most N threads]:N: ' \
                '(--verify)--verify[Verify frontier and plans with independent code]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'choose')
            _arguments -s -S \
                '(--deadline)--deadline=[The plan of least energy that takes at most S seconds]:S: ' \
                '(--max-slowdown)--max-slowdown=[The plan of least energy that takes at most X times as long as maximum frequency]:X: ' \
                '(--min-energy)--min-energy[The plan of least energy]' \
                '(--power-cap)--power-cap=[The fastest plan that draws at most W watts per GPU on average]:W: ' \
                '(--straggler)--straggler=[The rest of the job takes X times as long as this pipeline'\''s fastest plan]:X: ' \
                '(--time)--time=[The slowest plan that takes at most S seconds]:S: ' \
                '(--carbon)--carbon=[Also print the carbon]:G: ' \
                '(--carbon-price)--carbon-price=[Add carbon to the cost, at P for 1000 kg of CO2]:P: ' \
                '(--energy-price)--energy-price=[Price of a kWh]:P: ' \
                '(--gpu-hour-price)--gpu-hour-price=[Value of one GPU for an hour]:P: ' \
                '(--iterations)--iterations=[Print the costs of N iterations]:N: ' \
                '(--max-peak-power)--max-peak-power=[Only plans that never draw more than W watts]:W: ' \
                '(--max-swing)--max-swing=[Only plans whose power oscillates by at most W watts, from peak to peak, at 0.1 to 20 Hz]:W: ' \
                '(--overhead-power)--overhead-power=[Watts that all machines of the pipeline draw outside of their GPUs]:W: ' \
                '(-j --json)-j[Print one JSON object]' \
                '(-j --json)--json[Print one JSON object]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'evaluate')
            _arguments -s -S \
                '(--chunks)--chunks=[Model chunks of each rank, if there are several]:K: ' \
                '(--epilogue)--epilogue=[Instructions that every rank runs last, for example optimizer]:A,B: ' \
                '(--gpus-per-stage)--gpus-per-stage=[Number of GPUs whose energy each row of the profile contains, if the profile has no column rank or gpus]:N: ' \
                '(-i --inst-profile)-i+[Measured time and energy of every instruction]:FILE:_files' \
                '(-i --inst-profile)--inst-profile=[Measured time and energy of every instruction]:FILE:_files' \
                '(--microbatch-group-size)--microbatch-group-size=[interleaved-1f1b\: microbatches that a rank runs on a chunk before it goes on to the next chunk (default\: as torch and Megatron choose it)]:G: ' \
                '(-m --num-mbs)-m+[Microbatches in one iteration]:M: ' \
                '(-m --num-mbs)--num-mbs=[Microbatches in one iteration]:M: ' \
                '(-n --num-stages)-n+[Pipeline stages]:N: ' \
                '(-n --num-stages)--num-stages=[Pipeline stages]:N: ' \
                '(--overhead-power)--overhead-power=[Watts that all machines of the pipeline draw outside of their GPUs]:W: ' \
                '(--overlap-moe-expert-parallel-comm)--overlap-moe-expert-parallel-comm[interleaved-1f1b, and 1f1b on one rank]' \
                '(--prologue)--prologue=[Instructions that every rank runs first, for example dataload]:A,B: ' \
                '(-p --p2p-power)-p+[Blocking power]:W\[,W...\]: ' \
                '(-p --p2p-power)--p2p-power=[Blocking power]:W\[,W...\]: ' \
                '(-s --schedule)-s+[Pipeline schedule by name]:NAME|FILE: _alternative "v\:name\:(1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe)" "f\:file\:_files"' \
                '(-s --schedule)--schedule=[Pipeline schedule by name]:NAME|FILE: _alternative "v\:name\:(1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe)" "f\:file\:_files"' \
                '(--transfer-time)--transfer-time=[Seconds from the end of an instruction to the start of one of another rank that waits for it]:S: ' \
                '(--wait-powers)--wait-powers=[Blocking power of each kind of wait]:FILE:_files' \
                '(--cost-model)--cost-model=[hull (default)\: the measured points themselves; exponential\: a fitted curve]:NAME:(hull exponential)' \
                '(--memory-limit)--memory-limit=[Refuse larger problems]:GIB: ' \
                '(--noise-factor)--noise-factor=[Relaxed Pareto filter if the exponential model has fewer than 4 points]:X: ' \
                '(--unit-time)--unit-time=[Sampling interval of the exponential model in s]:S: ' \
                '(-j --json)-j[Print one JSON object]' \
                '(-j --json)--json[Print one JSON object]' \
                '*-P+[A plan file, or a directory whose *.py files are evaluated]:FILE:_files' \
                '*--plan=[A plan file, or a directory whose *.py files are evaluated]:FILE:_files' \
                '(-q --quiet)-q[Show no progress and no notes on stderr]' \
                '(-q --quiet)--quiet[Show no progress and no notes on stderr]' \
                '(--switch-energy)--switch-energy=[Energy of one change of clock]:J: ' \
                '(--switch-latency)--switch-latency=[Seconds from the request to the new clock, '\''profile'\'' for those of the profile, or a file of '\''harpe profile switch'\'']:S|FILE: _alternative "v\:name\:(profile)" "f\:file\:_files"' \
                '(--switch-lead)--switch-lead=[The controller asks for a clock up to S seconds before its instruction begins]:S: ' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'graph')
            _arguments -s -S \
                '(--communication)--communication=[Kernels whose names match this POSIX extended regular expression communicate, as those of known libraries do]:REGEX: ' \
                '(--format)--format=[kineto or chakra]:FORMAT:(kineto chakra)' \
                '(--step)--step=[Import step N of Kineto traces]:N: ' \
                '(--blocking-power)--blocking-power=[or 0)]:WATTS Power of a GPU that waits (default\: that of --gpu,: ' \
                '(--compute-share)--compute-share=[Part of a kernel'\''s time that scales with the clock]:X: ' \
                '(-g --gpu)-g+[GPU model whose laws give the times and energies of other clocks]:MODEL:(V100 A40 A100 H100)' \
                '(-g --gpu)--gpu=[GPU model whose laws give the times and energies of other clocks]:MODEL:(V100 A40 A100 H100)' \
                '(--min-activity)--min-activity=[clock (default 0.02)]:SECONDS Length below which an activity keeps the highest: ' \
                '(-f --force)-f[Replace an existing file]' \
                '(-f --force)--force[Replace an existing file]' \
                '(-j --json)-j[Print a summary as JSON]' \
                '(-j --json)--json[Print a summary as JSON]' \
                '(-o --output)-o+[Where to write the graph]:FILE:_files' \
                '(-o --output)--output=[Where to write the graph]:FILE:_files' \
                '(-q --quiet)-q[Print no summary and no notes]' \
                '(-q --quiet)--quiet[Print no summary and no notes]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(import)' \
                '*:file:_files'
            ;;
        'gpus')
            _arguments -s -S \
                '(-a --all)-a[Show every GPU of the machine, and ignore CUDA_VISIBLE_DEVICES]' \
                '(-a --all)--all[Show every GPU of the machine, and ignore CUDA_VISIBLE_DEVICES]' \
                '(--dry-run)--dry-run[With --restore]' \
                '(-j --json)-j[Print one JSON object]' \
                '(-j --json)--json[Print one JSON object]' \
                '(--restore)--restore[Restore GPUs that killed jobs have left changed]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'monitor')
            _arguments -s -S \
                '(-g --gpus)-g+[GPUs to watch, such as 0,2]:LIST: ' \
                '(-g --gpus)--gpus=[GPUs to watch, such as 0,2]:LIST: ' \
                '(--no-cpu)--no-cpu[Do not measure the CPUs]' \
                '(--rapl-path)--rapl-path=[Directory of the CPUs'\'' counters]:DIR:_files -/' \
                '(-d --duration)-d+[Live\: stop after S seconds]:S: ' \
                '(-d --duration)--duration=[Live\: stop after S seconds]:S: ' \
                '(-i --interval)-i+[Live\: seconds between readings (default 1)]:S: ' \
                '(-i --interval)--interval=[Live\: seconds between readings (default 1)]:S: ' \
                '(--csv)--csv=[Also write CSV]:FILE:_files' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(energy power)' \
                '*:file:_files'
            ;;
        'profile')
            _arguments -s -S \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(p2p convert)' \
                '*:file:_files'
            ;;
        'profile p2p')
            _arguments -s -S \
                '(-d --duration)-d+[How long to measure]:S: ' \
                '(-d --duration)--duration=[How long to measure]:S: ' \
                '(-g --gpu)-g+[The GPU that waits]:N: ' \
                '(-g --gpu)--gpu=[The GPU that waits]:N: ' \
                '(--peer)--peer=[The GPU for which it waits]:N: ' \
                '(--python)--python=[A Python interpreter with PyTorch]:PROGRAM:_files' \
                '(--torch)--torch[Use PyTorch on emulated GPUs too]' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'profile convert')
            _arguments -s -S \
                '(-f --force)-f[Replace an existing file]' \
                '(-f --force)--force[Replace an existing file]' \
                '(-j --json)-j[Print a summary as JSON]' \
                '(-j --json)--json[Print a summary as JSON]' \
                '(-o --output)-o+[Where to write the CSV]:FILE:_files' \
                '(-o --output)--output=[Where to write the CSV]:FILE:_files' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'power-limit')
            _arguments -s -S \
                '1:what:(replay run)' \
                '*:file:_files'
            ;;
        'power-limit replay')
            _arguments -s -S \
                '(--epoch-steps)--epoch-steps=[Epochs end every N steps]:N: ' \
                '(--epochs)--epochs=[Stop after N epochs]:N: ' \
                '(--eta)--eta=[zeus-cost\: 0 is all time, 1 all energy (default 0.5)]:X: ' \
                '(--factor)--factor=[max-slowdown\: at most X times the time at the highest limit (default 1.1)]:X: ' \
                '(--selector)--selector=[zeus-cost (default)\: lowest weighted cost of energy and time; energy\: least energy; time\: least time; max-slowdown\: the lowest limit that is not too slow]:NAME:(zeus-cost energy time max-slowdown)' \
                '(--pl-step)--pl-step=[Difference between two limits in watts]:W: ' \
                '(--profile-steps)--profile-steps=[Steps to measure at each limit]:N: ' \
                '(--wait-steps)--wait-steps=[Steps to ignore at the start]:N: ' \
                '(--warmup-steps)--warmup-steps=[Warm-up steps at each limit]:N: ' \
                '(-j --json)-j[Print one JSON object]' \
                '(-j --json)--json[Print one JSON object]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'power-limit run')
            _arguments -s -S \
                '(--no-guard)--no-guard[Start no process that restores limits if this one is killed]' \
                '(--profile)--profile=[Use the measurements of an earlier run in this file, or write them for the next run]:FILE:_files' \
                '(--eta)--eta=[zeus-cost\: 0 is all time, 1 all energy (default 0.5)]:X: ' \
                '(--factor)--factor=[max-slowdown\: at most X times the time at the highest limit (default 1.1)]:X: ' \
                '(--selector)--selector=[zeus-cost (default)\: lowest weighted cost of energy and time; energy\: least energy; time\: least time; max-slowdown\: the lowest limit that is not too slow]:NAME:(zeus-cost energy time max-slowdown)' \
                '(--pl-step)--pl-step=[Difference between two limits in watts]:W: ' \
                '(--profile-steps)--profile-steps=[Steps to measure at each limit]:N: ' \
                '(--wait-steps)--wait-steps=[Steps to ignore at the start]:N: ' \
                '(--warmup-steps)--warmup-steps=[Warm-up steps at each limit]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--group)--group=[Group of the member]:NAME: ' \
                '(--hold)--hold=[Keep the fleet'\''s limit so long if the server gives none]:SECONDS: ' \
                '(--max-slowdown)--max-slowdown=[Accept at most X times the time of the fastest plan]:X: ' \
                '(--member)--member=[Name of the member]:NAME: ' \
                '(--server)--server=[Be a member of the fleet of this server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(--weight)--weight=[Value of the job'\''s time]:N: ' \
                '(-j --json)-j[At the end print one JSON object on standard output]' \
                '(-j --json)--json[At the end print one JSON object on standard output]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'run')
            _arguments -s -S \
                '(-j --job)-j+[Name by which the ranks of a pipeline-parallel job find each other]:NAME: ' \
                '(-j --job)--job=[Name by which the ranks of a pipeline-parallel job find each other]:NAME: ' \
                '(-m --measure-only)-m[Only measure, and change no GPU]' \
                '(-m --measure-only)--measure-only[Only measure, and change no GPU]' \
                '(-p --power-limit)-p[Find and keep the best power limit in the Trainers of Transformers and Lightning]' \
                '(-p --power-limit)--power-limit[Find and keep the best power limit in the Trainers of Transformers and Lightning]' \
                '(-s --server)-s+[Server that plans for pipeline-parallel jobs, such as http\://head-node\:7787]:URL: ' \
                '(-s --server)--server=[Server that plans for pipeline-parallel jobs, such as http\://head-node\:7787]:URL: ' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*::command:_normal'
            ;;
        'serve')
            _arguments -s -S \
                '(--listen)--listen=[Address to listen on]:ADDR\[\:PORT\]: ' \
                '(--port)--port=[Port to listen on]:N: ' \
                '(--scheduler)--scheduler=[Perseus (the default without a solution_path), PointSolution (the default with one), PointSolution3D, AllMaxFrequency, HighestFrequency, InstructionProfiler, ./mine.so, python\:module.Class or program\:COMMAND]:NAME:(PointSolution PointSolution3D AllMaxFrequency HighestFrequency Perseus InstructionProfiler python: program:)' \
                '(--scheduler-args)--scheduler-args=[Its arguments, for example {"solution_path"]:JSON: ' \
                '(--dump-dir)--dump-dir=[Write ranks, schedules and results below DIR]:DIR:_files -/' \
                '(--no-dump)--no-dump[Do not write these files, even if a setting names DIR]' \
                '(--state-dir)--state-dir=[Keep jobs and dumps in DIR]:DIR:_files -/' \
                '(--store)--store=[SQLite file]:WHERE:_files' \
                '(--allowed-hosts)--allowed-hosts=[More host names that clients may use for a server without a token]:NAMES: ' \
                '(--audit-log)--audit-log=[Append requests that steer to FILE]:FILE:_files' \
                '(--insecure)--insecure[Serve every client that reaches the address, without a token]' \
                '(--tls-cert)--tls-cert=[Certificate chain, PEM]:FILE:_files' \
                '(--tls-key)--tls-key=[Its private key, PEM]:FILE:_files' \
                '(--token-file)--token-file=[File whose first line clients must send as bearer token]:FILE:_files' \
                '(--tokens)--tokens=[File of tokens with names, roles and groups]:FILE:_files' \
                '(--config)--config=[Read NAME=value lines]:FILE:_files' \
                '(--print-settings)--print-settings[Print all settings and where they come from]' \
                '(--set)--set=[Any setting by name]:NAME=VALUE: ' \
                '(--log-file)--log-file=[Append the log to FILE]:FILE:_files' \
                '(--log-format)--log-format=[text, or json]:FORMAT:(text json)' \
                '(--log-level)--log-level=[debug, info, warning or error]:LEVEL:(debug info warning error)' \
                '(-q --quiet)-q[Log errors only]' \
                '(-q --quiet)--quiet[Log errors only]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'jobs')
            _arguments -s -S \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(--limit)--limit=[Only the first N jobs]:N: ' \
                '(-q --quiet)-q[Print only ids]' \
                '(-q --quiet)--quiet[Print only ids]' \
                '(--search)--search=[Only jobs in which every word occurs]:WORDS: ' \
                '(--sort)--sort=[Sort by start, seen, name, state, user, group, node, slurm_job, gpus, round, power, power_cap, energy, saved or time_lost]:KEY: ' \
                '(-y --yes)-y[Evict without a question]' \
                '(-y --yes)--yes[Evict without a question]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(list link show watch evict)' \
                '*:file:_files'
            ;;
        'store')
            _arguments -s -S \
                '(--config)--config=[The configuration file of harpe serve]:FILE:_files' \
                '(--state-dir)--state-dir=[The state directory of harpe serve]:DIR:_files -/' \
                '(--store)--store=[The store]:FILE:_files' \
                '(--force)--force[Replace a file that exists]' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-q --quiet)-q[Print only problems]' \
                '(-q --quiet)--quiet[Print only problems]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(backup check restore accept)' \
                '*:file:_files'
            ;;
        'fleet')
            _arguments -s -S \
                '(--at)--at=[solve\: the moment, with its jobs, events and price (default 0)]:SECONDS: ' \
                '(--prices)--prices=[Read the prices from a CSV file]:FILE:_files' \
                '(-f --force)-f[simulate\: replace an existing picture]' \
                '(-f --force)--force[simulate\: replace an existing picture]' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-o --output)-o+[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-o --output)--output=[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(solve simulate status budget group job load event prices audit token)' \
                '*:file:_files'
            ;;
        'fleet solve')
            _arguments -s -S \
                '(--at)--at=[solve\: the moment, with its jobs, events and price (default 0)]:SECONDS: ' \
                '(--prices)--prices=[Read the prices from a CSV file]:FILE:_files' \
                '(-f --force)-f[simulate\: replace an existing picture]' \
                '(-f --force)--force[simulate\: replace an existing picture]' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-o --output)-o+[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-o --output)--output=[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet simulate')
            _arguments -s -S \
                '(--at)--at=[solve\: the moment, with its jobs, events and price (default 0)]:SECONDS: ' \
                '(--prices)--prices=[Read the prices from a CSV file]:FILE:_files' \
                '(-f --force)-f[simulate\: replace an existing picture]' \
                '(-f --force)--force[simulate\: replace an existing picture]' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-o --output)-o+[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-o --output)--output=[simulate\: draw the power against the budget (.svg)]:FILE:_files' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet status')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet budget')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet group')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet job')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet load')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet event')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet prices')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet audit')
            _arguments -s -S \
                '(--group)--group=[The group]:NAME: ' \
                '(--margin)--margin=[budget set]:SHARE: ' \
                '(--max-slowdown)--max-slowdown=[job set]:FACTOR: ' \
                '(--overhead)--overhead=[budget set]:FACTOR: ' \
                '(--parent)--parent=[group set]:NAME: ' \
                '(--priority)--priority=[job set]:N: ' \
                '(--weight)--weight=[job set]:N: ' \
                '(--exceed-slowdown)--exceed-slowdown[event add]' \
                '(--for)--for=[event add]:SECONDS: ' \
                '(--from)--from=[event add, prices set]:TIME: ' \
                '(--note)--note=[event add]:TEXT: ' \
                '(--notice)--notice=[event add]:SECONDS: ' \
                '(--ramp)--ramp=[event add]:SECONDS: ' \
                '(--share)--share=[event add]:SHARE: ' \
                '(--watts)--watts=[event add]:W: ' \
                '(--carbon-price)--carbon-price=[prices\: cost of 1 kg of carbon dioxide]:N: ' \
                '(--currency)--currency=[prices\: the currency, such as EUR]:NAME: ' \
                '(--every)--every=[prices set]:SECONDS: ' \
                '(--feed-ca-file)--feed-ca-file=[prices set]:FILE:_files' \
                '(--time-value)--time-value=[prices\: what a second of a job of weight 1 is worth]:N: ' \
                '(--limit)--limit=[audit\: at most so many records (100)]:N: ' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--server)--server=[The server]:URL: ' \
                '(--token-file)--token-file=[File whose first line is the server'\''s bearer token]:FILE:_files' \
                '(-j --json)-j[Print the server'\''s answer as JSON]' \
                '(-j --json)--json[Print the server'\''s answer as JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'fleet token')
            _arguments -s -S \
                '(--group)--group=[add\: only for jobs of this group; may be repeated (default\: all groups)]:NAME: ' \
                '(--role)--role=[add\: viewer, job or operator]:ROLE: ' \
                '(--tokens)--tokens=[The file of tokens of harpe serve --tokens]:FILE:_files' \
                '(--watts)--watts=[add\: the power that members declared with a token of the role job may have together (default\: 1e6 with groups, otherwise no limit)]:W: ' \
                '(-j --json)-j[Print JSON]' \
                '(-j --json)--json[Print JSON]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'agent')
            _arguments -s -S \
                '(--config)--config=[Read the rules from FILE]:FILE:_files' \
                '(--metrics-listen)--metrics-listen=[Serve /metrics for Prometheus on this address, such as 127.0.0.1\:9787]:ADDR\:PORT: ' \
                '(--socket)--socket=[Unix-domain socket for clients]:PATH: ' \
                '(--state-dir)--state-dir=[Keep the files of leases in DIR]:DIR:_files -/' \
                '(--zeusd-key)--zeusd-key=[Check the tokens of TCP clients with the signing key in FILE]:FILE:_files' \
                '(--zeusd-listen)--zeusd-listen=[Also answer the routes of zeusd on TCP]:ADDR\:PORT: ' \
                '(--zeusd-no-restore)--zeusd-no-restore[Leave what clients of zeusd'\''s routes have set, as zeusd does]' \
                '(--zeusd-socket)--zeusd-socket=[Also answer the routes of zeusd on this Unix-domain socket]:PATH: ' \
                '(-q --quiet)-q[Log warnings and errors only]' \
                '(-q --quiet)--quiet[Log warnings and errors only]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '1:what:(hold status restore)' \
                '*:file:_files'
            ;;
        'agent hold')
            _arguments -s -S \
                '(--clock)--clock=[Lock the graphics clock at MHZ]:MHZ: ' \
                '(--gpu)--gpu=[The GPUs]:GPU\[,GPU...\]: ' \
                '(--power-limit)--power-limit=[Set the power limit to W watts]:W: ' \
                '(--wait)--wait[Wait while another process holds a GPU]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'agent status')
            _arguments -s -S \
                '(-j --json)-j[Print one JSON object]' \
                '(-j --json)--json[Print one JSON object]' \
                '(--socket)--socket=[Socket of the agent]:PATH: ' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'agent restore')
            _arguments -s -S \
                '(--gpu)--gpu=[End only the leases of one GPU]:GPU: ' \
                '(--socket)--socket=[Socket of the agent]:PATH: ' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'synth')
            _arguments -s -S \
                '(--forward-time)--forward-time=[Mean time of a forward at the highest frequency]:S: ' \
                '(-g --gpu)-g+[GPU model]:MODEL:(V100 A40 A100 H100)' \
                '(-g --gpu)--gpu=[GPU model]:MODEL:(V100 A40 A100 H100)' \
                '(--imbalance)--imbalance=[Work of the slowest stage divided by the mean]:X: ' \
                '(--noise)--noise=[Relative standard deviation of each number]:X: ' \
                '(-n --stages --num-stages)-n+[Pipeline stages]:N: ' \
                '(-n --stages --num-stages)--stages=[Pipeline stages]:N: ' \
                '(-n --stages --num-stages)--num-stages=[Pipeline stages]:N: ' \
                '(--seed)--seed=[The same seed makes the same profile everywhere]:N: ' \
                '(--split-backward)--split-backward[Also backward_input and backward_weight, for zero-bubble schedules]' \
                '(--gpus-per-stage)--gpus-per-stage=[Tensor parallel GPUs of each stage]:K: ' \
                '(--outliers)--outliers=[Share of GPUs that are up to 1.5 times as slow]:X: ' \
                '(--replicas)--replicas=[Pipeline replicas of a data parallel job]:R: ' \
                '(--variability)--variability=[Relative standard deviation of the GPUs'\'' speed and power]:X: ' \
                '(-f --force)-f[Replace an existing file]' \
                '(-f --force)--force[Replace an existing file]' \
                '(-j --json)-j[Print a summary as JSON]' \
                '(-j --json)--json[Print a summary as JSON]' \
                '(-o --output)-o+[Where to write the CSV]:FILE:_files' \
                '(-o --output)--output=[Where to write the CSV]:FILE:_files' \
                '(-q --quiet)-q[Print no hint about the blocking power on stderr]' \
                '(-q --quiet)--quiet[Print no hint about the blocking power on stderr]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        'emulate')
            _arguments -s -S \
                '(-c --cluster)-c+[Share the GPUs with other commands that give this name]:NAME: ' \
                '(-c --cluster)--cluster=[Share the GPUs with other commands that give this name]:NAME: ' \
                '(--faults-file)--faults-file=[Faults from a file, which may change while the command runs]:FILE:_files' \
                '(-f --faults)-f+[Faults, such as no_permission,slow_set=200]:LIST: ' \
                '(-f --faults)--faults=[Faults, such as no_permission,slow_set=200]:LIST: ' \
                '(-g --gpus)-g+[GPUs of the machine]:LIST: ' \
                '(-g --gpus)--gpus=[GPUs of the machine]:LIST: ' \
                '(--noise)--noise=[Standard deviation of the noise of power sensors]:PERCENT: ' \
                '(--physics)--physics=[How GPUs differ from ideal ones]:ideal|real|FILE: ' \
                '(-p --profile)-p+[Measured profile that simulated instructions follow]:FILE:_files' \
                '(-p --profile)--profile=[Measured profile that simulated instructions follow]:FILE:_files' \
                '(--seed)--seed=[Seed of the noise and of the physics]:N: ' \
                '(-s --time-scale)-s+[The GPUs'\'' time runs X times as fast]:X: ' \
                '(-s --time-scale)--time-scale=[The GPUs'\'' time runs X times as fast]:X: ' \
                '(--visible-to-torch)--visible-to-torch[PyTorch counts the GPUs as CUDA devices, although it cannot compute on them]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*::command:_normal'
            ;;
        'train-sim')
            _arguments -s -S \
                '(--chunks)--chunks=[Stages per rank, if the schedule has several]:N: ' \
                '(--dp)--dp=[Pipelines that share the data]:N: ' \
                '(--forward-time)--forward-time=[Synthesised\: mean forward time (0.05)]:S: ' \
                '(--gpu)--gpu=[Emulated GPU]:MODEL:(V100 A40 A100 H100)' \
                '(--imbalance)--imbalance=[Synthesised\: slowest stage divided by the mean (1.15)]:X: ' \
                '(-i --inst-profile)-i+[Measured profile that the GPUs follow]:FILE:_files' \
                '(-i --inst-profile)--inst-profile=[Measured profile that the GPUs follow]:FILE:_files' \
                '(--microbatch-group-size)--microbatch-group-size=[interleaved-1f1b\: see harpe plan --help]:N: ' \
                '(--num-mbs)--num-mbs=[Microbatches of a step]:N: ' \
                '(--overlap-moe-expert-parallel-comm)--overlap-moe-expert-parallel-comm[interleaved-1f1b and 1f1b]' \
                '(--p2p-power)--p2p-power=[Power of a GPU that waits for a peer]:W: ' \
                '(--physics)--physics=[How the GPUs differ from ideal ones]:ideal|real|FILE: ' \
                '(--pp --stages)--pp=[Ranks of a pipeline]:N: ' \
                '(--pp --stages)--stages=[Ranks of a pipeline]:N: ' \
                '(--schedule)--schedule=[Pipeline schedule]:NAME:(1f1b early-recomputation-1f1b gpipe interleaved-1f1b zb-h1 zb-v dualpipe-v dualpipe-v-deepseek dualpipe)' \
                '(--seed)--seed=[Seed of the synthesised profile and of the physics]:N: ' \
                '(--tp)--tp=[GPUs that share a stage]:N: ' \
                '(--anticipate)--anticipate[Set clocks that change late before their instructions begin]' \
                '(--ca-file)--ca-file=[Trust these certificate authorities]:FILE:_files' \
                '(--offline)--offline[Serve the plan of T_min made from the profile, instead of learning it online]' \
                '(--plan)--plan=[Serve this plan]:FILE.py:_files' \
                '(--scheduler)--scheduler=[The server'\''s scheduler]:NAME:(Perseus)' \
                '(--scheduler-args)--scheduler-args=[Its arguments]:JSON: ' \
                '(--server)--server=[Use a running server, with its own scheduler]:URL: ' \
                '(--kill-rank)--kill-rank=[Kill the rank, and restart the job]:RANK@STEP: ' \
                '(--learning-limit)--learning-limit=[Give up if there is no plan after S seconds]:S: ' \
                '(--mpi)--mpi[Run as a rank of mpirun, and communicate through MPI]' \
                '(--real-time)--real-time[Run in real processes that wait for real time, and over HTTP]' \
                '(--restart-server)--restart-server=[Kill the server, and restart it with its store]:STEP: ' \
                '(--steps)--steps=[Steps to measure after the plan has started]:N: ' \
                '(--straggler)--straggler=[Throttle the rank'\''s GPU from this step on, and report it to the server]:RANK@STEP=FACTOR: ' \
                '(--time-scale)--time-scale=[In real time]:X: ' \
                '(--json)--json[Print the result as JSON]' \
                '(--log-steps)--log-steps=[Write a line of JSON to FILE after each step]:FILE:_files' \
                '(-q --quiet)-q[Show no progress and no warnings]' \
                '(-q --quiet)--quiet[Show no progress and no warnings]' \
                '(-\? --help)-\?[Give this help list]' \
                '(-\? --help)--help[Give this help list]' \
                '(--usage)--usage[Give a short usage message]' \
                '(-V --version)-V[Print program version]' \
                '(-V --version)--version[Print program version]' \
                '*:file:_files'
            ;;
        help)
            _values command plan choose evaluate graph gpus monitor profile power-limit run serve jobs store fleet agent synth emulate train-sim
            ;;
        esac
        ;;
    esac
}
_harpe "$@"
