/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe fleet token`: adds, lists and removes the tokens of a server in its file of tokens. It
 * does not contact the server, which notices a changed file itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/fleet/fleet_internal.h"
#include "rights/scope.h"
#include "rights/tokens_file.h"

enum { TOKEN_ADD, TOKEN_LIST, TOKEN_REMOVE, TOKEN_NONE = -1 };
enum { FLAG_ROLE = 256, FLAG_GROUP, FLAG_WATTS, FLAG_TOKENS };

typedef struct token_arguments {
    int action;
    const char *name, *path;
    harpe_role role;
    harpe_text scope;
    int64_t watts; /* negative: not given */
    bool json;
    char *text; /* of a new token */
} token_arguments;

static const struct argp_option flags[] = {
    {"tokens", FLAG_TOKENS, "FILE", 0, "The file of tokens of harpe serve --tokens", 1},
    {"role", FLAG_ROLE, "ROLE", 0, "add: viewer, job or operator", 1},
    {"group", FLAG_GROUP, "NAME", 0,
     "add: only for jobs of this group; may be repeated (default: all groups)", 1},
    {"watts", FLAG_WATTS, "W", 0,
     "add: the power that members declared with a token of the role job may have together "
     "(default: 1e6 with groups, otherwise no limit)",
     1},
    {"json", 'j', NULL, 0, "Print JSON", 2},
    {0},
};

static void add_group(token_arguments *arguments, const struct argp_state *state,
                      const char *name) {
    if (!harpe_group_name_is_sound(name, strlen(name)))
        harpe_flag_fail(state,
                        "--group: '%s' is no name of a group: use a word of 1 to %d bytes without "
                        ", ; +",
                        name, HARPE_GROUP_NAME_MAX);
    harpe_text_printf(&arguments->scope, "%s%s", arguments->scope.length ? "," : "", name);
}

static void finish(const token_arguments *arguments, const struct argp_state *state) {
    if (arguments->action == TOKEN_NONE)
        harpe_flag_fail(state, "an action is missing: add, list or remove");
    if (!arguments->path) harpe_flag_fail(state, "--tokens FILE is missing");
    if (!arguments->name && arguments->action != TOKEN_LIST)
        harpe_flag_fail(state, "the name of the token is missing");
    if (arguments->action == TOKEN_ADD && arguments->role == HARPE_ROLE_NONE)
        harpe_flag_fail(state, "--role is missing: viewer, job or operator");
    if (arguments->action != TOKEN_ADD &&
        (arguments->role || arguments->scope.length || arguments->watts >= 0))
        harpe_flag_fail(state, "--role, --group and --watts are only for add");
    if (arguments->role != HARPE_ROLE_JOB && arguments->watts >= 0)
        harpe_flag_fail(state, "--watts is only for the role job");
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    static const char *const actions[] = {"add", "list", "remove", NULL};
    static const char *const roles[] = {"viewer", "job", "operator", NULL};
    token_arguments *arguments = state->input;
    switch (key) {
    case FLAG_TOKENS: arguments->path = argument; return 0;
    case FLAG_ROLE:
        arguments->role =
            (harpe_role)(HARPE_ROLE_VIEWER + harpe_flag_choice(state, "--role", argument, roles));
        return 0;
    case FLAG_WATTS:
        arguments->watts = harpe_flag_int(state, "--watts", argument, 0, HARPE_TOKEN_WATTS_MAX);
        return 0;
    case FLAG_GROUP: add_group(arguments, state, argument); return 0;
    case 'j': arguments->json = true; return 0;
    case ARGP_KEY_ARG:
        if (arguments->action == TOKEN_NONE)
            arguments->action = harpe_flag_choice(state, "ACTION", argument, actions);
        else if (!arguments->name && arguments->action != TOKEN_LIST)
            arguments->name = argument;
        else
            harpe_flag_fail(state, "what is '%s'?", argument);
        return 0;
    case ARGP_KEY_END: finish(arguments, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Changes --------------------------------------------------------------------------------- */

static harpe_status add(void *user, harpe_tokens *tokens, harpe_error *error) {
    token_arguments *arguments = user;
    return harpe_tokens_add(tokens, arguments->name, arguments->role, arguments->scope.data,
                            arguments->watts, harpe_clock_wall_whole_s(), &arguments->text, error);
}

static harpe_status remove_token(void *user, harpe_tokens *tokens, harpe_error *error) {
    const token_arguments *arguments = user;
    if (harpe_tokens_remove(tokens, arguments->name)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_FOUND, "%.300s has no token '%.80s'", arguments->path,
                      arguments->name);
}

static harpe_status add_and_print(token_arguments *arguments, harpe_error *error) {
    harpe_status status =
        arguments->scope.failed
            ? harpe_fail_memory(error)
            : harpe_tokens_file_change(arguments->path, "--tokens", add, arguments, error);
    if (status != HARPE_OK) return status;
    if (arguments->json)
        return harpe_command_print_json(
            json_pack("{s:s, s:s}", "name", arguments->name, "token", arguments->text), error);
    puts(arguments->text);
    if (isatty(STDERR_FILENO))
        fputs("harpe fleet: this is the only time that the token is shown\n", stderr);
    return HARPE_OK;
}

/* ---- The list -------------------------------------------------------------------------------- */

static json_t *groups_of(const char *scope) {
    json_t *groups = json_array();
    for (const char *at = scope ? scope : ""; *at;) {
        size_t length = strcspn(at, ",");
        json_array_append_new(groups, json_stringn(at, length));
        at += length;
        at += *at == ',';
    }
    return groups;
}

static harpe_status print_json(const harpe_tokens *tokens, harpe_error *error) {
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        const harpe_named_token *token = &tokens->tokens[i];
        int64_t watts = harpe_token_claim_w(token);
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:I}", "name", token->name,
                                              "role", harpe_role_name(token->role), "groups",
                                              groups_of(token->scope), "watts",
                                              watts < 0 ? json_null() : json_integer(watts),
                                              "added_at", (json_int_t)token->added_s));
    }
    return harpe_command_print_json(json_pack("{s:o}", "tokens", list), error);
}

static harpe_status print_list(const token_arguments *arguments, harpe_error *error) {
    harpe_tokens tokens = {0};
    harpe_status status = harpe_tokens_file_read(arguments->path, "--tokens", &tokens, NULL, error);
    if (status == HARPE_OK && arguments->json) {
        status = print_json(&tokens, error);
    } else if (status == HARPE_OK) {
        printf("%s%-24s %-9s %-20s %s%s\n", harpe_bold_start(), "name", "role", "added", "groups",
               harpe_bold_end());
        for (size_t i = 0; i < tokens.count; i++) {
            const harpe_named_token *token = &tokens.tokens[i];
            char added[32] = "-";
            time_t at = (time_t)token->added_s;
            struct tm utc;
            if (gmtime_r(&at, &utc))
                (void)strftime(added, sizeof added, "%Y-%m-%dT%H:%M:%SZ", &utc);
            printf("%-24s %-9s %-20s %s\n", token->name, harpe_role_name(token->role), added,
                   token->scope ? token->scope : "all");
        }
    }
    harpe_tokens_free(&tokens);
    return status;
}

int harpe_fleet_token_command(int argc, char **argv) {
    const struct argp parser = {
        .options = flags,
        .parser = parse_flag,
        .args_doc = "add NAME --role ROLE --tokens FILE\nlist --tokens FILE\nremove NAME --tokens "
                    "FILE",
        .doc = "Add, list or remove the tokens of a server. The server notices the change within "
               "seconds. A new token is printed once.\vSee also: man harpe-fleet",
    };
    token_arguments arguments = {.action = TOKEN_NONE, .watts = -1};
    harpe_error error;
    argp_parse(&parser, argc, argv, 0, NULL, &arguments);
    harpe_status status = arguments.action == TOKEN_ADD ? add_and_print(&arguments, &error)
                          : arguments.action == TOKEN_LIST
                              ? print_list(&arguments, &error)
                              : harpe_tokens_file_change(arguments.path, "--tokens", remove_token,
                                                         &arguments, &error);
    if (arguments.text) explicit_bzero(arguments.text, strlen(arguments.text));
    free(arguments.text);
    harpe_text_free(&arguments.scope);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("fleet", &error);
}
