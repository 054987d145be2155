# SPDX-License-Identifier: Apache-2.0
"""The public C headers for ctypes. Made by python/make_bindings.py: do not edit."""
import ctypes as C

HARPE_LOG_DEBUG = 0
HARPE_LOG_INFO = 1
HARPE_LOG_WARNING = 2
HARPE_LOG_ERROR = 3
HARPE_OK = 0
HARPE_INVALID_ARGUMENT = 1
HARPE_INVALID_INPUT = 2
HARPE_NOT_FOUND = 3
HARPE_ALREADY_EXISTS = 4
HARPE_PERMISSION_DENIED = 5
HARPE_IO_ERROR = 6
HARPE_OUT_OF_MEMORY = 7
HARPE_LIMIT_EXCEEDED = 8
HARPE_INTERRUPTED = 9
HARPE_INFEASIBLE = 10
HARPE_NOT_SUPPORTED = 11
HARPE_INTERNAL = 12
HARPE_GPU_LOST = 13
HARPE_DRIVER_ERROR = 14
HARPE_UNAVAILABLE = 15
HARPE_ENERGY_OF_GPU = 0
HARPE_ENERGY_OF_MODULE = 1
HARPE_FORWARD = 0
HARPE_BACKWARD = 1
HARPE_BACKWARD_INPUT = 2
HARPE_BACKWARD_WEIGHT = 3
HARPE_RECOMPUTATION = 4
HARPE_FORWARD_BACKWARD = 5
HARPE_STANDALONE = 6
HARPE_COST_HULL = 0
HARPE_COST_EXPONENTIAL = 1
HARPE_PLANS_SPREAD = 0
HARPE_PLANS_ALL = 1
HARPE_PLANS_AT = 2
HARPE_MARK_HOST = 0
HARPE_MARK_STREAM = 1
HARPE_MARK_SYNCHRONIZED = 2
HARPE_PFO_REGISTERING = 0
HARPE_PFO_WAITING = 1
HARPE_PFO_MEASURING = 2
HARPE_PFO_REPORTING = 3
HARPE_PFO_OFF = 4
HARPE_POWER_LIMIT_READY = 0
HARPE_POWER_LIMIT_WARMUP = 1
HARPE_POWER_LIMIT_PROFILING = 2
HARPE_POWER_LIMIT_DONE = 3
HARPE_POWER_LIMIT_FAILED = 4
HARPE_STEP_FORWARDS = 1
HARPE_STEP_BATCHES = 2
HARPE_STEP_UPDATES = 3
HARPE_STEP_MARKS = 4
HARPE_REPLICA_OWN_PLANS = 0
HARPE_REPLICA_ONE_PLAN = 1
HARPE_REPLICA_ALL_MAXIMUM = 2
HARPE_JOB_REQUEST_SLOWDOWN = 0
HARPE_JOB_REQUEST_ITERATION_TIME = 1
HARPE_JOB_REQUEST_POWER_CAP = 2
HARPE_JOB_REQUEST_PLAN_TIME = 3
HARPE_WISH_SLOWDOWN = 0
HARPE_WISH_ITERATION_TIME = 1
HARPE_WISH_POWER_CAP = 2
HARPE_WISH_PLAN_TIME = 3
HARPE_PIPELINE_RUNNING = -1
HARPE_PIPELINE_ALL_MAXIMUM = -2
HARPE_TUNING_ENERGY = 0
HARPE_TUNING_COST = 1
HARPE_TUNING_TIME = 2
HARPE_TUNING_WAITING = 0
HARPE_TUNING_MEASURING = 1
HARPE_TUNING_TRYING = 2
HARPE_TUNING_SETTLED = 3
HARPE_TUNING_UNMEASURABLE = 4
HARPE_TUNING_STOPPED = 5


class harpe_log(C.Structure):
    pass


class harpe_progress(C.Structure):
    pass


class harpe_error(C.Structure):
    pass


class harpe_fleet_plan(C.Structure):
    pass


class harpe_fleet_job(C.Structure):
    pass


class harpe_fleet_budget(C.Structure):
    pass


class harpe_fleet_price(C.Structure):
    pass


class harpe_fleet_split(C.Structure):
    pass


class harpe_fleet_choice(C.Structure):
    pass


class harpe_fleet_use(C.Structure):
    pass


class harpe_gpus_options(C.Structure):
    pass


class harpe_gpu_info(C.Structure):
    pass


class harpe_gpu_writes(C.Structure):
    pass


class harpe_frequency_controller_options(C.Structure):
    pass


class harpe_frequency_controller_counts(C.Structure):
    pass


class harpe_frequency_controller_obedience(C.Structure):
    pass


class harpe_switch_latency(C.Structure):
    pass


class harpe_frequency_controller_anticipation(C.Structure):
    pass


class harpe_measurement(C.Structure):
    pass


class harpe_profile_point(C.Structure):
    pass


class harpe_profile_entry(C.Structure):
    pass


class harpe_profile_repeat(C.Structure):
    pass


class harpe_synth_options(C.Structure):
    pass


class harpe_action(C.Structure):
    pass


class harpe_instruction(C.Structure):
    pass


class harpe_schedule_options(C.Structure):
    pass


class harpe_schedule_request(C.Structure):
    pass


class harpe_wait_power(C.Structure):
    pass


class harpe_problem_options(C.Structure):
    pass


class harpe_option(C.Structure):
    pass


class harpe_option_list(C.Structure):
    pass


class harpe_clock_switch(C.Structure):
    pass


class harpe_frontier_vertex(C.Structure):
    pass


class harpe_work(C.Structure):
    pass


class harpe_plan(C.Structure):
    pass


class harpe_plan_request(C.Structure):
    pass


class harpe_switching(C.Structure):
    pass


class harpe_late_instruction(C.Structure):
    pass


class harpe_late_plan(C.Structure):
    pass


class harpe_power_shape(C.Structure):
    pass


class harpe_plan_file_entry(C.Structure):
    pass


class harpe_graph_resource(C.Structure):
    pass


class harpe_graph_option(C.Structure):
    pass


class harpe_graph_wait(C.Structure):
    pass


class harpe_graph_activity(C.Structure):
    pass


class harpe_graph_run(C.Structure):
    pass


class harpe_job_info(C.Structure):
    pass


class harpe_rank_info(C.Structure):
    pass


class harpe_scheduled_instruction(C.Structure):
    pass


class harpe_frequency_schedule(C.Structure):
    pass


class harpe_breakdown(C.Structure):
    pass


class harpe_profiling_result(C.Structure):
    pass


class harpe_frequency_value(C.Structure):
    pass


class harpe_offline_profiling_result(C.Structure):
    pass


class harpe_instruction_profiler_options(C.Structure):
    pass


class harpe_monitor_options(C.Structure):
    pass


class harpe_window_measurement(C.Structure):
    pass


class harpe_training_callback(C.Structure):
    pass


class harpe_pipeline_frequency_options(C.Structure):
    pass


class harpe_pipeline_frequency_status(C.Structure):
    pass


class harpe_power_limit_measurement(C.Structure):
    pass


class harpe_power_limit_selector(C.Structure):
    pass


class harpe_selector_parameters(C.Structure):
    pass


class harpe_power_limit_device(C.Structure):
    pass


class harpe_power_limit_fleet(C.Structure):
    pass


class harpe_power_limit_options(C.Structure):
    pass


class harpe_power_limit_state(C.Structure):
    pass


class harpe_variability(C.Structure):
    pass


class harpe_replica_request(C.Structure):
    pass


class harpe_replica_total(C.Structure):
    pass


class harpe_replica_job(C.Structure):
    pass


class harpe_replica_plan(C.Structure):
    pass


class harpe_scheduler_job(C.Structure):
    pass


class harpe_schedule_writer(C.Structure):
    pass


class harpe_scheduler_class(C.Structure):
    pass


class harpe_tuning_options(C.Structure):
    pass


class harpe_tuning_report(C.Structure):
    pass


harpe_log._fields_ = [
    ("write", C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_char_p)),
    ("user", C.c_void_p),
]
harpe_progress._fields_ = [
    ("report", C.CFUNCTYPE(C.c_bool, C.c_void_p, C.c_char_p, C.c_double)),
    ("user", C.c_void_p),
]
harpe_error._fields_ = [
    ("status", C.c_int),
    ("vendor_code", C.c_int),
    ("message", C.c_char * 1024),
]
harpe_fleet_plan._fields_ = [
    ("time_s", C.c_double),
    ("power_w", C.c_double),
]
harpe_fleet_job._fields_ = [
    ("name", C.c_char_p),
    ("group", C.c_int),
    ("weight", C.c_double),
    ("max_slowdown", C.c_double),
    ("plan_count", C.c_size_t),
    ("plans", C.POINTER(harpe_fleet_plan)),
]
harpe_fleet_budget._fields_ = [
    ("watts", C.c_double),
    ("margin", C.c_double),
    ("overhead", C.c_double),
]
harpe_fleet_price._fields_ = [
    ("energy_per_kwh", C.c_double),
    ("carbon_g_per_kwh", C.c_double),
    ("carbon_per_kg", C.c_double),
    ("value_per_s", C.c_double),
]
harpe_fleet_split._fields_ = [
    ("job_count", C.c_size_t),
    ("power_w", C.c_double),
    ("weighted_slowdown", C.c_double),
    ("objective", C.c_double),
    ("lower_bound", C.c_double),
    ("is_optimal", C.c_bool),
    ("is_feasible", C.c_bool),
]
harpe_fleet_choice._fields_ = [
    ("plan", C.c_size_t),
    ("time_s", C.c_double),
    ("power_w", C.c_double),
    ("slowdown", C.c_double),
    ("gain_per_w", C.c_double),
    ("price_per_w", C.c_double),
]
harpe_fleet_use._fields_ = [
    ("budget_w", C.c_double),
    ("limit_w", C.c_double),
    ("power_w", C.c_double),
    ("least_w", C.c_double),
    ("missing_w", C.c_double),
    ("price_per_w", C.c_double),
]
harpe_gpus_options._fields_ = [
    ("library_path", C.c_char_p),
    ("visible_devices", C.c_char_p),
    ("device_order", C.c_char_p),
    ("log", harpe_log),
]
harpe_gpu_info._fields_ = [
    ("index", C.c_int),
    ("driver_index", C.c_int),
    ("name", C.c_char * 96),
    ("uuid", C.c_char * 96),
    ("pci_bus_id", C.c_char * 32),
]
harpe_gpu_writes._fields_ = [
    ("written", C.c_uint64),
    ("skipped", C.c_uint64),
    ("failed", C.c_uint64),
]
harpe_frequency_controller_options._fields_ = [
    ("gpus", C.c_void_p),
    ("gpu", C.c_int),
    ("may_anticipate", C.c_bool),
    ("zeusd_socket", C.c_char_p),
    ("minimum_dwell_s", C.c_double),
    ("poll_interval_s", C.c_double),
    ("log", harpe_log),
    ("keeps_power_limit", C.c_bool),
]
harpe_frequency_controller_counts._fields_ = [
    ("clock_requests", C.c_uint64),
    ("written", C.c_uint64),
    ("skipped", C.c_uint64),
    ("superseded", C.c_uint64),
    ("failed", C.c_uint64),
    ("latency_median_s", C.c_double),
    ("latency_p99_s", C.c_double),
    ("latency_maximum_s", C.c_double),
]
harpe_frequency_controller_counts.wishes = harpe_frequency_controller_counts.clock_requests
harpe_frequency_controller_obedience._fields_ = [
    ("looks", C.c_uint64),
    ("disobeyed", C.c_uint64),
    ("disobeys", C.c_bool),
    ("wanted_mhz", C.c_int),
    ("held_mhz", C.c_int),
    ("reasons", C.c_uint64),
]
harpe_switch_latency._fields_ = [
    ("frequency_mhz", C.c_int),
    ("samples", C.c_int),
    ("latency_s", C.c_double),
    ("latency_p95_s", C.c_double),
]
harpe_frequency_controller_anticipation._fields_ = [
    ("is_active", C.c_bool),
    ("anticipated", C.c_uint64),
    ("returned", C.c_uint64),
]
harpe_measurement._fields_ = [
    ("stage", C.c_int),
    ("rank", C.c_int),
    ("instruction", C.c_char_p),
    ("frequency_mhz", C.c_int),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("gpu_count", C.c_int),
    ("blocking_power_w", C.c_double),
    ("switch_latency_s", C.c_double),
]
harpe_profile_point._fields_ = [
    ("frequency_mhz", C.c_int),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
]
harpe_profile_entry._fields_ = [
    ("stage", C.c_int),
    ("instruction", C.c_char_p),
    ("point_count", C.c_size_t),
    ("points", C.POINTER(harpe_profile_point)),
    ("throttled_count", C.c_size_t),
]
harpe_profile_repeat._fields_ = [
    ("stage", C.c_int),
    ("rank", C.c_int),
    ("instruction", C.c_char_p),
    ("frequency_mhz", C.c_int),
    ("row_count", C.c_size_t),
    ("first_row", C.c_size_t),
    ("last_row", C.c_size_t),
    ("time_spread", C.c_double),
    ("energy_spread", C.c_double),
]
harpe_synth_options._fields_ = [
    ("gpu_model", C.c_char_p),
    ("stages", C.c_int),
    ("imbalance", C.c_double),
    ("noise", C.c_double),
    ("seed", C.c_uint64),
    ("forward_time_s", C.c_double),
    ("split_backward", C.c_bool),
]
harpe_action._fields_ = [
    ("operation", C.c_int),
    ("stage", C.c_int),
    ("microbatch", C.c_int),
]
harpe_instruction._fields_ = [
    ("name", C.c_char_p),
    ("actions", harpe_action * 2),
    ("action_count", C.c_int),
    ("lag_s", C.c_double),
]
harpe_schedule_options._fields_ = [
    ("name", C.c_char_p),
    ("ranks", C.c_int),
    ("microbatches", C.c_int),
    ("chunks", C.c_int),
    ("prologue", C.POINTER(C.c_char_p)),
    ("epilogue", C.POINTER(C.c_char_p)),
    ("microbatch_group_size", C.c_int),
    ("overlaps_moe_expert_parallel_comm", C.c_bool),
]
harpe_schedule_request._fields_ = [
    ("options", harpe_schedule_options),
    ("path", C.c_char_p),
    ("memory_limit_bytes", C.c_uint64),
]
harpe_wait_power._fields_ = [
    ("rank", C.c_int),
    ("wait", C.c_char_p),
    ("power_w", C.c_double),
]
harpe_problem_options._fields_ = [
    ("blocking_power_w", C.POINTER(C.c_double)),
    ("blocking_power_count", C.c_size_t),
    ("cost_model", C.c_int),
    ("unit_time_s", C.c_double),
    ("noise_factor", C.c_double),
    ("memory_limit_bytes", C.c_uint64),
    ("gpus_per_stage", C.c_int),
    ("overhead_power_w", C.c_double),
    ("transfer_time_s", C.c_double),
    ("wait_powers", C.POINTER(harpe_wait_power)),
    ("wait_power_count", C.c_size_t),
    ("wait_powers_name", C.c_char_p),
]
harpe_option._fields_ = [
    ("frequency_mhz", C.c_int),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("effective_energy_j", C.c_double),
    ("is_on_hull", C.c_bool),
]
harpe_option_list._fields_ = [
    ("stage", C.c_int),
    ("rank", C.c_int),
    ("instruction", C.c_char_p),
    ("option_count", C.c_size_t),
    ("options", C.POINTER(harpe_option)),
    ("curve_count", C.c_size_t),
    ("curve_time_s", C.POINTER(C.c_double)),
    ("curve_effective_energy_j", C.POINTER(C.c_double)),
]
harpe_clock_switch._fields_ = [
    ("latency_s", C.c_double),
    ("energy_j", C.c_double),
    ("minimum_dwell_s", C.c_double),
    ("takes_profile", C.c_bool),
]
harpe_frontier_vertex._fields_ = [
    ("time_s", C.c_double),
    ("lower_bound_j", C.c_double),
    ("marginal_w", C.c_double),
]
harpe_work._fields_ = [
    ("pivots", C.c_uint64),
    ("degenerate_pivots", C.c_uint64),
    ("nodes_moved", C.c_uint64),
    ("path_steps", C.c_uint64),
    ("build_s", C.c_double),
    ("solve_s", C.c_double),
    ("assign_s", C.c_double),
    ("memory_bytes", C.c_uint64),
]
harpe_plan._fields_ = [
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("lower_bound_j", C.c_double),
    ("compute_energy_j", C.c_double),
    ("blocking_energy_j", C.c_double),
    ("average_power_w", C.c_double),
    ("frequency_mhz", C.POINTER(C.c_int)),
    ("overhead_energy_j", C.c_double),
]
harpe_plan_request._fields_ = [
    ("choice", C.c_int),
    ("count", C.c_int),
    ("times_s", C.POINTER(C.c_double)),
    ("time_count", C.c_size_t),
    ("clock_switch", harpe_clock_switch),
    ("max_peak_power_w", C.c_double),
    ("max_swing_w", C.c_double),
    ("max_swing_share", C.c_double),
    ("threads", C.c_int),
]
harpe_switching._fields_ = [
    ("clock_writes", C.c_size_t),
    ("shortest_dwell_s", C.c_double),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
]
harpe_late_instruction._fields_ = [
    ("start_s", C.c_double),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("first_mhz", C.c_int),
    ("last_mhz", C.c_int),
    ("first_share", C.c_double),
]
harpe_late_plan._fields_ = [
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("request_count", C.c_size_t),
    ("late_count", C.c_size_t),
    ("is_steady", C.c_bool),
]
harpe_power_shape._fields_ = [
    ("peak_w", C.c_double),
    ("swing_w", C.c_double),
    ("swing_hz", C.c_double),
]
harpe_plan_file_entry._fields_ = [
    ("instruction", C.c_char_p),
    ("frequency_mhz", C.c_int),
]
harpe_graph_resource._fields_ = [
    ("name", C.c_char_p),
    ("blocking_power_w", C.c_double),
]
harpe_graph_option._fields_ = [
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("frequency_mhz", C.c_double),
]
harpe_graph_wait._fields_ = [
    ("name", C.c_char_p),
    ("lag_s", C.c_double),
]
harpe_graph_activity._fields_ = [
    ("name", C.c_char_p),
    ("resource", C.c_char_p),
    ("option_count", C.c_size_t),
    ("options", C.POINTER(harpe_graph_option)),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("wait_count", C.c_size_t),
    ("waits", C.POINTER(harpe_graph_wait)),
    ("release_s", C.c_double),
    ("deadline_s", C.c_double),
]
harpe_graph_run._fields_ = [
    ("option", C.c_int),
    ("frequency_mhz", C.c_double),
    ("start_s", C.c_double),
    ("slack_s", C.c_double),
]
harpe_job_info._fields_ = [
    ("job_id", C.c_char_p),
    ("pp_degree", C.c_int),
    ("dp_degree", C.c_int),
    ("tp_degree", C.c_int),
    ("world_size", C.c_int),
    ("job_metadata", C.c_char_p),
    ("job_key", C.c_char_p),
]
harpe_rank_info._fields_ = [
    ("rank", C.c_int),
    ("dp_rank", C.c_int),
    ("pp_rank", C.c_int),
    ("tp_rank", C.c_int),
    ("available_frequencies_mhz", C.POINTER(C.c_int)),
    ("available_frequency_count", C.c_size_t),
]
harpe_scheduled_instruction._fields_ = [
    ("instruction", C.c_char_p),
    ("frequency_mhz", C.c_int),
]
harpe_frequency_schedule._fields_ = [
    ("rank", C.c_int),
    ("instructions", C.POINTER(harpe_scheduled_instruction)),
    ("instruction_count", C.c_size_t),
    ("is_trial", C.c_bool),
]
harpe_breakdown._fields_ = [
    ("instruction", C.c_char_p),
    ("iteration_count", C.c_size_t),
    ("counts", C.POINTER(C.c_size_t)),
    ("offsets", C.POINTER(C.c_size_t)),
    ("values", C.POINTER(C.c_double)),
]
harpe_profiling_result._fields_ = [
    ("rank", C.c_int),
    ("iteration_time_s", C.POINTER(C.c_double)),
    ("iteration_time_count", C.c_size_t),
    ("iteration_energy_j", C.POINTER(C.c_double)),
    ("iteration_energy_count", C.c_size_t),
    ("time_breakdown", C.POINTER(harpe_breakdown)),
    ("time_breakdown_count", C.c_size_t),
    ("energy_breakdown", C.POINTER(harpe_breakdown)),
    ("energy_breakdown_count", C.c_size_t),
]
harpe_frequency_value._fields_ = [
    ("frequency_mhz", C.c_int),
    ("value", C.c_double),
]
harpe_offline_profiling_result._fields_ = [
    ("rank", C.c_int),
    ("dp_rank", C.c_int),
    ("pp_rank", C.c_int),
    ("tp_rank", C.c_int),
    ("forward_time_s", C.POINTER(harpe_frequency_value)),
    ("forward_energy_j", C.POINTER(harpe_frequency_value)),
    ("backward_time_s", C.POINTER(harpe_frequency_value)),
    ("backward_energy_j", C.POINTER(harpe_frequency_value)),
    ("forward_time_count", C.c_size_t),
    ("forward_energy_count", C.c_size_t),
    ("backward_time_count", C.c_size_t),
    ("backward_energy_count", C.c_size_t),
]
harpe_instruction_profiler_options._fields_ = [
    ("gpus", C.c_void_p),
    ("gpu", C.c_int),
    ("sample_period_s", C.c_double),
    ("event_capacity", C.c_size_t),
    ("log", harpe_log),
]
harpe_monitor_options._fields_ = [
    ("gpus", C.c_void_p),
    ("gpu_indices", C.POINTER(C.c_int)),
    ("gpu_count", C.c_size_t),
    ("with_cpu", C.c_bool),
    ("rapl_path", C.c_char_p),
    ("approximate_instant_energy", C.c_bool),
    ("log_path", C.c_char_p),
    ("sample_period_s", C.c_double),
    ("synchronize", C.CFUNCTYPE(None, C.c_void_p, C.POINTER(C.c_int), C.c_size_t)),
    ("synchronize_user", C.c_void_p),
    ("log", harpe_log),
]
harpe_window_measurement._fields_ = [
    ("time_s", C.c_double),
    ("gpu_count", C.c_size_t),
    ("gpu_index", C.POINTER(C.c_int)),
    ("gpu_energy_j", C.POINTER(C.c_double)),
    ("cpu_count", C.c_size_t),
    ("cpu_energy_j", C.POINTER(C.c_double)),
    ("dram_energy_j", C.POINTER(C.c_double)),
    ("total_gpu_energy_j", C.c_double),
]
harpe_training_callback._fields_ = [
    ("user", C.c_void_p),
    ("on_train_begin", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_train_end", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_epoch_begin", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_epoch_end", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_step_begin", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_step_end", C.CFUNCTYPE(None, C.c_void_p)),
    ("on_evaluate", C.CFUNCTYPE(None, C.c_void_p, C.c_double)),
    ("on_instruction_begin", C.CFUNCTYPE(None, C.c_void_p, C.c_char_p)),
    ("on_instruction_end", C.CFUNCTYPE(None, C.c_void_p, C.c_char_p)),
]
harpe_pipeline_frequency_options._fields_ = [
    ("rank", C.c_int),
    ("dp_rank", C.c_int),
    ("pp_rank", C.c_int),
    ("tp_rank", C.c_int),
    ("dp_degree", C.c_int),
    ("pp_degree", C.c_int),
    ("tp_degree", C.c_int),
    ("world_size", C.c_int),
    ("device_id", C.c_int),
    ("server_url", C.c_char_p),
    ("job_metadata", C.c_char_p),
    ("job_key", C.c_char_p),
    ("broadcast", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_size_t, C.POINTER(harpe_error))),
    ("broadcast_user", C.c_void_p),
    ("token", C.c_char_p),
    ("ca_file", C.c_char_p),
    ("gpus", C.c_void_p),
    ("controller", harpe_frequency_controller_options),
    ("leave_clocks_alone", C.c_bool),
    ("iterations", C.c_int),
    ("warmup_iterations", C.c_int),
    ("mark", C.c_int),
    ("cuda_stream", C.c_void_p),
    ("synchronize", C.CFUNCTYPE(None, C.c_void_p)),
    ("synchronize_user", C.c_void_p),
    ("is_strict", C.c_bool),
    ("log", harpe_log),
    ("take_schedule", C.CFUNCTYPE(None, C.c_void_p, C.POINTER(harpe_scheduled_instruction), C.c_size_t)),
    ("take_schedule_user", C.c_void_p),
    ("lowest_clock_mhz", C.c_int),
]
harpe_pipeline_frequency_status._fields_ = [
    ("state", C.c_int),
    ("job_id", C.c_char * 256),
    ("round", C.c_int64),
    ("steps", C.c_uint64),
    ("misfits", C.c_uint64),
    ("reconnects", C.c_uint64),
    ("controller", harpe_frequency_controller_counts),
]
harpe_power_limit_measurement._fields_ = [
    ("power_limit_w", C.c_int),
    ("energy_j", C.c_double),
    ("time_s", C.c_double),
]
harpe_power_limit_selector._fields_ = [
    ("select", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(harpe_power_limit_measurement), C.c_size_t)),
    ("user", C.c_void_p),
]
harpe_selector_parameters._fields_ = [
    ("eta", C.c_double),
    ("world_size", C.c_int),
    ("maximum_slowdown", C.c_double),
]
harpe_power_limit_device._fields_ = [
    ("user", C.c_void_p),
    ("gpu_count", C.c_int),
    ("minimum_w", C.c_int),
    ("maximum_w", C.c_int),
    ("set_limit", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int, C.POINTER(harpe_error))),
    ("begin_window", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.POINTER(harpe_error))),
    ("end_window", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.c_bool, C.POINTER(C.c_double), C.POINTER(C.c_double), C.POINTER(harpe_error))),
    ("restore", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(harpe_error))),
    ("check_window", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(harpe_error))),
    ("mean_power", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_double), C.POINTER(harpe_error))),
    ("limit_in_force", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_int), C.POINTER(C.c_int), C.POINTER(harpe_error))),
]
harpe_power_limit_fleet._fields_ = [
    ("server_url", C.c_char_p),
    ("member", C.c_char_p),
    ("group", C.c_char_p),
    ("weight", C.c_double),
    ("max_slowdown", C.c_double),
    ("hold_s", C.c_double),
    ("token", C.c_char_p),
    ("ca_file", C.c_char_p),
]
harpe_power_limit_options._fields_ = [
    ("wait_steps", C.c_int),
    ("warmup_steps", C.c_int),
    ("profile_steps", C.c_int),
    ("step_w", C.c_int),
    ("selector", harpe_power_limit_selector),
    ("profile_path", C.c_char_p),
    ("device_model", C.c_char_p),
    ("all_reduce", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_double), C.c_size_t, C.c_bool, C.POINTER(harpe_error))),
    ("all_reduce_user", C.c_void_p),
    ("world_size", C.c_int),
    ("log", harpe_log),
    ("fleet", C.POINTER(harpe_power_limit_fleet)),
]
harpe_power_limit_state._fields_ = [
    ("phase", C.c_int),
    ("power_limit_w", C.c_int),
    ("steps", C.c_int),
]
harpe_variability._fields_ = [
    ("replica_count", C.c_int),
    ("peer_count", C.c_int),
    ("speed_deviation", C.c_double),
    ("power_deviation", C.c_double),
    ("outlier_share", C.c_double),
    ("outlier_factor", C.c_double),
    ("noise", C.c_double),
    ("seed", C.c_uint64),
    ("noise_seed", C.c_uint64),
]
harpe_replica_request._fields_ = [
    ("time_s", C.c_double),
    ("slowdown", C.c_double),
    ("threads", C.c_int),
    ("max_peak_power_w", C.c_double),
    ("max_swing_w", C.c_double),
    ("max_swing_share", C.c_double),
]
harpe_replica_total._fields_ = [
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
]
harpe_replica_job._fields_ = [
    ("own", harpe_replica_total),
    ("lower_bound_j", C.c_double),
    ("fastest_s", C.c_double),
    ("minimum_energy_s", C.c_double),
    ("slowest_replica", C.c_int),
    ("replica_count", C.c_int),
    ("peer_count", C.c_int),
    ("rank_count", C.c_int),
    ("distinct_count", C.c_int),
    ("all_maximum", harpe_replica_total),
    ("one_plan", harpe_replica_total),
]
harpe_replica_plan._fields_ = [
    ("start_s", C.c_double),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("lower_bound_j", C.c_double),
    ("fastest_s", C.c_double),
    ("same_as", C.c_int),
]
harpe_scheduler_job._fields_ = [
    ("job", C.POINTER(harpe_job_info)),
    ("ranks", C.POINTER(harpe_rank_info)),
    ("settings_json", C.c_char_p),
    ("args_json", C.c_char_p),
    ("directory", C.c_char_p),
    ("log", harpe_log),
]
harpe_schedule_writer._fields_ = [
    ("add", C.CFUNCTYPE(C.c_int, C.POINTER(harpe_schedule_writer), C.c_int, C.c_char_p, C.c_int, C.POINTER(harpe_error))),
    ("mark_trial", C.CFUNCTYPE(None, C.POINTER(harpe_schedule_writer))),
]
harpe_scheduler_class._fields_ = [
    ("abi", C.c_int),
    ("name", C.c_char_p),
    ("check_args", C.CFUNCTYPE(C.c_int, C.c_char_p, C.POINTER(harpe_error))),
    ("create", C.CFUNCTYPE(C.c_int, C.POINTER(harpe_scheduler_job), C.POINTER(C.c_void_p), C.POINTER(harpe_error))),
    ("next_schedule", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(harpe_schedule_writer), C.POINTER(harpe_error))),
    ("observe", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(harpe_profiling_result), C.c_size_t, C.POINTER(harpe_error))),
    ("destroy", C.CFUNCTYPE(None, C.c_void_p)),
    ("is_finished", C.CFUNCTYPE(C.c_bool, C.c_void_p)),
    ("save", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(harpe_error))),
    ("load", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.c_size_t, C.POINTER(harpe_error))),
    ("job_request", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int, C.c_double, C.POINTER(harpe_error))),
    ("frontier", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error))),
    ("pipeline", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int64, C.POINTER(C.c_void_p), C.POINTER(harpe_error))),
]
harpe_scheduler_class.wish = harpe_scheduler_class.job_request
harpe_tuning_options._fields_ = [
    ("gpus", C.c_void_p),
    ("tunes_clock", C.c_bool),
    ("tunes_limit", C.c_bool),
    ("max_slowdown", C.c_double),
    ("aim", C.c_int),
    ("eta", C.c_double),
    ("is_dry", C.c_bool),
    ("rate_url", C.c_char_p),
    ("rate_name", C.c_char_p),
    ("latency_name", C.c_char_p),
    ("latency_p95_s", C.c_double),
    ("rate_file", C.c_char_p),
    ("save_path", C.c_char_p),
    ("log", harpe_log),
]
harpe_tuning_report._fields_ = [
    ("phase", C.c_int),
    ("meter", C.c_char_p),
    ("clock_mhz", C.c_int),
    ("limit_w", C.c_int),
    ("now_mhz", C.c_int),
    ("now_w", C.c_int),
    ("trials", C.c_int),
    ("program_phases", C.c_int),
    ("slowdown", C.c_double),
    ("slowdown_error", C.c_double),
    ("slowest_minute", C.c_double),
    ("saved", C.c_double),
    ("saved_error", C.c_double),
    ("guess_low", C.c_double),
    ("guess_high", C.c_double),
    ("is_noise", C.c_bool),
    ("highest_j_per_work", C.c_double),
    ("chosen_j_per_work", C.c_double),
    ("highest_s_per_work", C.c_double),
    ("chosen_s_per_work", C.c_double),
    ("work", C.c_double),
    ("time_s", C.c_double),
    ("energy_j", C.c_double),
    ("used_j", C.c_double),
    ("highest_j", C.c_double),
    ("latency_p95_s", C.c_double),
    ("is_restored", C.c_bool),
    ("is_unrestored", C.c_bool),
    ("reason", C.c_char_p),
]

# name: (result, arguments)
FUNCTIONS = {
    "harpe_callback_set_add": (C.c_int, [C.c_void_p, C.POINTER(harpe_training_callback), C.POINTER(harpe_error)]),
    "harpe_callback_set_free": (None, [C.c_void_p]),
    "harpe_callback_set_new": (C.c_int, [C.POINTER(harpe_training_callback), C.c_size_t, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_fleet_add": (C.c_int, [C.c_void_p, C.POINTER(harpe_fleet_job), C.POINTER(C.c_int), C.POINTER(harpe_error)]),
    "harpe_fleet_add_group": (C.c_int, [C.c_void_p, C.c_char_p, C.c_int, C.POINTER(C.c_int), C.POINTER(harpe_error)]),
    "harpe_fleet_choice_of": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_fleet_choice), C.POINTER(harpe_error)]),
    "harpe_fleet_free": (None, [C.c_void_p]),
    "harpe_fleet_group_count": (C.c_int, [C.c_void_p]),
    "harpe_fleet_group_name": (C.c_char_p, [C.c_void_p, C.c_int]),
    "harpe_fleet_group_parent": (C.c_int, [C.c_void_p, C.c_int]),
    "harpe_fleet_job_end": (C.c_int, [C.c_void_p]),
    "harpe_fleet_job_name": (C.c_char_p, [C.c_void_p, C.c_int]),
    "harpe_fleet_new": (C.c_int, [C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_fleet_parse_json": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.c_double, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_fleet_read_json": (C.c_int, [C.c_char_p, C.c_double, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_fleet_remove": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_error)]),
    "harpe_fleet_set_budget": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_fleet_budget), C.POINTER(harpe_error)]),
    "harpe_fleet_set_price": (C.c_int, [C.c_void_p, C.POINTER(harpe_fleet_price), C.POINTER(harpe_error)]),
    "harpe_fleet_set_watts": (C.c_int, [C.c_void_p, C.POINTER(C.c_double), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_fleet_solve": (C.c_int, [C.c_void_p, C.POINTER(harpe_fleet_split), C.POINTER(harpe_error)]),
    "harpe_fleet_update": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_fleet_job), C.POINTER(harpe_error)]),
    "harpe_fleet_use_of": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_fleet_use), C.POINTER(harpe_error)]),
    "harpe_fleet_verify": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_frequency_controller_anticipates": (harpe_frequency_controller_anticipation, [C.c_void_p]),
    "harpe_frequency_controller_check": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_frequency_controller_count": (harpe_frequency_controller_counts, [C.c_void_p]),
    "harpe_frequency_controller_obeys": (harpe_frequency_controller_obedience, [C.c_void_p]),
    "harpe_frequency_controller_restart": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_frequency_controller_set": (None, [C.c_void_p, C.c_int]),
    "harpe_frequency_controller_start": (C.c_int, [C.POINTER(harpe_frequency_controller_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_frequency_controller_stop": (None, [C.c_void_p]),
    "harpe_frequency_controller_switch_latencies": (C.c_size_t, [C.c_void_p, C.POINTER(harpe_switch_latency), C.c_size_t]),
    "harpe_frequency_schedule_copy": (C.c_int, [C.POINTER(harpe_frequency_schedule), C.POINTER(harpe_frequency_schedule), C.POINTER(harpe_error)]),
    "harpe_frequency_schedule_format": (C.c_int, [C.POINTER(harpe_frequency_schedule), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_frequency_schedule_free": (None, [C.POINTER(harpe_frequency_schedule)]),
    "harpe_frequency_schedule_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(harpe_frequency_schedule), C.POINTER(harpe_error)]),
    "harpe_frontier_bound_at": (C.c_double, [C.c_void_p, C.c_double]),
    "harpe_frontier_free": (None, [C.c_void_p]),
    "harpe_frontier_new": (C.c_int, [C.c_void_p, C.POINTER(harpe_progress), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_frontier_new_for": (C.c_int, [C.c_void_p, C.POINTER(harpe_clock_switch), C.POINTER(harpe_progress), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_frontier_verify": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_frontier_vertices": (C.POINTER(harpe_frontier_vertex), [C.c_void_p, C.POINTER(C.c_size_t)]),
    "harpe_frontier_work": (harpe_work, [C.c_void_p]),
    "harpe_gpu_average_power": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_current_clocks": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_default_power_limit": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_energy_scope": (C.c_int, [C.c_void_p, C.c_int]),
    "harpe_gpu_enforced_power_limit": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_graphics_clocks": (C.c_int, [C.c_void_p, C.c_int, C.c_uint32, C.POINTER(C.POINTER(C.c_uint32)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_gpu_info_at": (C.POINTER(harpe_gpu_info), [C.c_void_p, C.c_int]),
    "harpe_gpu_instant_power": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_lock_graphics_clocks": (C.c_int, [C.c_void_p, C.c_int, C.c_uint32, C.c_uint32, C.POINTER(harpe_error)]),
    "harpe_gpu_lock_memory_clocks": (C.c_int, [C.c_void_p, C.c_int, C.c_uint32, C.c_uint32, C.POINTER(harpe_error)]),
    "harpe_gpu_memory_clocks": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.POINTER(C.c_uint32)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_gpu_module_power": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_persistence_mode": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_bool), C.POINTER(harpe_error)]),
    "harpe_gpu_power_limit": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_power_limit_range": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_reset_graphics_clocks": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_error)]),
    "harpe_gpu_reset_memory_clocks": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(harpe_error)]),
    "harpe_gpu_set_persistence_mode": (C.c_int, [C.c_void_p, C.c_int, C.c_bool, C.POINTER(harpe_error)]),
    "harpe_gpu_set_power_limit": (C.c_int, [C.c_void_p, C.c_int, C.c_uint32, C.POINTER(harpe_error)]),
    "harpe_gpu_temperature": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint32), C.POINTER(harpe_error)]),
    "harpe_gpu_throttle_reasons": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint64), C.POINTER(harpe_error)]),
    "harpe_gpu_total_energy": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(C.c_uint64), C.POINTER(harpe_error)]),
    "harpe_gpu_write_count": (harpe_gpu_writes, [C.c_void_p, C.c_int]),
    "harpe_gpus_are_emulated": (C.c_bool, [C.c_void_p]),
    "harpe_gpus_backend_name": (C.c_char_p, [C.c_void_p]),
    "harpe_gpus_check_same_model": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_gpus_clock_ns": (C.c_int64, [C.c_void_p]),
    "harpe_gpus_close": (None, [C.c_void_p]),
    "harpe_gpus_count": (C.c_int, [C.c_void_p]),
    "harpe_gpus_driver_version": (C.c_char_p, [C.c_void_p]),
    "harpe_gpus_open": (C.c_int, [C.POINTER(harpe_gpus_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_gpus_restore": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_graph_activity_at": (C.POINTER(harpe_graph_activity), [C.c_void_p, C.c_size_t]),
    "harpe_graph_activity_count": (C.c_size_t, [C.c_void_p]),
    "harpe_graph_free": (None, [C.c_void_p]),
    "harpe_graph_new": (C.c_int, [C.POINTER(harpe_graph_resource), C.c_size_t, C.POINTER(harpe_graph_activity), C.c_size_t, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_graph_of_problem": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_graph_parse_json": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_graph_read_json": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_graph_resource_at": (C.POINTER(harpe_graph_resource), [C.c_void_p, C.c_size_t]),
    "harpe_graph_resource_count": (C.c_size_t, [C.c_void_p]),
    "harpe_graph_runs": (C.c_int, [C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_graph_run), C.POINTER(harpe_error)]),
    "harpe_graph_write_json": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_instruction_profiler_begin": (None, [C.c_void_p, C.c_char_p, C.c_int]),
    "harpe_instruction_profiler_begin_step": (None, [C.c_void_p, C.c_int64]),
    "harpe_instruction_profiler_cancel_step": (None, [C.c_void_p]),
    "harpe_instruction_profiler_end": (None, [C.c_void_p]),
    "harpe_instruction_profiler_end_step": (None, [C.c_void_p]),
    "harpe_instruction_profiler_free": (None, [C.c_void_p]),
    "harpe_instruction_profiler_new": (C.c_int, [C.POINTER(harpe_instruction_profiler_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_instruction_profiler_step_count": (C.c_size_t, [C.c_void_p, C.c_int64]),
    "harpe_instruction_profiler_take": (C.c_int, [C.c_void_p, C.c_int64, C.c_size_t, C.c_int, C.POINTER(harpe_profiling_result), C.POINTER(harpe_error)]),
    "harpe_instruction_profiler_waiting_power_w": (C.c_double, [C.c_void_p]),
    "harpe_instruction_profiler_write_csv": (C.c_int, [C.c_void_p, C.c_int, C.c_int, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_job_info_copy": (C.c_int, [C.POINTER(harpe_job_info), C.POINTER(harpe_job_info), C.POINTER(harpe_error)]),
    "harpe_job_info_format": (C.c_int, [C.POINTER(harpe_job_info), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_job_info_free": (None, [C.POINTER(harpe_job_info)]),
    "harpe_job_info_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(harpe_job_info), C.POINTER(harpe_error)]),
    "harpe_log_after_fork": (None, []),
    "harpe_log_before_fork": (None, []),
    "harpe_log_write_outside_forks": (None, [C.c_void_p, C.c_int, C.c_char_p]),
    "harpe_monitor_begin": (C.c_int, [C.c_void_p, C.c_char_p, C.c_bool, C.POINTER(harpe_error)]),
    "harpe_monitor_end": (C.c_int, [C.c_void_p, C.c_char_p, C.c_bool, C.POINTER(harpe_window_measurement), C.POINTER(harpe_error)]),
    "harpe_monitor_free": (None, [C.c_void_p]),
    "harpe_monitor_new": (C.c_int, [C.POINTER(harpe_monitor_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_offline_profiling_result_free": (None, [C.POINTER(harpe_offline_profiling_result)]),
    "harpe_offline_profiling_results_free": (None, [C.POINTER(harpe_offline_profiling_result), C.c_size_t]),
    "harpe_offline_profiling_results_load": (C.c_int, [C.c_char_p, C.POINTER(C.POINTER(harpe_offline_profiling_result)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_offline_profiling_results_save": (C.c_int, [C.c_char_p, C.POINTER(harpe_offline_profiling_result), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_offline_profiling_results_write_csv": (C.c_int, [C.c_char_p, C.POINTER(harpe_offline_profiling_result), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_on_epoch_begin": (None, [C.c_void_p]),
    "harpe_on_epoch_end": (None, [C.c_void_p]),
    "harpe_on_evaluate": (None, [C.c_void_p, C.c_double]),
    "harpe_on_instruction_begin": (None, [C.c_void_p, C.c_char_p]),
    "harpe_on_instruction_end": (None, [C.c_void_p, C.c_char_p]),
    "harpe_on_step_begin": (None, [C.c_void_p]),
    "harpe_on_step_end": (None, [C.c_void_p]),
    "harpe_on_train_begin": (None, [C.c_void_p]),
    "harpe_on_train_end": (None, [C.c_void_p]),
    "harpe_pipeline_frequency_callback": (harpe_training_callback, [C.c_void_p]),
    "harpe_pipeline_frequency_check": (C.c_int, [C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_pipeline_frequency_free": (None, [C.c_void_p]),
    "harpe_pipeline_frequency_get_status": (harpe_pipeline_frequency_status, [C.c_void_p]),
    "harpe_pipeline_frequency_look": (harpe_pipeline_frequency_status, [C.c_void_p]),
    "harpe_pipeline_frequency_new": (C.c_int, [C.POINTER(harpe_pipeline_frequency_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_pipeline_frequency_on_instruction_begin": (None, [C.c_void_p, C.c_char_p]),
    "harpe_pipeline_frequency_on_instruction_end": (None, [C.c_void_p, C.c_char_p]),
    "harpe_pipeline_frequency_on_step_begin": (None, [C.c_void_p]),
    "harpe_pipeline_frequency_on_step_end": (None, [C.c_void_p]),
    "harpe_pipeline_frequency_set_tokens_per_step": (C.c_int, [C.c_void_p, C.c_int64, C.POINTER(harpe_error)]),
    "harpe_pipeline_frequency_spoiled_steps": (C.c_uint64, [C.c_void_p]),
    "harpe_pipeline_frequency_wait_for_round": (C.c_int, [C.c_void_p, C.c_int64, C.c_double, C.POINTER(harpe_error)]),
    "harpe_plan_all_maximum": (C.c_int, [C.c_void_p, C.POINTER(harpe_plan), C.POINTER(harpe_error)]),
    "harpe_plan_evaluate": (C.c_int, [C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_plan), C.POINTER(C.c_double), C.POINTER(harpe_error)]),
    "harpe_plan_evaluate_late": (C.c_int, [C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_clock_switch), C.c_double, C.POINTER(harpe_late_plan), C.POINTER(harpe_late_instruction), C.POINTER(harpe_error)]),
    "harpe_plan_file_free": (None, [C.c_void_p]),
    "harpe_plan_file_match": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_error)]),
    "harpe_plan_file_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_plan_file_rank": (C.POINTER(harpe_plan_file_entry), [C.c_void_p, C.c_int, C.POINTER(C.c_size_t)]),
    "harpe_plan_file_rank_count": (C.c_int, [C.c_void_p]),
    "harpe_plan_file_read": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_plan_file_write": (C.c_int, [C.c_char_p, C.c_void_p, C.POINTER(harpe_plan), C.c_int, C.c_double, C.POINTER(harpe_error)]),
    "harpe_plan_one_clock_mhz": (C.c_int, [C.c_void_p, C.POINTER(C.c_int)]),
    "harpe_plan_power_shape": (C.c_int, [C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_power_shape), C.POINTER(harpe_error)]),
    "harpe_plan_set_at": (C.POINTER(harpe_plan), [C.c_void_p, C.c_size_t]),
    "harpe_plan_set_count": (C.c_size_t, [C.c_void_p]),
    "harpe_plan_set_free": (None, [C.c_void_p]),
    "harpe_plan_set_new": (C.c_int, [C.c_void_p, C.POINTER(harpe_plan_request), C.POINTER(harpe_progress), C.POINTER(C.c_void_p), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_plan_set_one_clock": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_plan_set_verify": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.POINTER(harpe_error)]),
    "harpe_plan_set_within": (C.POINTER(harpe_plan), [C.c_void_p, C.c_double]),
    "harpe_plan_switching": (C.c_int, [C.c_void_p, C.POINTER(C.c_int), C.POINTER(harpe_clock_switch), C.POINTER(harpe_switching), C.POINTER(harpe_error)]),
    "harpe_plan_verify": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(harpe_plan), C.POINTER(harpe_error)]),
    "harpe_power_limit_callback": (harpe_training_callback, [C.c_void_p]),
    "harpe_power_limit_count_step": (None, [C.c_int]),
    "harpe_power_limit_current_w": (C.c_int, [C.c_void_p]),
    "harpe_power_limit_end_source": (None, [C.c_int]),
    "harpe_power_limit_get_state": (harpe_power_limit_state, [C.c_void_p]),
    "harpe_power_limit_gpus_device": (C.POINTER(harpe_power_limit_device), [C.c_void_p]),
    "harpe_power_limit_gpus_free": (None, [C.c_void_p]),
    "harpe_power_limit_gpus_new": (C.c_int, [C.c_void_p, C.c_bool, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_power_limit_has_failed": (C.c_bool, [C.c_void_p]),
    "harpe_power_limit_is_done": (C.c_bool, [C.c_void_p]),
    "harpe_power_limit_mark_epoch": (None, []),
    "harpe_power_limit_mark_step": (None, []),
    "harpe_power_limit_measurements": (C.POINTER(harpe_power_limit_measurement), [C.c_void_p, C.POINTER(C.c_size_t)]),
    "harpe_power_limit_on_epoch_begin": (None, [C.c_void_p]),
    "harpe_power_limit_on_epoch_end": (None, [C.c_void_p]),
    "harpe_power_limit_on_step_begin": (None, [C.c_void_p]),
    "harpe_power_limit_on_step_end": (None, [C.c_void_p]),
    "harpe_power_limit_optimizer_free": (None, [C.c_void_p]),
    "harpe_power_limit_optimizer_new": (C.c_int, [C.POINTER(harpe_power_limit_device), C.POINTER(harpe_power_limit_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_power_limit_optimum_w": (C.c_int, [C.c_void_p]),
    "harpe_problem_blocking_power_w": (C.c_double, [C.c_void_p, C.c_int]),
    "harpe_problem_free": (None, [C.c_void_p]),
    "harpe_problem_gpu_count": (C.c_int, [C.c_void_p, C.c_int]),
    "harpe_problem_has_switch_latency": (C.c_bool, [C.c_void_p]),
    "harpe_problem_instruction_count": (C.c_size_t, [C.c_void_p]),
    "harpe_problem_instruction_name": (C.c_char_p, [C.c_void_p, C.c_int, C.c_size_t]),
    "harpe_problem_new": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(harpe_problem_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_problem_of_graph": (C.c_int, [C.c_void_p, C.POINTER(harpe_problem_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_problem_option_list_at": (C.POINTER(harpe_option_list), [C.c_void_p, C.c_size_t]),
    "harpe_problem_option_list_count": (C.c_size_t, [C.c_void_p]),
    "harpe_problem_rank_count": (C.c_int, [C.c_void_p]),
    "harpe_problem_rank_length": (C.c_size_t, [C.c_void_p, C.c_int]),
    "harpe_problem_switch_latency_s": (C.c_double, [C.c_void_p, C.c_int, C.c_int]),
    "harpe_problem_total_gpu_count": (C.c_int, [C.c_void_p]),
    "harpe_problem_wait_power_w": (C.c_double, [C.c_void_p, C.c_int, C.c_size_t]),
    "harpe_profile_blocking_power_w": (C.c_double, [C.c_void_p, C.c_int]),
    "harpe_profile_entry_at": (C.POINTER(harpe_profile_entry), [C.c_void_p, C.c_size_t]),
    "harpe_profile_entry_count": (C.c_size_t, [C.c_void_p]),
    "harpe_profile_find": (C.POINTER(harpe_profile_entry), [C.c_void_p, C.c_int, C.c_char_p]),
    "harpe_profile_free": (None, [C.c_void_p]),
    "harpe_profile_gpu_count": (C.c_int, [C.c_void_p, C.c_int]),
    "harpe_profile_has_switch_latency": (C.c_bool, [C.c_void_p]),
    "harpe_profile_new": (C.c_int, [C.POINTER(harpe_measurement), C.c_size_t, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_profile_parse_csv": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_profile_read_csv": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_profile_repeat_at": (C.POINTER(harpe_profile_repeat), [C.c_void_p, C.c_size_t]),
    "harpe_profile_repeat_count": (C.c_size_t, [C.c_void_p]),
    "harpe_profile_stage_count": (C.c_int, [C.c_void_p]),
    "harpe_profile_switch_latency_s": (C.c_double, [C.c_void_p, C.c_int, C.c_int]),
    "harpe_profile_synthesize": (C.c_int, [C.POINTER(harpe_synth_options), C.POINTER(C.c_void_p), C.POINTER(C.c_double), C.POINTER(harpe_error)]),
    "harpe_profile_warning_at": (C.c_char_p, [C.c_void_p, C.c_size_t]),
    "harpe_profile_write_csv": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_profiling_result_copy": (C.c_int, [C.POINTER(harpe_profiling_result), C.POINTER(harpe_profiling_result), C.POINTER(harpe_error)]),
    "harpe_profiling_result_format": (C.c_int, [C.POINTER(harpe_profiling_result), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_profiling_result_free": (None, [C.POINTER(harpe_profiling_result)]),
    "harpe_profiling_result_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(harpe_profiling_result), C.POINTER(harpe_error)]),
    "harpe_profiling_results_free": (None, [C.POINTER(harpe_profiling_result), C.c_size_t]),
    "harpe_profiling_results_load": (C.c_int, [C.c_char_p, C.POINTER(C.POINTER(harpe_profiling_result)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_profiling_results_save": (C.c_int, [C.c_char_p, C.POINTER(harpe_profiling_result), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_rank_info_copy": (C.c_int, [C.POINTER(harpe_rank_info), C.POINTER(harpe_rank_info), C.POINTER(harpe_error)]),
    "harpe_rank_info_format": (C.c_int, [C.POINTER(harpe_rank_info), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_rank_info_free": (None, [C.POINTER(harpe_rank_info)]),
    "harpe_rank_info_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(harpe_rank_info), C.POINTER(harpe_error)]),
    "harpe_ranks_free": (None, [C.POINTER(harpe_rank_info), C.c_size_t]),
    "harpe_ranks_load": (C.c_int, [C.c_char_p, C.POINTER(C.POINTER(harpe_rank_info)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_ranks_save": (C.c_int, [C.c_char_p, C.POINTER(harpe_rank_info), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_replica_plans_at": (C.POINTER(harpe_replica_plan), [C.c_void_p, C.c_int]),
    "harpe_replica_plans_bound_at": (C.c_double, [C.c_void_p, C.c_double]),
    "harpe_replica_plans_evaluate": (C.c_int, [C.c_void_p, C.c_int, C.c_void_p, C.c_void_p, C.POINTER(harpe_problem_options), C.POINTER(harpe_replica_total), C.POINTER(harpe_error)]),
    "harpe_replica_plans_free": (None, [C.c_void_p]),
    "harpe_replica_plans_frequencies": (C.POINTER(C.c_int), [C.c_void_p, C.c_int, C.c_int, C.c_int, C.POINTER(C.c_size_t)]),
    "harpe_replica_plans_frontier": (C.c_int, [C.c_void_p, C.c_size_t, C.POINTER(harpe_frontier_vertex), C.POINTER(harpe_error)]),
    "harpe_replica_plans_instruction_name": (C.c_char_p, [C.c_void_p, C.c_int, C.c_size_t]),
    "harpe_replica_plans_job": (harpe_replica_job, [C.c_void_p]),
    "harpe_replica_plans_new": (C.c_int, [C.c_void_p, C.c_void_p, C.POINTER(harpe_problem_options), C.POINTER(harpe_replica_request), C.POINTER(harpe_progress), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_plans_one_clock": (harpe_replica_total, [C.c_void_p, C.c_double, C.POINTER(C.c_int)]),
    "harpe_replica_plans_verify": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.POINTER(harpe_problem_options), C.POINTER(harpe_error)]),
    "harpe_replica_plans_write": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_replica_plans_write_one": (C.c_int, [C.c_void_p, C.c_int, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_replica_profiles_at": (C.c_void_p, [C.c_void_p, C.c_int, C.c_int]),
    "harpe_replica_profiles_free": (None, [C.c_void_p]),
    "harpe_replica_profiles_new": (C.c_int, [C.POINTER(C.c_void_p), C.c_int, C.c_int, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_profiles_parse_csv": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_profiles_peer_count": (C.c_int, [C.c_void_p]),
    "harpe_replica_profiles_read_csv": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_profiles_replica_count": (C.c_int, [C.c_void_p]),
    "harpe_replica_profiles_smooth": (C.c_int, [C.c_void_p, C.c_double, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_profiles_vary": (C.c_int, [C.c_void_p, C.c_double, C.POINTER(harpe_variability), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_replica_profiles_write_csv": (C.c_int, [C.c_void_p, C.c_char_p, C.POINTER(harpe_error)]),
    "harpe_schedule_description_at": (C.c_char_p, [C.c_int]),
    "harpe_schedule_for_profile": (C.c_int, [C.c_void_p, C.POINTER(harpe_schedule_request), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_schedule_free": (None, [C.c_void_p]),
    "harpe_schedule_instruction_count": (C.c_size_t, [C.c_void_p]),
    "harpe_schedule_microbatch_count": (C.c_int, [C.c_void_p]),
    "harpe_schedule_name": (C.c_char_p, [C.c_void_p]),
    "harpe_schedule_name_at": (C.c_char_p, [C.c_int]),
    "harpe_schedule_new": (C.c_int, [C.POINTER(harpe_schedule_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_schedule_parse_csv": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_schedule_rank": (C.POINTER(harpe_instruction), [C.c_void_p, C.c_int, C.POINTER(C.c_size_t)]),
    "harpe_schedule_rank_count": (C.c_int, [C.c_void_p]),
    "harpe_schedule_read_csv": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_schedule_stage_count": (C.c_int, [C.c_void_p]),
    "harpe_schedules_free": (None, [C.POINTER(harpe_frequency_schedule), C.c_size_t]),
    "harpe_schedules_load": (C.c_int, [C.c_char_p, C.POINTER(C.POINTER(harpe_frequency_schedule)), C.POINTER(C.c_size_t), C.POINTER(harpe_error)]),
    "harpe_schedules_save": (C.c_int, [C.c_char_p, C.POINTER(harpe_frequency_schedule), C.c_size_t, C.POINTER(harpe_error)]),
    "harpe_selector_energy": (harpe_power_limit_selector, []),
    "harpe_selector_max_slowdown": (C.c_int, [C.POINTER(harpe_selector_parameters), C.POINTER(harpe_power_limit_selector), C.POINTER(harpe_error)]),
    "harpe_selector_time": (harpe_power_limit_selector, []),
    "harpe_selector_zeus_cost": (C.c_int, [C.POINTER(harpe_selector_parameters), C.POINTER(harpe_power_limit_selector), C.POINTER(harpe_error)]),
    "harpe_status_name": (C.c_char_p, [C.c_int]),
    "harpe_synth_gpu_models": (C.POINTER(C.c_char_p), []),
    "harpe_tune_get_report": (None, [C.c_void_p, C.POINTER(harpe_tuning_report)]),
    "harpe_tune_mark": (None, [C.c_void_p, C.c_uint64]),
    "harpe_tune_start": (C.c_int, [C.POINTER(harpe_tuning_options), C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_tune_stop": (None, [C.c_void_p, C.POINTER(harpe_tuning_report)]),
    "harpe_version": (C.c_char_p, []),
    "harpe_wait_powers_free": (None, [C.c_void_p]),
    "harpe_wait_powers_parse_csv": (C.c_int, [C.c_char_p, C.c_size_t, C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_wait_powers_read_csv": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(harpe_error)]),
    "harpe_wait_powers_rows": (C.POINTER(harpe_wait_power), [C.c_void_p, C.POINTER(C.c_size_t)]),
    "harpe_window_measurement_clear": (None, [C.POINTER(harpe_window_measurement)]),
    "harpe_zeus_cost_j": (C.c_double, [C.POINTER(harpe_selector_parameters), C.c_int, C.POINTER(harpe_power_limit_measurement)]),
}
