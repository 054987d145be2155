/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the published zeusd 0.5.0 issued with `zeusd token issue`, for tests. */
#ifndef HARPE_TESTS_AGENT_ISSUED_TOKEN_H
#define HARPE_TESTS_AGENT_ISSUED_TOKEN_H

static const char issued_key[] = "a key of thirty-two bytes or more";
/* --user somebody --scope gpu-control,cpu-read --expires never */
static const char issued_for_ever[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzb21lYm9keSIsInNjb3BlcyI6WyJncHU"
    "tY29udHJvbCIsImNwdS1yZWFkIl19.GO-aTh5qci9H7HWtqfpMJrYtajWWOr1jEokc_SSoqik";
/* --user somebody --scope gpu-read --expires 1h */
static const char issued_with_expiry[] =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzb21lYm9keSIsInNjb3BlcyI6WyJncHU"
    "tcmVhZCJdLCJleHAiOjE3OTU0MDIyNjV9.nv9bhqacFhI4pnhdnBKTs568_IkjQwjf-B56wJ-2le8";

#endif
