/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_replica_profiles, and what its makers share. */
#ifndef HARPE_PLAN_REPLICA_PROFILES_H
#define HARPE_PLAN_REPLICA_PROFILES_H

#include <harpe/replicas.h>

struct harpe_replica_profiles {
    int replica_count, peer_count;
    harpe_profile **gpus; /* [replica * peer_count + peer]; owned */
};

#define HARPE_REPLICA_GPUS_MAX ((size_t)1000000)

/* Makes profiles without any GPU. */
harpe_status harpe_replica_profiles_begin(int replica_count, int peer_count,
                                          harpe_replica_profiles **out, harpe_error *error);

/* Checks that all GPUs have the same stages and instructions. Errors begin with `name` if it is not
 * NULL. */
harpe_status harpe_replica_profiles_check(const harpe_replica_profiles *profiles, const char *name,
                                          harpe_error *error);

/* Compares the rows of all GPUs of two replicas. Returns 0 if they are equal; otherwise the sign
 * says which replica comes first. */
int harpe_replica_profiles_compare(const harpe_replica_profiles *profiles, int one, int other);

#endif
