/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe profile`: measures the power of a GPU that waits for its peer (p2p), measures how long a
 * GPU takes to change its clock (switch), and makes a profile from a server's dumps (convert). This
 * file reads the first word. */
#include "base/terminal_progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/profile/profile_internal.h"

static error_t parse_word(int key, char *argument, struct argp_state *state) {
    static const char *const words[] = {"p2p", "switch", "convert", NULL};
    switch (key) {
    case ARGP_KEY_ARG:
        *(int *)state->input = harpe_flag_choice(state, "what to do", argument, words);
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (*(int *)state->input < 0)
            harpe_flag_fail(state,
                            "expected 'p2p', 'switch' or 'convert'; see 'harpe profile --help'");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp word_parser = {
    .parser = parse_word,
    .args_doc =
        "p2p [OPTION...]\nswitch [OPTION...] [-- COMMAND [ARG...]]\nconvert DIRECTORY [OPTION...]",
    .doc =
        "Measure the power of a GPU that waits for a peer (p2p), measure how long a GPU takes to "
        "change its clock (switch), or make a profile from a server's dump of a job "
        "(convert).\vMore: harpe profile p2p --help, harpe profile switch --help, harpe profile "
        "convert --help, man harpe-profile",
};

int harpe_profile_command(int argc, char **argv) {
    int word = -1;
    argp_parse(&word_parser, argc, argv, ARGP_IN_ORDER, NULL, &word);
    static char names[][24] = {"harpe profile p2p", "harpe profile switch",
                               "harpe profile convert"};
    static int (*const runs[])(int, char **) = {
        harpe_profile_p2p_command, harpe_profile_switch_command, harpe_profile_convert_command};
    argv[1] = names[word];
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true);
    return runs[word](argc - 1, argv + 1);
}
