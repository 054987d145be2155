# Which command runs a test. A test is of one kind, and its kind is a label of ctest:
#
#   fast      ./check. It computes, waits for no other process, and needs at most 2 s of a processor.
#   smoke     ./check. One short journey with real processes.
#   process   .ci/run and ./check --all processes. It starts real processes or waits for real time.
#   others    ./check --all PART. It needs what a bare Debian does not have, or takes long.
#
# C programs, replays of fuzz targets and tests of the house are fast, and scripts are process tests,
# unless a list below names them.
set(HARPE_TEST_KINDS fast smoke process browsers postgresql slurm metrics pytorch peers tidy)

set(HARPE_fast_TESTS)

set(HARPE_smoke_TESTS
    agent_guide # a lease, from the document
    cli_min_dwell
    cli_train_sim_smoke
    client_controller_start
    emulator_emulate_command
    emulator_nvidia_smi
    emulator_zeus_calls
    python_agent
    python_monitor
    python_replicas
    server_jobs_program
    server_kills
    server_reports # rounds over HTTP
    web_pages)

# Classes of scripts that are smoke tests of their own, named <script>_smoke.
set(HARPE_SMOKE_CLASSES
    agent_agent=Lending.test_a_job_that_is_killed_whole
    python_power_limit=OnGpus.test_limits_come_back_however_it_ends)

set(HARPE_process_TESTS
    base_directory
    base_log_forks
    base_socket_owner
    base_terminal_progress
    http_client
    http_unix
    monitor_rapl
    monitor_sampler
    server_http_hostile
    server_http_limits
    server_jobs_dumps
    server_schedulers_program
    house_bootstrap
    house_check_load
    house_completion
    house_fresh_root
    house_fresh_root_ends
    house_install
    house_sdist
    world_job)

# Report and dashboard in Chromium and Firefox.
set(HARPE_browsers_TESTS
    web_dashboard
    web_report
    web_views_chromium
    web_views_firefox)

# Several servers on PostgreSQL.
set(HARPE_postgresql_TESTS
    server_silent_database
    server_two_servers)

# Slurm, Kubernetes, systemd.
set(HARPE_slurm_TESTS
    cluster_kubernetes
    cluster_service
    cluster_slurm)

# Prometheus.
set(HARPE_metrics_TESTS
    house_grafana)

# PyTorch, MPI, NumPy and pip of Debian.
set(HARPE_pytorch_TESTS
    emulator_torch
    python_api_reference
    python_pip
    python_pipeline_examples
    python_power_limit_examples
    python_tutorials)

# Programs of others, from PyPI and crates.io.
set(HARPE_peers_TESTS
    agent_zeusd_client
    agent_zeusd_published
    emulator_monitors
    emulator_monitors_real
    emulator_rust_client
    python_zeus
    python_zeus_server)

set(HARPE_tidy_TESTS
    house_clang_tidy)

# Tests of other kinds that prove more where the part's packages are: they run in that part, too.
set(HARPE_ALSO_postgresql
    server_clocks
    server_rights
    server_secrets
    server_store)
set(HARPE_ALSO_pytorch
    python_bindings
    python_distributed
    python_fork
    python_graph
    python_online_jobs
    python_pipeline_frequency
    python_plan
    python_power_limit
    python_power_limit_fleet
    python_counter
    python_tune)
set(HARPE_ALSO_peers
    bench_search
    client_controller_program
    cluster_kubernetes)
set(HARPE_ALSO_metrics
    agent_metrics
    server_metrics)
# The result depends on the user: they run as an ordinary user and as root.
set(HARPE_ALSO_user
    agent_metrics
    python_plan
    agent_agent
    agent_attacks
    agent_executable
    agent_zeusd_holders
    agent_zeusd_routes
    cli_bad_input
    cli_fleet_prices
    cli_gpus_command
    cli_trust
    client_controller_program
    http_unix
    power_limit_guard_program
    server_full_disk
    server_hanging_files
    server_neighbours
    server_programs
    server_store_command
    house_fresh_root_ends
    house_make_token)

# Scripts that make fewer trials than they could.
set(HARPE_ALSO_trials
    power_limit_state_machine
    python_fork
    server_odd_files)

# They take longest, so they start first.
set(HARPE_LONGEST_TESTS
    docs_documents)

# A plain Python cannot load a library that is built with sanitizers.
set(HARPE_UNSANITIZED_FOLDERS
    bench
    cluster
    python)
set(HARPE_UNSANITIZED_TESTS
    agent_executable # sanitizers bring libraries of their own
    agent_zeusd_client
    agent_zeusd_holders
    agent_zeusd_published
    agent_zeusd_routes
    cli_trust
    client_controller_program
    client_optimizer_example
    emulator_monitors
    emulator_monitors_real
    emulator_rust_client
    emulator_torch
    monitor_gpu_check
    power_limit_fleet
    power_limit_guard_program
    power_limit_guard_records
    power_limit_state_machine
    power_limit_step_signal)
# ThreadSanitizer's runtime cannot be loaded before a Python that loads the emulator, as that of
# AddressSanitizer can.
set(HARPE_PRELOADED_TESTS
    agent_metrics
    emulator_client
    emulator_emulate_command
    emulator_enqueued_work
    emulator_nvidia_smi
    emulator_processes
    emulator_real_physics
    emulator_sensors
    emulator_workloads_program
    emulator_zeus_calls)
