/* SPDX-License-Identifier: Apache-2.0 */
/* Stages a node agent with trainers in a world. The first process causes faults, and looks at the
 * GPUs every LOOK_NS. Faults end after some time, and then all must end in an orderly way. */
#include "world/node.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <harpe/frequency_controller.h>
#include <harpe/gpu.h>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/helper_process.h"
#include "base/platform.h"
#include "base/process.h"
#include "base/wait.h"
#include "client/control.h"
#include "lease/lease.h"
#include "power_limit/guard.h"
#include "world/world.h"

#define SECOND INT64_C(1000000000)
#define MS INT64_C(1000000)

/* The promise of docs/agent.md, in virtual time: whatever ends a lease, the GPU is restored at
 * once; if only the agent is left to do it, as soon as it runs. */
#define BACK_NS SECOND
#define LOOK_NS (40 * MS)
/* A driver call that hangs takes so long. */
#define HANG_MS 20000
/* After a refusal, the helper process tries again every 20 ms, and the agent every second. */
#define AFTER_DRIVER_NS (3 * SECOND)

enum {
    GPUS_MAX = 4,
    TRAINERS_MAX = 5,
    HOLDINGS_MAX = 256,
    DOOMED_MAX = 3,
    FAULTS_S = 30,
    END_S = 400,
    STOP_S = 70,
    /* With rules, only one of two users may have leases. */
    ALLOWED_USER = 1001,
    OTHER_USER = 1002,
    HIGHEST_MHZ = 900,
    HIGHEST_W = 300,
    GRAPHICS_LOWEST_MHZ = 600,
    GRAPHICS_STEP_MHZ = 15,
    MOST_TURNS = 1000000,
};

/* What a trainer wants to hold, or held. GPUs have the driver's numbers, which do not change. */
typedef struct holding {
    pid_t trainer; /* 0: free */
    uid_t user;
    int gpu;
    harpe_saved_settings_kind control;
    bool is_wanted; /* false: the trainer has given it back */
    pid_t helper;   /* 0: none was granted yet */
    bool is_told;   /* the trainer has not learned yet that the helper process has died */
} holding;

/* A GPU and a kind of control. */
typedef struct lent {
    int64_t back_ns;   /* when it was last seen restored */
    int64_t wanted_ns; /* when it was last seen wanted */
} lent;

static struct {
    const world_node_options *options;
    world_node_result *result;
    world_notes notes;
    char folder[64], socket[96], config[96];
    bool has_rules;
    void (*use_platform)(const harpe_platform *platform);
    bool (*use_faults)(const char *list);
    int (*clock)(unsigned int gpu, uint32_t *current_mhz, uint32_t *next_mhz, int64_t *next_ns);

    harpe_gpus *gpus; /* of the first process */
    uint32_t idle_mhz[GPUS_MAX], idle_memory_mhz[GPUS_MAX], limit_mw[GPUS_MAX];
    bool persistence[GPUS_MAX];
    lent lent[GPUS_MAX][HARPE_SAVED_KINDS];
    holding holdings[HOLDINGS_MAX];

    pid_t agent;
    bool is_ready;        /* the agent answers */
    bool is_to_be_looked; /* the agent is new, and its leases were not compared yet */
    bool is_stopping;
    int64_t ready_ns, agent_back_ns;
    pid_t trainers[TRAINERS_MAX];
    int64_t helper_killed_ns, stalled_until_ns, driver_until_ns, driver_well_ns;
    int64_t driver_slow_ns;   /* of each call that sets something, while the fault is in force */
    int64_t slowest_ns;       /* the longest such time so far */
    const char *usual;        /* what the driver has without a fault */
    bool is_lossy, was_lossy; /* the driver's fault loses GPUs; a fault did */
    pid_t doomed[DOOMED_MAX];
    int doomed_count;
    uint64_t doomed_turns;
    int64_t next_fault_ns;
} node;

/* ---- What is told ---------------------------------------------------------------------------- */

static void write_log(void *user, harpe_log_level level, const char *line) {
    (void)level;
    world_tell(&node.notes, "%s %d: %s", (const char *)user, (int)harpe_process_self(), line);
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t draw_ns(int64_t most_ns) { return (int64_t)harpe_world_draw((uint64_t)most_ns); }

static const char *name_of(harpe_saved_settings_kind control) {
    return harpe_saved_settings_kind_name(control);
}

/* ---- Holders --------------------------------------------------------------------------------- */

static holding *want(uid_t user, int gpu, harpe_saved_settings_kind control) {
    for (int i = 0; i < HOLDINGS_MAX; i++) {
        holding *one = &node.holdings[i];
        if (one->trainer && (harpe_world_is_alive(one->trainer) ||
                             (one->helper && harpe_world_is_alive(one->helper))))
            continue;
        *one = (holding){harpe_process_self(), user, gpu, control, true, 0, false};
        node.lent[gpu][control].wanted_ns = harpe_clock_ns();
        return one;
    }
    abort();
}

/* Never two holders of one setting: the helper process of the holder before has ended. A trainer
 * that stood still may learn of a lease that has ended already. */
static void note_grant(holding *own, pid_t helper) {
    own->helper = helper;
    own->is_told = true;
    if (node.has_rules && own->user == OTHER_USER)
        world_accuse(&node.notes, "the rules do not allow the user of process %d",
                     (int)own->trainer);
    node.result->leases++;
    world_tell(&node.notes, "process %d has the %s of GPU %d, through process %d",
               (int)own->trainer, name_of(own->control), own->gpu, (int)helper);
    for (int i = 0; i < HOLDINGS_MAX && harpe_world_is_alive(helper); i++) {
        const holding *other = &node.holdings[i];
        if (other == own || !other->trainer || other->gpu != own->gpu ||
            other->control != own->control || !other->helper || other->helper == helper)
            continue;
        if (harpe_world_is_alive(other->helper))
            world_accuse(&node.notes,
                         "process %d got the %s of GPU %d, but process %d still has it through %d",
                         (int)own->trainer, name_of(own->control), own->gpu, (int)other->trainer,
                         (int)other->helper);
    }
}

static void give_back(holding *own) {
    world_tell(&node.notes, "process %d gives back the %s of GPU %d", (int)own->trainer,
               name_of(own->control), own->gpu);
    node.lent[own->gpu][own->control].wanted_ns = harpe_clock_ns();
    own->is_wanted = false;
    own->is_told = false;
}

static void work(int64_t longest_ns) { harpe_sleep_ns(draw_ns(longest_ns) + 1); }

/* In a world without faults a clock holds soon after it was asked for. */
static void check_clock(int gpu, int mhz) {
    uint32_t current_mhz = 0;
    if (node.options->faults || (node.has_rules && mhz > HIGHEST_MHZ)) return;
    harpe_sleep_ns(50 * MS);
    (void)node.clock((unsigned)gpu, &current_mhz, NULL, NULL);
    if (current_mhz != (uint32_t)mhz)
        world_accuse(&node.notes, "GPU %d has %u MHz, but its holder wants %d MHz", gpu,
                     current_mhz, mhz);
}

/* The lease has ended. Returns false if it could not be taken again in some attempts. */
static bool take_clocks_again(harpe_frequency_controller *controller, holding *own) {
    harpe_error error;
    own->is_told = false;
    for (int tries = 0; tries < 10; tries++) {
        if (harpe_frequency_controller_restart(controller, &error) == HARPE_OK) {
            note_grant(own, atomic_load(&controller->process));
            return true;
        }
        world_tell(&node.notes, "process %d: %s", (int)own->trainer, error.message);
        work(SECOND);
    }
    return false;
}

static void hold_clocks(uid_t user, harpe_gpus *gpus, int index) {
    int gpu = harpe_gpu_info_at(gpus, index)->driver_index;
    harpe_frequency_controller *controller = NULL;
    harpe_error error = {.status = HARPE_OK};
    harpe_frequency_controller_options options = {
        .gpus = gpus, .gpu = index, .poll_interval_s = -1, .log = {write_log, (void *)"trainer"}};
    holding *own = want(user, gpu, HARPE_SAVED_CLOCKS);
    if (harpe_frequency_controller_start(&options, &controller, &error) != HARPE_OK) {
        world_tell(&node.notes, "process %d: %s", (int)own->trainer, error.message);
        give_back(own);
        return;
    }
    note_grant(own, atomic_load(&controller->process));
    for (uint64_t left = harpe_world_draw(12); left > 0; left--) {
        int mhz = GRAPHICS_LOWEST_MHZ + GRAPHICS_STEP_MHZ * (int)harpe_world_draw(40);
        harpe_frequency_controller_set(controller, mhz);
        check_clock(gpu, mhz);
        work(300 * MS);
        if (harpe_frequency_controller_check(controller, &error) == HARPE_OK) continue;
        world_tell(&node.notes, "process %d: %s", (int)own->trainer, error.message);
        if (harpe_frequency_controller_has_died(controller) && !take_clocks_again(controller, own))
            break;
    }
    give_back(own);
    harpe_frequency_controller_stop(controller);
}

static harpe_status take_power(const char *uuid, holding *own, harpe_lease *lease) {
    harpe_error error;
    harpe_lease_request request = {
        .uuid = uuid, .control = HARPE_SAVED_POWER, .memory = -1, .waits = harpe_world_draw(2)};
    harpe_status status = harpe_lease_take(node.socket, &request, lease, &error);
    if (status == HARPE_OK)
        note_grant(own, lease->process);
    else
        world_tell(&node.notes, "process %d: %s", (int)own->trainer, error.message);
    return status;
}

static void hold_power(uid_t user, const harpe_gpu_info *gpu) {
    harpe_lease lease;
    harpe_error error;
    holding *own = want(user, gpu->driver_index, HARPE_SAVED_POWER);
    harpe_status status = take_power(gpu->uuid, own, &lease);
    for (uint64_t left = harpe_world_draw(12); left > 0 && status == HARPE_OK; left--) {
        uint32_t limit_mw = 1000 * (150 + (uint32_t)harpe_world_draw(200));
        harpe_lease_power_setting setting =
            harpe_world_draw(4) ? HARPE_LEASE_POWER_LIMIT : HARPE_LEASE_PERSISTENCE;
        harpe_status set = harpe_lease_power_set(
            lease.socket, setting, setting == HARPE_LEASE_POWER_LIMIT ? limit_mw : limit_mw & 1,
            &error);
        if (set != HARPE_OK)
            world_tell(&node.notes, "process %d: %s", (int)own->trainer, error.message);
        work(300 * MS);
        if (set != HARPE_UNAVAILABLE) continue;
        harpe_process_close(lease.socket);
        own->is_told = false;
        status = take_power(gpu->uuid, own, &lease);
    }
    give_back(own);
    if (status == HARPE_OK) harpe_process_close(lease.socket);
}

static int train(void *unused) {
    (void)unused;
    harpe_gpus_options options = {.visible_devices = "all"};
    uid_t user = harpe_world_draw(3) ? ALLOWED_USER : OTHER_USER;
    if (node.has_rules) harpe_world_set_user(harpe_process_self(), user, user);
    for (uint64_t left = 1 + harpe_world_draw(4); left > 0; left--) {
        harpe_gpus *gpus = NULL;
        work(SECOND);
        if (harpe_gpus_open(&options, &gpus, NULL) != HARPE_OK) continue;
        int index = (int)harpe_world_draw((uint64_t)harpe_gpus_count(gpus));
        if (harpe_world_draw(3))
            hold_clocks(user, gpus, index);
        else
            hold_power(user, harpe_gpu_info_at(gpus, index));
        harpe_gpus_close(gpus);
    }
    return EXIT_SUCCESS;
}

/* ---- Helper processes ------------------------------------------------------------------------ */

/* Trainers have no privilege. A controller that a trainer starts itself refuses as the driver
 * would. */
static int run_controller(int argc, char **argv) {
    harpe_controller_header header = {.magic = 0};
    struct pollfd wait = {.fd = harpe_helper_socket(), .events = POLLIN};
    (void)harpe_poll(&wait, 1, -1);
    ssize_t got = recv(harpe_helper_socket(), &header, sizeof header, MSG_PEEK | MSG_DONTWAIT);
    if (got != (ssize_t)sizeof header || header.terms.is_lease)
        return harpe_controller_main(argc, argv);
    harpe_controller_message refusal = {.news = HARPE_CONTROLLER_READY,
                                        .process = (int32_t)harpe_process_self()};
    (void)harpe_helper_process_receive(harpe_helper_socket(), &header, sizeof header, 0);
    refusal.error.status = harpe_fail(&refusal.error, HARPE_PERMISSION_DENIED, "not permitted");
    (void)harpe_helper_process_send(harpe_helper_socket(), &refusal, sizeof refusal);
    return EXIT_FAILURE;
}

static const harpe_world_program programs[] = {
    {HARPE_CONTROLLER_ARGUMENT, run_controller},
    {"power-limit", harpe_power_limit_guard_main},
    {HARPE_RECEIVER_ARGUMENT, harpe_receiver_main},
    {0},
};

static bool is_helper(pid_t process) {
    for (int i = 0; i < TRAINERS_MAX; i++)
        if (node.trainers[i] == process) return false;
    return process != node.agent;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

typedef enum setting_state { IS_BACK, IS_CHANGED, IS_BEYOND, IS_UNKNOWN } setting_state;

static setting_state look_at(int gpu, harpe_saved_settings_kind control, char *text, size_t size) {
    uint32_t mhz = 0, memory_mhz = 0, limit_mw = 0;
    bool persistence = false;
    if (control == HARPE_SAVED_CLOCKS) {
        if (harpe_gpu_current_clocks(node.gpus, gpu, &mhz, &memory_mhz, NULL) != HARPE_OK)
            return IS_UNKNOWN;
        (void)snprintf(text, size, "%u MHz, memory %u MHz", mhz, memory_mhz);
        if (node.has_rules && mhz > HIGHEST_MHZ) return IS_BEYOND;
        bool is_back = mhz == node.idle_mhz[gpu] && memory_mhz == node.idle_memory_mhz[gpu];
        return is_back ? IS_BACK : IS_CHANGED;
    }
    if (harpe_gpu_power_limit(node.gpus, gpu, &limit_mw, NULL) != HARPE_OK ||
        harpe_gpu_persistence_mode(node.gpus, gpu, &persistence, NULL) != HARPE_OK)
        return IS_UNKNOWN;
    (void)snprintf(text, size, "%u mW, persistence %d", limit_mw, persistence);
    if (limit_mw == node.limit_mw[gpu] && persistence == node.persistence[gpu]) return IS_BACK;
    bool is_beyond =
        node.has_rules && limit_mw > HIGHEST_W * 1000 && limit_mw != node.limit_mw[gpu];
    return is_beyond ? IS_BEYOND : IS_CHANGED;
}

static bool is_wanted(int gpu, harpe_saved_settings_kind control) {
    for (int i = 0; i < HOLDINGS_MAX; i++) {
        const holding *one = &node.holdings[i];
        if (one->trainer && one->gpu == gpu && one->control == control && one->is_wanted &&
            harpe_world_is_alive(one->trainer))
            return true;
    }
    return false;
}

/* After its holder has ended, a GPU is back in time. */
static void check_gpu(int gpu, harpe_saved_settings_kind control) {
    lent *own = &node.lent[gpu][control];
    char text[80] = "";
    setting_state found = look_at(gpu, control, text, sizeof text);
    int64_t now_ns = harpe_clock_ns();
    if (found == IS_BACK) own->back_ns = now_ns;
    if (found == IS_BEYOND) world_accuse(&node.notes, "GPU %d has %s, beyond the rules", gpu, text);
    if (is_wanted(gpu, control) || found == IS_UNKNOWN) own->wanted_ns = now_ns;
    if (found != IS_CHANGED || own->wanted_ns == now_ns || node.driver_until_ns) return;
    /* A process that stood still may be in the middle of a slow call. */
    int64_t due_ns = later(own->wanted_ns, node.stalled_until_ns + node.slowest_ns);
    due_ns = later(due_ns, node.driver_well_ns);
    if (node.helper_killed_ns >= own->back_ns) {
        if (!node.is_ready) return;
        due_ns = later(due_ns, later(node.ready_ns, node.helper_killed_ns));
    }
    if (now_ns - due_ns <= BACK_NS) return;
    world_accuse(&node.notes, "GPU %d has no holder of its %s since %.3f s, but it has %s", gpu,
                 name_of(control), (double)own->wanted_ns * 1e-9, text);
}

static void check_gpus(void) {
    for (int gpu = 0; gpu < node.result->gpus; gpu++)
        for (int control = 0; control < HARPE_SAVED_KINDS; control++)
            check_gpu(gpu, (harpe_saved_settings_kind)control);
}

static bool open_gpus(void) {
    harpe_gpus_options options = {.visible_devices = "all"};
    harpe_error error;
    if (harpe_gpus_open(&options, &node.gpus, &error) != HARPE_OK) {
        world_accuse(&node.notes, "%s", error.message);
        return false;
    }
    for (int gpu = 0; gpu < node.result->gpus; gpu++) {
        (void)harpe_gpu_current_clocks(node.gpus, gpu, &node.idle_mhz[gpu],
                                       &node.idle_memory_mhz[gpu], NULL);
        (void)harpe_gpu_power_limit(node.gpus, gpu, &node.limit_mw[gpu], NULL);
        (void)harpe_gpu_persistence_mode(node.gpus, gpu, &node.persistence[gpu], NULL);
    }
    return true;
}

/* ---- The agent ------------------------------------------------------------------------------- */

static void write_agent_log(void *user, harpe_log_level level, const char *line) {
    write_log(user, level, line);
    if (strncmp(line, "lends ", 6) != 0) return;
    node.is_ready = node.is_to_be_looked = true;
    node.ready_ns = harpe_clock_ns();
}

static int run_agent(void *user) {
    (void)user;
    harpe_error error = {.status = HARPE_OK};
    harpe_agent_options options = {.socket = node.socket,
                                   .config = node.config,
                                   .is_enclosed = true,
                                   .log = {write_agent_log, (void *)"agent"}};
    harpe_status status = harpe_agent_run(&options, &error);
    if (status != HARPE_OK)
        world_tell(&node.notes, "agent %d: %s", (int)harpe_process_self(), error.message);
    return (int)status;
}

static void start_agent(void) {
    node.is_ready = node.is_stopping = false;
    node.agent = harpe_world_start("agent", run_agent, NULL);
    world_tell(&node.notes, "agent %d starts", (int)node.agent);
}

static bool signal_agent(int number) {
    int pidfd = harpe_process_open(node.agent);
    bool is_sent = pidfd >= 0 && harpe_process_signal(pidfd, number) == 0;
    if (pidfd >= 0) (void)close(pidfd);
    return is_sent;
}

/* Returns the number of the helper process of a lease that the agent has lent, or 0. */
static pid_t shown_helper(const json_t *answer, const holding *one) {
    const json_t *leases = json_object_get(answer, "leases");
    for (size_t i = 0; i < json_array_size(leases); i++) {
        json_int_t gpu, helper;
        const char *control, *state;
        if (json_unpack(json_array_get(leases, i), "{s:I,s:s,s:s,s:I}", "gpu", &gpu, "control",
                        &control, "state", &state, "helper", &helper) == 0 &&
            gpu == one->gpu && strcmp(control, name_of(one->control)) == 0 &&
            strcmp(state, "lent") == 0)
            return (pid_t)helper;
    }
    return 0;
}

static bool is_held(const holding *one) {
    return one->trainer && one->is_wanted && one->is_told && one->helper &&
           harpe_world_is_alive(one->trainer) && harpe_world_is_alive(one->helper);
}

static bool is_lost(int gpu) {
    char text[80];
    return look_at(gpu, HARPE_SAVED_POWER, text, sizeof text) == IS_UNKNOWN;
}

/* A new agent knows the leases of the agent before it, except those of GPUs that are lost. */
static void look_at_leases(void) {
    static holding before[HOLDINGS_MAX];
    json_t *answer = NULL;
    harpe_error error;
    node.is_to_be_looked = false;
    memcpy(before, node.holdings, sizeof before);
    pid_t agent = node.agent;
    json_t *request = json_pack("{s:i,s:s}", "version", HARPE_LEASE_VERSION, "request", "status");
    if (harpe_lease_ask(node.socket, request, 0, &answer, &error) != HARPE_OK) {
        if (!node.options->faults) world_accuse(&node.notes, "%s", error.message);
        return;
    }
    for (int i = 0; i < HOLDINGS_MAX; i++) {
        const holding *now = &node.holdings[i];
        if (before[i].helper != now->helper || !is_held(now) || agent != node.agent ||
            node.is_stopping || is_lost(now->gpu))
            continue;
        pid_t shown = shown_helper(answer, now);
        if (shown != now->helper)
            world_accuse(&node.notes,
                         "the agent shows process %d for the %s of GPU %d, but it is process %d",
                         (int)shown, name_of(now->control), now->gpu, (int)now->helper);
    }
    json_decref(answer);
}

static void tend_agent(void) {
    if (harpe_world_is_alive(node.agent)) {
        if (node.is_ready && node.is_to_be_looked && !node.is_stopping) look_at_leases();
        return;
    }
    /* An agent that cannot restore all GPUs in time says so. It looks for a lost GPU every second.
     */
    bool is_well =
        !node.driver_until_ns &&
        harpe_clock_ns() > later(node.driver_well_ns, node.stalled_until_ns + AFTER_DRIVER_NS);
    if (node.is_stopping && is_well && harpe_world_exit_status(node.agent) > 0)
        world_accuse(&node.notes, "the agent has ended with %d",
                     harpe_world_exit_status(node.agent));
    node.is_ready = node.is_stopping = false;
    if (node.agent_back_ns == 0) node.agent_back_ns = harpe_clock_ns() + draw_ns(3 * SECOND);
    if (harpe_clock_ns() < node.agent_back_ns) return;
    node.agent_back_ns = 0;
    start_agent();
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void note_end(pid_t trainer) {
    for (int i = 0; i < HOLDINGS_MAX; i++) {
        const holding *one = &node.holdings[i];
        if (one->trainer == trainer && one->is_wanted)
            node.lent[one->gpu][one->control].wanted_ns = harpe_clock_ns();
    }
}

/* Kills the doomed processes between any two turns. */
static void count_turn(void *user) {
    (void)user;
    if (node.doomed_count == 0 || node.doomed_turns-- > 0) return;
    while (node.doomed_count > 0) {
        pid_t doomed = node.doomed[--node.doomed_count];
        if (!harpe_world_is_alive(doomed)) continue;
        world_tell(&node.notes, "fault: process %d is killed", (int)doomed);
        node.result->kills++;
        if (is_helper(doomed)) node.helper_killed_ns = harpe_clock_ns();
        if (doomed == node.agent) node.is_ready = false;
        note_end(doomed);
        harpe_world_kill(doomed);
    }
}

static void add_doomed(const char *name) {
    pid_t picked = harpe_world_pick(name);
    if (picked >= 0 && node.doomed_count < DOOMED_MAX) node.doomed[node.doomed_count++] = picked;
}

static void doom(void) {
    static const char *const victims[] = {"agent", "trainer", NULL, HARPE_RECEIVER_ARGUMENT};
    const char *helper = harpe_world_draw(3) ? HARPE_CONTROLLER_ARGUMENT : "power-limit";
    if (node.doomed_count > 0) return;
    node.doomed_turns = harpe_world_draw(harpe_world_draw(2) ? 20 : 500);
    switch (harpe_world_draw(6)) {
    case 0: add_doomed("agent");   /* fall through */
    case 1: add_doomed("trainer"); /* fall through */
    case 2: add_doomed(helper); break;
    case 3:
        add_doomed("agent");
        add_doomed(helper);
        break;
    default: add_doomed(victims[harpe_world_draw(4)]); break;
    }
}

static void stall(void) {
    pid_t picked = harpe_world_pick(NULL);
    int64_t until_ns = harpe_clock_ns() + draw_ns(harpe_world_draw(6) ? 2 * SECOND : 45 * SECOND);
    if (picked < 0) return;
    world_tell(&node.notes, "fault: process %d stands still until %.3f s", (int)picked,
               (double)until_ns * 1e-9);
    harpe_world_stall(picked, until_ns);
    node.stalled_until_ns = later(node.stalled_until_ns, until_ns);
    node.result->stalls++;
}

static void stop_agent(void) {
    if (!node.is_ready || node.is_stopping) return;
    world_tell(&node.notes, "the agent is stopped");
    node.is_stopping = signal_agent(SIGTERM);
    node.result->stops++;
}

static void jump(void) {
    int64_t by_ns = draw_ns(2 * 86400 * SECOND) - 86400 * SECOND;
    world_tell(&node.notes, "fault: the time of day jumps by %.3f s", (double)by_ns * 1e-9);
    harpe_world_jump(by_ns);
    node.result->jumps++;
}

static void disturb_driver(void) {
    char list[60];
    int gpu = (int)harpe_world_draw((uint64_t)node.result->gpus);
    if (node.driver_until_ns > 0) return;
    int slow_ms = harpe_world_draw(2) ? HANG_MS : 100 + (int)harpe_world_draw(900);
    node.is_lossy = false;
    node.driver_slow_ns = 0;
    switch (harpe_world_draw(4)) {
    case 0:
        (void)snprintf(list, sizeof list, "slow_set=%d", slow_ms);
        node.driver_slow_ns = slow_ms * MS;
        node.slowest_ns = later(node.slowest_ns, node.driver_slow_ns);
        break;
    case 1: (void)snprintf(list, sizeof list, "no_permission"); break;
    case 2:
        (void)snprintf(list, sizeof list, "not_supported=%s",
                       harpe_world_draw(2) ? "clock_locks" : "memory_locks");
        break;
    default:
        node.is_lossy = node.was_lossy = true;
        (void)snprintf(list, sizeof list, "lost_after=%d@%d,returns_after=%d",
                       (int)harpe_world_draw(200), gpu, 1 + (int)harpe_world_draw(20));
        break;
    }
    if (!node.use_faults(list)) {
        world_accuse(&node.notes, "the emulator does not know %s", list);
        return;
    }
    node.driver_until_ns = harpe_clock_ns() + draw_ns(40 * SECOND);
    world_tell(&node.notes, "fault: the driver has %s until %.3f s", list,
               (double)node.driver_until_ns * 1e-9);
    node.result->driver_faults++;
}

static void end_driver_fault(bool at_once) {
    if (node.driver_until_ns == 0 || (!at_once && harpe_clock_ns() < node.driver_until_ns)) return;
    /* A lost GPU returns only while the fault is in force. */
    (void)node.use_faults(node.is_lossy ? "returns_after=0" : node.usual);
    node.driver_until_ns = 0;
    node.driver_well_ns =
        later(node.driver_well_ns, harpe_clock_ns() + node.driver_slow_ns + AFTER_DRIVER_NS);
    world_tell(&node.notes, "the driver is well");
}

static void cause_fault(void) {
    if (harpe_clock_ns() < node.next_fault_ns) return;
    node.next_fault_ns = harpe_clock_ns() + draw_ns(2 * SECOND);
    static const unsigned kinds[] = {WORLD_KILLS, WORLD_KILLS, WORLD_STALLS, WORLD_DRIVER,
                                     WORLD_CLOCKS};
    unsigned kind = kinds[harpe_world_draw(5)];
    if (!(node.options->faults & kind)) return;
    if (kind == WORLD_KILLS && harpe_world_draw(6) == 0)
        stop_agent();
    else if (kind == WORLD_KILLS)
        doom();
    if (kind == WORLD_STALLS) stall();
    if (kind == WORLD_DRIVER) disturb_driver();
    if (kind == WORLD_CLOCKS) jump();
}

/* ---- The machine ----------------------------------------------------------------------------- */

static int trainers_left(void) {
    int left = 0;
    for (int i = 0; i < node.result->trainers; i++)
        left += node.trainers[i] > 0 && harpe_world_is_alive(node.trainers[i]);
    return left;
}

/* Starts the trainers that were killed again. */
static void replace_trainers(void) {
    for (int i = 0; i < node.result->trainers; i++)
        if (!harpe_world_is_alive(node.trainers[i]) && harpe_world_draw(100) == 0)
            node.trainers[i] = harpe_world_start("trainer", train, NULL);
}

static bool wait_until(bool (*is_done)(void), int64_t longest_ns) {
    int64_t until_ns = harpe_clock_ns() + longest_ns;
    while (!is_done() && !*node.result->fault) {
        if (harpe_clock_ns() > until_ns) return false;
        harpe_sleep_ns(LOOK_NS);
        tend_agent();
        check_gpus();
    }
    return true;
}

static bool is_agent_ready(void) { return node.is_ready && !node.is_stopping; }
static bool have_trainers_ended(void) { return trainers_left() == 0; }
static bool have_helpers_ended(void) {
    return harpe_world_pick(HARPE_CONTROLLER_ARGUMENT) < 0 && harpe_world_pick("power-limit") < 0;
}
static bool are_gpus_back(void) {
    char text[80];
    for (int gpu = 0; gpu < node.result->gpus; gpu++)
        for (int control = 0; control < HARPE_SAVED_KINDS; control++)
            if (look_at(gpu, (harpe_saved_settings_kind)control, text, sizeof text) != IS_BACK)
                return false;
    return true;
}

static void train_with_faults(void) {
    int64_t faults_end_ns = harpe_clock_ns() + draw_ns(FAULTS_S * SECOND);
    while (!*node.result->fault && harpe_clock_ns() < faults_end_ns) {
        harpe_sleep_ns(LOOK_NS);
        cause_fault();
        end_driver_fault(false);
        tend_agent();
        replace_trainers();
        check_gpus();
    }
    node.doomed_count = 0;
    end_driver_fault(true);
    world_tell(&node.notes, "calm");
}

static void list_files(void) {
    DIR *files = opendir(node.folder);
    for (const struct dirent *entry; files && (entry = readdir(files));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "agent.conf") != 0)
            world_accuse(&node.notes, "the file %s is left", entry->d_name);
    if (files) (void)closedir(files);
}

/* Nothing is left: no lease, no helper process, no held GPU, no file. */
static void check_end(void) {
    /* An agent does not look for GPUs that were lost when it started. */
    if (node.was_lossy && wait_until(is_agent_ready, 60 * SECOND)) stop_agent();
    if (!wait_until(is_agent_ready, 60 * SECOND))
        world_accuse(&node.notes, "the agent does not start");
    if (!wait_until(have_trainers_ended, END_S * SECOND))
        world_accuse(&node.notes, "the trainers do not end");
    if (!wait_until(are_gpus_back, 100 * SECOND))
        world_accuse(&node.notes, "a GPU does not come back");
    if (!wait_until(have_helpers_ended, 100 * SECOND))
        world_accuse(&node.notes, "a helper process does not end");
    if (*node.result->fault) return;
    (void)signal_agent(SIGTERM);
    if (!harpe_world_await(node.agent, harpe_clock_ns() + STOP_S * SECOND))
        world_accuse(&node.notes, "the agent does not end");
    else if (harpe_world_exit_status(node.agent) != 0)
        world_accuse(&node.notes, "the agent has ended with %d",
                     harpe_world_exit_status(node.agent));
    harpe_sleep_ns(SECOND);
    if (harpe_world_pick(NULL) >= 0)
        world_accuse(&node.notes, "process %d is left", (int)harpe_world_pick(NULL));
    if (!are_gpus_back()) world_accuse(&node.notes, "a GPU is not back");
    list_files();
}

static void run_node(void *user) {
    (void)user;
    static const char *const usual[] = {"", "slow_set=15", "slow_set=15,slow_get=1"};
    node.use_platform(harpe_platform_in_use);
    node.usual = usual[node.options->faults ? harpe_world_draw(3) : 0];
    (void)node.use_faults(node.usual);
    if (open_gpus()) {
        start_agent();
        harpe_world_on_step(count_turn, NULL);
        if (!wait_until(is_agent_ready, 60 * SECOND))
            world_accuse(&node.notes, "the agent does not start");
        for (int i = 0; i < node.result->trainers; i++)
            node.trainers[i] = harpe_world_start("trainer", train, NULL);
        if (node.options->faults) train_with_faults();
        check_end();
        harpe_world_on_step(NULL, NULL);
        harpe_gpus_close(node.gpus);
    }
    node.result->turns = harpe_world_turns();
    node.result->virtual_s = (double)harpe_clock_ns() * 1e-9;
    node.use_platform(NULL);
}

/* ---- The world ------------------------------------------------------------------------------- */

static bool prepare(void *library) {
    if (!library) return false;
    *(void **)&node.use_platform = dlsym(library, "harpe_emulator_use_platform");
    *(void **)&node.use_faults = dlsym(library, "harpe_emulator_use_faults");
    *(void **)&node.clock = dlsym(library, "harpe_emulator_clock");
    (void)snprintf(node.folder, sizeof node.folder, "/dev/shm/harpe-world-XXXXXX");
    if (!mkdtemp(node.folder)) return false;
    (void)snprintf(node.socket, sizeof node.socket, "%s/agent.sock", node.folder);
    (void)snprintf(node.config, sizeof node.config, "%s/agent.conf", node.folder);
    FILE *config = fopen(node.config, "w");
    if (config && node.has_rules)
        fprintf(config, "allow_users = %d\nhighest_clock_mhz = %d\nhighest_power_limit_w = %d\n",
                ALLOWED_USER, HIGHEST_MHZ, HIGHEST_W);
    if (config) (void)fclose(config);
    char gpus[32];
    (void)snprintf(gpus, sizeof gpus, "%dxA100", node.result->gpus);
    return config && setenv("HARPE_EMULATOR_GPUS", gpus, 1) == 0 &&
           setenv("HARPE_EMULATOR_PHYSICS", "ideal", 1) == 0 &&
           setenv("HARPE_AGENT_SOCKET", node.socket, 1) == 0 && node.use_platform &&
           node.use_faults && node.clock;
}

/* Closes the descriptors that killed processes have left, and removes the folder. */
static void clean_up(int files_before) {
    char path[400];
    DIR *files = opendir(node.folder);
    for (const struct dirent *entry; files && (entry = readdir(files));) {
        (void)snprintf(path, sizeof path, "%s/%s", node.folder, entry->d_name);
        if (entry->d_name[0] != '.') (void)unlink(path);
    }
    if (files) (void)closedir(files);
    (void)rmdir(node.folder);
    (void)close_range((unsigned)files_before, ~0U, 0);
}

world_node_result world_node_run(const world_node_options *options) {
    uint64_t shape = options->seed * UINT64_C(0x9E3779B97F4A7C15);
    world_node_result result = {.gpus = 1 + (int)(shape >> 60) % GPUS_MAX,
                                .trainers = 1 + (int)(shape >> 50 & 0x3FF) % TRAINERS_MAX};
    harpe_error error = {.status = HARPE_OK};
    memset(&node, 0, sizeof node);
    node.options = options;
    node.result = &result;
    node.notes = (world_notes){options->trace, result.fault};
    node.has_rules = shape >> 40 & 1;
    void *library = dlopen(getenv("HARPE_NVML_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    int first_free = dup(0);
    if (!prepare(library)) {
        (void)snprintf(result.fault, sizeof result.fault, "the machine cannot be prepared");
        return result;
    }
    harpe_world_options world = {.seed = options->seed,
                                 .shuffles = true,
                                 .programs = programs,
                                 .wall_ns = INT64_C(1700000000) * SECOND,
                                 .directory = node.folder,
                                 .longest_ns = 3000 * SECOND,
                                 .most_turns = MOST_TURNS};
    if (harpe_world_run(&world, run_node, NULL, &error) != HARPE_OK && !*result.fault)
        (void)snprintf(result.fault, sizeof result.fault, "%s", error.message);
    clean_up(first_free);
    (void)dlclose(library);
    return result;
}
