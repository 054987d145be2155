/* SPDX-License-Identifier: Apache-2.0 */
/* The leases of the node agent: at most one for each GPU and kind of control. The agent starts a
 * helper process for each lease, outside of the job. The helper process restores the GPU when the
 * holder ends. If a helper process dies without restoring the GPU, the agent restores it. Each
 * lease has a file, so that a new agent can continue the leases of an agent that was killed.
 *
 * Call all functions on the loop's thread. */
#ifndef HARPE_AGENT_LEASES_H
#define HARPE_AGENT_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>

#include "agent/lease_files.h"
#include "agent/peer.h"
#include "agent/policy.h"
#include "agent/samples.h"
#include "http/workers.h"
#include "lease/lease.h"

typedef struct harpe_agent_leases harpe_agent_leases;
typedef struct harpe_lease_entry harpe_lease_entry;

/* A request for a lease. The caller owns it, and keeps it until `answer` or
 * harpe_agent_leases_leave was called. */
typedef struct harpe_lease_asker {
    int gpu;
    harpe_lease_control control;
    harpe_peer peer; /* closed by the owner */
    int memory;      /* descriptor of the slot, closed by the owner; -1: none */
    int64_t dwell_ns, poll_ns;
    bool waits;
    /* Called once. If `result` has the status HARPE_OK, the lease's socket and terms are valid.
     * Otherwise `result` says why there is no lease, and `lease` is NULL. The callee does not close
     * the socket. */
    void (*answer)(void *user, const harpe_error *result, const harpe_lease *lease);
    void *user;
    struct harpe_lease_asker *next; /* these three belong to leases.c */
    harpe_lease_entry *entry;
    harpe_timer *limit;
} harpe_lease_asker;

typedef struct harpe_agent_leases_options {
    harpe_loop *loop;
    harpe_workers *workers;
    int pool; /* number of the pool in which processes are started and GPUs are restored */
    harpe_gpus *gpus;
    const harpe_agent_policy *policy;
    int directory; /* with the files of leases */
    harpe_log log;
} harpe_agent_leases_options;

/* Makes the table. Continues the leases of an earlier agent, and restores the GPUs of leases whose
 * helper processes are gone. The objects of the options must outlive the table. */
harpe_status harpe_agent_leases_new(const harpe_agent_leases_options *options,
                                    harpe_agent_leases **out, harpe_error *error);
/* Frees the table. The leases themselves continue. */
void harpe_agent_leases_free(harpe_agent_leases *leases);

/* Asks for a lease. */
void harpe_agent_leases_ask(harpe_agent_leases *leases, harpe_lease_asker *asker);
/* Withdraws a request that is not answered yet. If its lease is being started, the lease ends as
 * soon as it has started. */
void harpe_agent_leases_leave(harpe_agent_leases *leases, harpe_lease_asker *asker);

/* Ends the leases of a GPU (-1: of all GPUs). Their helper processes restore the GPUs. Returns the
 * number of leases that end. Does not wait for their end. */
int harpe_agent_leases_end(harpe_agent_leases *leases, int gpu);
/* Refuses all waiting and all further requests. */
void harpe_agent_leases_close(harpe_agent_leases *leases);

/* Returns the number of leases that have not ended yet. */
int harpe_agent_leases_count(const harpe_agent_leases *leases);
/* Returns true if all leases have ended, except those whose GPU is lost. */
bool harpe_agent_leases_wait_for_reset(const harpe_agent_leases *leases);

typedef struct harpe_agent_lease_counts {
    uint64_t granted, refused;  /* requests */
    uint64_t ended;             /* leases */
    uint64_t restored_by_agent; /* leases whose helper process had left the GPU changed */
    uint64_t failures;          /* failed attempts to restore a GPU */
    int not_restored;           /* GPUs and kinds of control that are not restored yet */
} harpe_agent_lease_counts;
harpe_agent_lease_counts harpe_agent_leases_counts(const harpe_agent_leases *leases);

typedef struct harpe_lease_view {
    const harpe_lease_record *record; /* valid until the loop continues */
    bool is_lent;                     /* false: the lease is starting or ending */
    bool is_unrestored;               /* the last attempt to restore the GPU has failed */
    uint32_t wanted_mhz; /* the clock that the holder last requested; 0: none, or not known. The
                          * holder can write any number. */
} harpe_lease_view;

/* Describes the lease of a GPU and kind of control. Returns false if there is none. */
bool harpe_agent_leases_view(const harpe_agent_leases *leases, int gpu, harpe_lease_control control,
                             harpe_lease_view *out);

/* Lists the leases as a JSON array. If `user` is not -1, lists only the leases of this user. The
 * GPUs' clocks in the list come from the last samples. */
json_t *harpe_agent_leases_show(const harpe_agent_leases *leases, int64_t user,
                                harpe_agent_samples *samples);

#endif
