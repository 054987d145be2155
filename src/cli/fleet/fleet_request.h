/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `harpe fleet` on a server, as a table: the words of an action, the options that it
 * takes, and the request that it makes. */
#ifndef HARPE_CLI_FLEET_FLEET_REQUEST_H
#define HARPE_CLI_FLEET_FLEET_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

typedef enum harpe_fleet_shape {
    HARPE_FLEET_SHAPE_NUMBER,
    HARPE_FLEET_SHAPE_TEXT,
    HARPE_FLEET_SHAPE_SWITCH,
} harpe_fleet_shape;

/* An option that becomes a member of a request's body, or a parameter of its query. A NULL member
 * stays in the program. */
typedef struct harpe_fleet_option {
    const char *flag, *member;
    harpe_fleet_shape shape;
    double minimum, maximum;
} harpe_fleet_option;

enum {
    HARPE_FLEET_GROUP,
    HARPE_FLEET_MARGIN,
    HARPE_FLEET_OVERHEAD,
    HARPE_FLEET_PARENT,
    HARPE_FLEET_WEIGHT,
    HARPE_FLEET_MAX_SLOWDOWN,
    HARPE_FLEET_PRIORITY,
    HARPE_FLEET_WATTS,
    HARPE_FLEET_SHARE,
    HARPE_FLEET_FOR,
    HARPE_FLEET_FROM,
    HARPE_FLEET_NOTICE,
    HARPE_FLEET_RAMP,
    HARPE_FLEET_NOTE,
    HARPE_FLEET_EXCEED,
    HARPE_FLEET_CURRENCY,
    HARPE_FLEET_CARBON_PRICE,
    HARPE_FLEET_TIME_VALUE,
    HARPE_FLEET_LIMIT,
    HARPE_FLEET_EVERY,
    HARPE_FLEET_FEED_CA_FILE,
    HARPE_FLEET_OPTION_COUNT,
};
extern const harpe_fleet_option harpe_fleet_options[HARPE_FLEET_OPTION_COUNT];

#define HARPE_FLEET_SOURCE "FILE or URL" /* the word that says where prices come from */

enum { HARPE_FLEET_WORDS_MAX = 2 }; /* words after the action, such as a name and watts */

typedef struct harpe_fleet_action {
    const char *noun, *verb;                  /* "budget", "set"; verb NULL: the noun alone */
    const char *words[HARPE_FLEET_WORDS_MAX]; /* what the words after it are: "NAME", "WATTS",
                                                 HARPE_FLEET_SOURCE */
    unsigned options;                         /* a bit for each option that it takes */
    unsigned needs;                           /* one of these options must be given */
    const char *method, *path;                /* NAME or ID follows the path */
} harpe_fleet_action;

/* Ends with a NULL noun. */
extern const harpe_fleet_action harpe_fleet_actions[];

/* Values of the options. */
typedef struct harpe_fleet_values {
    bool is_given[HARPE_FLEET_OPTION_COUNT];
    double numbers[HARPE_FLEET_OPTION_COUNT];
    const char *texts[HARPE_FLEET_OPTION_COUNT];
} harpe_fleet_values;

/* Makes the body of a request. `words` has as many words as the action takes. The caller frees it
 * with free(). */
harpe_status harpe_fleet_body(const harpe_fleet_action *action, const harpe_fleet_values *values,
                              const char *const *words, double now_s, char **out,
                              harpe_error *error);

#endif
