/* SPDX-License-Identifier: Apache-2.0 */
/* Structures in the stored state of a scheduler. A table names the members of a structure that are
 * stored, and the least and the most value that each of them may have. The same table writes the
 * structure as JSON, checks JSON, and reads it. */
#ifndef HARPE_SERVER_SCHEDULER_STORED_H
#define HARPE_SERVER_SCHEDULER_STORED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum harpe_stored_kind {
    HARPE_STORED_BOOL,
    HARPE_STORED_INT,
    HARPE_STORED_INT64,
    HARPE_STORED_SIZE,
    HARPE_STORED_DOUBLE,
} harpe_stored_kind;

typedef struct harpe_stored_member {
    const char *name;
    harpe_stored_kind kind;
    size_t offset, count; /* count: more than 1 for an array */
    double bounds[2];     /* the least and the most value */
} harpe_stored_member;

typedef struct harpe_stored {
    size_t size; /* of the structure */
    const harpe_stored_member *members;
    size_t count;
} harpe_stored;

/* Any finite number, and any number that counts something or is a time of a clock. */
#define HARPE_STORED_ANY -1e300, 1e300
#define HARPE_STORED_COUNT 0, 1e15

#define HARPE_STORED_PART(type, member) (((type *)0)->member)
#define HARPE_STORED_KIND(value) \
    _Generic((value), \
        bool: HARPE_STORED_BOOL, \
        int: HARPE_STORED_INT, \
        unsigned: HARPE_STORED_INT, \
        int64_t: HARPE_STORED_INT64, \
        int64_t *: HARPE_STORED_INT64, \
        size_t: HARPE_STORED_SIZE, \
        double: HARPE_STORED_DOUBLE, \
        double *: HARPE_STORED_DOUBLE)
#define HARPE_STORED_UNIT(value) \
    _Generic((value), int64_t *: sizeof(int64_t), double *: sizeof(double), default: sizeof(value))
/* A member of a table: a number, a truth value, or an array of numbers. */
#define HARPE_STORED(type, member, ...) \
    { \
        .name = #member, .kind = HARPE_STORED_KIND(HARPE_STORED_PART(type, member)), \
        .offset = offsetof(type, member), \
        .count = sizeof HARPE_STORED_PART(type, member) / \
                 (HARPE_STORED_UNIT(HARPE_STORED_PART(type, member))), \
        .bounds = { \
            __VA_ARGS__ \
        } \
    }
/* A member of a table: a structure that has only members of type double, or an array of these. */
#define HARPE_STORED_DOUBLES(type, member, ...) \
    { \
        .name = #member, .kind = HARPE_STORED_DOUBLE, .offset = offsetof(type, member), \
        .count = sizeof HARPE_STORED_PART(type, member) / (sizeof(double)), .bounds = { \
            __VA_ARGS__ \
        } \
    }
#define HARPE_STORED_TABLE(type, members) \
    { sizeof(type), members, sizeof(members) / sizeof(members)[0] }

/* Returns an object with the stored members of a structure. Returns NULL if memory runs out. */
json_t *harpe_stored_save(const harpe_stored *table, const void *from);
/* Reads such an object. Returns false, and changes nothing, if a member is missing or not within
 * its bounds. */
bool harpe_stored_load(const harpe_stored *table, void *to, const json_t *saved);

/* The same for structures of which there can be many: a row is a list without names. */
json_t *harpe_stored_save_row(const harpe_stored *table, const void *from);
bool harpe_stored_load_row(const harpe_stored *table, void *to, const json_t *saved);
json_t *harpe_stored_save_rows(const harpe_stored *table, const void *first, size_t count);
bool harpe_stored_load_rows(const harpe_stored *table, void *first, size_t count,
                            const json_t *saved);

/* The same for a list of clocks, in MHz. */
json_t *harpe_stored_save_clocks(const int *mhz, size_t count);
bool harpe_stored_load_clocks(int *mhz, size_t count, const json_t *saved);

/* Add a value to a list or to an object, which becomes NULL if memory runs out or is NULL. */
void harpe_stored_append(json_t **list, json_t *value);
void harpe_stored_add(json_t **object, const char *name, json_t *value);

#endif
