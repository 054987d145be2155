/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that several subcommands use: prepare the process (streams, signals), report a failure,
 * print JSON, run a command of the user, read the values of flags. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/process.h"
#include "base/wait.h"
#include "cli/cli.h"

/* More digits would only show binary rounding. */
#define JSON_DIGITS 15

/* ---- The process ----------------------------------------------------------------------------- */

/* Opens closed standard streams. If stdin, stdout or stderr is closed when the program starts, the
 * next file that the program opens gets the number of the closed stream, and the program would
 * print into that file. Therefore this function first opens a descriptor with this number, which
 * can be used neither to read nor to write. */
static void occupy_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
            int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            if (opened != fd) _exit(HARPE_EXIT_FAILURE);
        }
    }
}

/* Reports at exit that output could not be written (disk full, closed pipe). The program then does
 * not exit with success. */
static void close_stdout(void) {
    int had_error = ferror(stdout);
    if (fclose(stdout) != 0 || had_error) {
        fprintf(stderr, "harpe: writing to standard output failed: %s\n",
                errno ? strerror(errno) : "unknown error");
        _exit(HARPE_EXIT_FAILURE);
    }
}

void harpe_command_prepare(void (*print_version)(FILE *, struct argp_state *)) {
    occupy_standard_streams();
    /* A failed write gives an error message where it happens, instead of a signal. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    atexit(close_stdout);
    argp_err_exit_status = HARPE_EXIT_USAGE;
    argp_program_version_hook = print_version;
}

int harpe_command_dispatch(const harpe_command *table, size_t count, const char *before, int argc,
                           char **argv) {
    for (size_t i = 0; i < count; i++) {
        char full_name[64];
        if (!table[i].name || strcmp(table[i].name, argv[0]) != 0) continue;
        snprintf(full_name, sizeof full_name, "%s %s", before, table[i].name);
        argv[0] = full_name; /* the program name in argp's messages */
        return table[i].run(argc, argv);
    }
    return -1;
}

const char *harpe_command_sanitizers(void) {
#if defined __SANITIZE_ADDRESS__
    return "; address sanitizer";
#elif defined __SANITIZE_THREAD__
    return "; thread sanitizer";
#elif defined __has_feature
#if __has_feature(address_sanitizer)
    return "; address sanitizer";
#elif __has_feature(thread_sanitizer)
    return "; thread sanitizer";
#endif
#endif
    return "";
}

/* ---- Failures -------------------------------------------------------------------------------- */

int harpe_command_fail(const char *command, const harpe_error *error) {
    fprintf(stderr, "harpe %s: %s\n", command, error->message);
    if (error->status == HARPE_INTERRUPTED) {
        int signal_number = harpe_terminal_progress_signal();
        return signal_number ? HARPE_EXIT_SIGNAL + signal_number : HARPE_EXIT_FAILURE;
    }
    /* A path that the operating system rejects is not a usage error. */
    bool is_usage = error->status == HARPE_INVALID_ARGUMENT && error->vendor_code == 0;
    return is_usage ? HARPE_EXIT_USAGE : HARPE_EXIT_FAILURE;
}

void harpe_command_catch_signals(void) {
    harpe_terminal_progress shows_nothing;
    (void)harpe_terminal_progress_start(&shows_nothing, true);
}

harpe_status harpe_command_check_signal(harpe_error *error) {
    int signal_number = harpe_terminal_progress_signal();
    if (!signal_number) return HARPE_OK;
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted by SIG%s; nothing was written",
                      sigabbrev_np(signal_number));
}

bool harpe_command_goes_on(void *user) {
    (void)user;
    return harpe_terminal_progress_signal() == 0;
}

/* ---- Output ---------------------------------------------------------------------------------- */

harpe_status harpe_command_check_output(const char *path, bool force, harpe_error *error) {
    if (!path || force || access(path, F_OK) != 0) return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%s: already exists (choose another name, or --force to replace it)", path);
}

/* Appends JSON. Escapes characters that JSON allows, but that can control a terminal. */
static void escape(harpe_text *out, const char *text, const char *end) {
    size_t length;
    for (; text < end; text += length) {
        int32_t code = harpe_character(text, &length);
        if (code > '~' && !harpe_character_is_safe(code))
            if (code > 0xffff)
                harpe_text_printf(out, "\\u%04x\\u%04x",
                                  0xd800u + ((unsigned)(code - 0x10000) >> 10),
                                  0xdc00u + ((unsigned)code & 0x3ffu));
            else
                harpe_text_printf(out, "\\u%04x", (unsigned)code);
        else
            harpe_text_append(out, text, length);
    }
}

/* Prints JSON, with the escapes of escape(). */
static harpe_status print_escaped(const char *text, const char *end, harpe_error *error) {
    harpe_text out = {0};
    escape(&out, text, end);
    harpe_status status = out.failed ? harpe_fail_memory(error) : HARPE_OK;
    if (status == HARPE_OK && out.length > 0) (void)fwrite(out.data, 1, out.length, stdout);
    harpe_text_free(&out);
    return status;
}

void harpe_command_append_json_line(harpe_text *text, const json_t *value) {
    char *line = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (line)
        escape(text, line, line + strlen(line));
    else
        text->failed = true;
    free(line);
    harpe_text_append(text, "\n", 1);
}

static char *format_json(const json_t *value) {
    size_t flags = JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(JSON_DIGITS);
    return value ? json_dumps(value, flags) : NULL;
}

harpe_status harpe_command_print_json(json_t *value, harpe_error *error) {
    char *text = format_json(value);
    json_decref(value);
    if (!text) return harpe_fail_memory(error);
    harpe_status status = print_escaped(text, text + strlen(text), error);
    (void)putchar('\n');
    free(text);
    return status;
}

harpe_status harpe_command_print_json_rows(const char *name, const json_t *rows, bool is_first,
                                           harpe_error *error) {
    if (is_first) printf("{\n  \"%s\": [", name);
    size_t index;
    const json_t *row;
    json_array_foreach(rows, index, row) {
        /* The row is enclosed in two arrays, so that it is indented as in the object. */
        json_t *whole = json_pack("[[O]]", row);
        char *text = format_json(whole);
        json_decref(whole);
        if (!text) return harpe_fail_memory(error);
        const char *start = strchr(text, '{');
        const char *end = strrchr(text, '}');
        printf(index > 0 || !is_first ? ",\n    " : "\n    ");
        harpe_status status = start && end ? print_escaped(start, end + 1, error) : HARPE_OK;
        free(text);
        if (status != HARPE_OK) return status;
    }
    return harpe_command_flush(error);
}

harpe_status harpe_command_print_json_end(json_t *others, harpe_error *error) {
    char *text = format_json(others);
    json_decref(others);
    if (!text) return harpe_fail_memory(error);
    printf("\n  ],");
    harpe_status status = print_escaped(text + 1, text + strlen(text), error); /* without its "{" */
    (void)putchar('\n');
    free(text);
    return status;
}

void harpe_command_add_note(json_t *notes, harpe_text *text) {
    if (text->length > 0 && !text->failed)
        json_array_append_new(notes, harpe_command_json_text(text->data));
    harpe_text_free(text);
    *text = (harpe_text){0};
}

void harpe_command_print_notes(const char *name, json_t *notes) {
    for (size_t i = 0; i < json_array_size(notes); i++)
        fprintf(stderr, "harpe %s: %s\n", name, json_string_value(json_array_get(notes, i)));
    json_decref(notes);
}

harpe_status harpe_command_flush(harpe_error *error) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return HARPE_OK;
    return harpe_fail_errno(error, errno ? errno : EIO, "writing standard output");
}

harpe_status harpe_command_write(const char *path, harpe_text *text, harpe_error *error) {
    harpe_status status = text->failed ? harpe_fail_memory(error) : HARPE_OK;
    if (status == HARPE_OK && path)
        status = harpe_file_write(path, text->data, text->length, error);
    else if (status == HARPE_OK && text->length > 0)
        (void)fwrite(text->data, 1, text->length, stdout);
    harpe_text_free(text);
    return status;
}

void harpe_command_say(const char *before, const char *line) {
    char *clean = strdup(line);
    if (clean) harpe_clean_in_place(clean);
    fprintf(stderr, "%s: %s\n", before, clean ? clean : "out of memory");
    free(clean);
}

static void print_warning(void *before, harpe_log_level level, const char *line) {
    if (level >= HARPE_LOG_WARNING) harpe_command_say(before, line);
}

harpe_log harpe_command_log(const char *before) {
    return (harpe_log){.write = print_warning, .user = (char *)before};
}

long harpe_json_count(const json_t *object, const char *name) {
    return (long)json_integer_value(json_object_get(object, name));
}

json_t *harpe_command_json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *harpe_command_json_text(const char *text) {
    if (!text) return json_null();
    json_t *value = json_string(text);
    char *copy = value ? NULL : strdup(text);
    if (!copy) return value;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    value = json_string(copy);
    free(copy);
    return value;
}

/* ---- Commands of the user -------------------------------------------------------------------- */

int harpe_command_spawn(char *const *command, const posix_spawn_file_actions_t *actions,
                        const sigset_t *mask, pid_t *child) {
    posix_spawnattr_t attributes;
    sigset_t to_default; /* main() ignores these signals */
    sigemptyset(&to_default);
    sigaddset(&to_default, SIGPIPE);
    sigaddset(&to_default, SIGXFSZ);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &to_default);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int failure = posix_spawnp(child, command[0], actions, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
    return failure;
}

int harpe_command_fail_to_run(const char *name, const char *program, int code) {
    fprintf(stderr, "harpe %s: cannot run '%.200s': %s\n", name, program, strerror(code));
    return code == ENOENT ? HARPE_EXIT_NO_SUCH_COMMAND : HARPE_EXIT_CANNOT_RUN;
}

int harpe_command_exit_code(int wait_status) {
    return WIFSIGNALED(wait_status) ? HARPE_EXIT_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

void harpe_command_block(const int *numbers, sigset_t *blocked, sigset_t *before) {
    sigemptyset(blocked);
    for (; *numbers; numbers++)
        sigaddset(blocked, *numbers);
    sigprocmask(SIG_BLOCK, blocked, before);
}

int harpe_command_wait(pid_t child, const sigset_t *waited, void (*tick)(void *user), void *user) {
    struct pollfd signals = {.fd = harpe_process_signals(waited), .events = POLLIN};
    /* Without a descriptor for signals, looks once a second whether the command has ended. */
    int64_t longest_ns = tick || signals.fd < 0 ? 1000000000 : -1;
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        struct signalfd_siginfo info;
        if (harpe_poll(&signals, 1, longest_ns) == 0 && tick) tick(user);
        while (read(signals.fd, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL)
                (void)kill(child, (int)info.ssi_signo);
    }
    if (signals.fd >= 0) (void)close(signals.fd);
    return ended == child ? harpe_command_exit_code(status) : HARPE_EXIT_FAILURE;
}

int harpe_command_run(const char *name, char *const *command, const sigset_t *waited,
                      const sigset_t *mask) {
    pid_t child;
    int failed = harpe_command_spawn(command, NULL, mask, &child);
    return failed == 0 ? harpe_command_wait(child, waited, NULL, NULL)
                       : harpe_command_fail_to_run(name, command[0], failed);
}

void harpe_command_leave_signals(void) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], SIG_DFL);
}

/* ---- The terminal ---------------------------------------------------------------------------- */

static bool stdout_has_colours(void) {
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

int harpe_command_columns(void) {
    struct winsize size = {0};
    if (!isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

const char *harpe_bold_start(void) { return stdout_has_colours() ? "\033[1m" : ""; }

const char *harpe_bold_end(void) { return stdout_has_colours() ? "\033[0m" : ""; }

/* ---- Values of flags ------------------------------------------------------------------------- */

void harpe_flag_fail(const struct argp_state *state, const char *format, ...) {
    char text[HARPE_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    harpe_error error; /* makes one line of any value */
    (void)harpe_fail(&error, HARPE_INVALID_ARGUMENT, "%s", text);
    fprintf(stderr, "%s: %s\n", state->name, error.message);
    exit(HARPE_EXIT_USAGE);
}

int harpe_flag_int(const struct argp_state *state, const char *flag, const char *text,
                   int64_t minimum, int64_t maximum) {
    int64_t value = 0;
    bool is_number = harpe_parse_int(text, strlen(text), &value);
    if (!is_number || value < minimum || value > maximum)
        harpe_flag_fail(state,
                        "%s: expected a whole number from %" PRId64 " to %" PRId64 ", found '%s'",
                        flag, minimum, maximum, text);
    return (int)value;
}

double harpe_flag_double(const struct argp_state *state, const char *flag, const char *text,
                         double minimum, double maximum, bool is_above) {
    double value = 0;
    bool is_number = harpe_parse_double(text, strlen(text), &value);
    if (!is_number || value < minimum || (is_above && value == minimum) || value > maximum)
        harpe_flag_fail(state,
                        is_above ? "%s: expected a number above %g, at most %g, found '%s'"
                                 : "%s: expected a number from %g to %g, found '%s'",
                        flag, minimum, maximum, text);
    return value;
}

int harpe_flag_choice(const struct argp_state *state, const char *flag, const char *text,
                      const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], text) == 0) return i;
    harpe_text list = {0};
    for (int i = 0; names[i]; i++)
        harpe_text_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
    harpe_flag_fail(state, "%s: expected %s, found '%s'", flag, list.data ? list.data : "a name",
                    text);
}

/* ---- Command lines --------------------------------------------------------------------------- */

enum { FIRST_KEY = 0x100 };

/* The input of the argp parser. */
typedef struct reading {
    const harpe_command_line *line;
    char *arguments;
} reading;

static bool is_row(const harpe_flag *flag) { return flag->name || flag->help; }

/* Finds the flag of a key of argp, and the part that has it. The key of a flag without a letter is
 * its place among the flags of all parts. */
static const harpe_flag *find_flag(const harpe_command_line *line, int key,
                                   const harpe_flag_part **part) {
    int own_key = FIRST_KEY;
    for (*part = line->parts; (*part)->flags; ++*part)
        for (const harpe_flag *flag = (*part)->flags; is_row(flag); flag++, own_key++)
            if (key == (flag->letter ? flag->letter : own_key)) return flag;
    return NULL;
}

static double read_number(const struct argp_state *state, const harpe_flag *flag, const char *name,
                          const char *text) {
    double value =
        harpe_flag_double(state, name, text, flag->minimum, flag->maximum, flag->is_above);
    return flag->divisor > 0 ? value / flag->divisor : value;
}

/* Stores a value in the struct at `base`. */
static void store(const harpe_flag *flag, char *base, struct argp_state *state, const char *name,
                  char *text) {
    void *into = base + flag->at;
    int number = 0;
    if (flag->given) *(bool *)(base + flag->given) = true;
    if (flag->read) {
        flag->read(into, state, name, text);
        return;
    }
    if (flag->names)
        number = harpe_flag_choice(state, name, text, flag->names);
    else if (flag->kind == HARPE_FLAG_WHOLE || flag->kind == HARPE_FLAG_WIDE)
        number = harpe_flag_int(state, name, text, (int64_t)flag->minimum, (int64_t)flag->maximum);
    switch (flag->kind) {
    case HARPE_FLAG_SWITCH: *(bool *)into = true; return;
    case HARPE_FLAG_WHOLE: *(int *)into = number; return;
    case HARPE_FLAG_WIDE: *(int64_t *)into = number; return;
    case HARPE_FLAG_NUMBER: *(double *)into = read_number(state, flag, name, text); return;
    case HARPE_FLAG_TEXT: break;
    }
    if (flag->maximum > flag->minimum) (void)read_number(state, flag, name, text);
    *(const char **)into = text;
}

static void take_word(const reading *self, struct argp_state *state, char *text) {
    const harpe_command_line *line = self->line;
    const harpe_flag *word = line->words;
    if (line->command) {
        *(char ***)(void *)(self->arguments + line->command) = &state->argv[state->next - 1];
        state->next = state->argc;
        return;
    }
    for (unsigned i = 0; i < state->arg_num && word && word->name && !word->read; i++)
        word++;
    bool has_place = word && word->name;
    bool is_empty = has_place && state->arg_num > 0 && !*text && !word->read;
    if (has_place && !is_empty)
        store(word, self->arguments, state, word->name, text);
    else if (line->refusal && !is_empty)
        harpe_flag_fail(state, "'%s' %s", text, line->refusal);
    else
        harpe_flag_fail(state, "unexpected argument '%s'%s", text,
                        line->words ? "" : ": there are no arguments");
}

static error_t parse_key(int key, char *text, struct argp_state *state) {
    const reading *self = state->input;
    const harpe_flag_part *part;
    const harpe_flag *flag = find_flag(self->line, key, &part);
    char name[64];
    if (key == ARGP_KEY_ARG) {
        take_word(self, state, text);
        return 0;
    }
    if (!flag) return ARGP_ERR_UNKNOWN;
    (void)snprintf(name, sizeof name, "--%s", flag->name);
    store(flag, self->arguments + part->at, state, name, text);
    return 0;
}

/* Adds the last lines to --help. argp frees the text. */
static char *extend_help(int key, const char *text, void *input) {
    const reading *self = input;
    harpe_text more = {0};
    if (key != ARGP_KEY_HELP_EXTRA || !self || !self->line->more_help) return (char *)text;
    self->line->more_help(&more);
    return more.data;
}

/* Lists the flags of all parts for argp. The caller frees the list, which is NULL without flags. */
static struct argp_option *list_options(const harpe_command_line *line) {
    size_t count = 0;
    const harpe_flag_part *part;
    for (part = line->parts; part->flags; part++)
        for (const harpe_flag *flag = part->flags; is_row(flag); flag++)
            count++;
    if (count == 0) return NULL;
    struct argp_option *options = harpe_calloc(count + 1, sizeof *options), *next = options;
    for (part = line->parts; options && part->flags; part++)
        for (const harpe_flag *flag = part->flags; is_row(flag); flag++, next++) {
            int own_key = flag->letter ? flag->letter : FIRST_KEY + (int)(next - options);
            bool is_alias = flag->how & OPTION_ALIAS;
            *next = (struct argp_option){flag->name,  is_alias ? next[-1].key : own_key,
                                         flag->value, flag->how,
                                         flag->help,  part->group + flag->group};
            if (!flag->name) next->key = 0;
        }
    return options;
}

struct argp_state harpe_command_line_read(const harpe_command_line *line, int argc, char **argv,
                                          void *arguments) {
    reading self = {line, arguments};
    struct argp parser = {.options = list_options(line),
                          .parser = parse_key,
                          .args_doc = line->forms,
                          .doc = line->about,
                          .help_filter = extend_help};
    const struct argp_state state = {.name = argv[0]};
    unsigned how = line->command || line->is_in_order ? ARGP_IN_ORDER : 0;
    if (line->parts[0].flags && !parser.options) harpe_flag_fail(&state, "out of memory");
    if (argp_parse(&parser, argc, argv, how, NULL, &self) != 0) exit(HARPE_EXIT_USAGE);
    free((void *)parser.options);
    return state;
}

/* ---- Mistyped names -------------------------------------------------------------------------- */

enum { NAME_LENGTH_MAX = 64 };

/* Returns the number of letters to insert, delete or replace to turn one name into the other
 * (Levenshtein). `b` has at most NAME_LENGTH_MAX letters. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[NAME_LENGTH_MAX + 1];
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j + 1] = best < diagonal + 1 ? best : diagonal + 1;
        }
    }
    return row[b_length];
}

const char *harpe_closest_name(const char *name, const char *const *names) {
    if (strlen(name) > NAME_LENGTH_MAX) return NULL;
    const char *closest = NULL;
    size_t least = NAME_LENGTH_MAX;
    for (; *names; names++) {
        if (strlen(*names) > NAME_LENGTH_MAX) continue;
        size_t distance = edit_distance(name, *names);
        /* If more than half of the name differs, it is another word and not a mistyped name. */
        if (distance < least && 2 * distance <= strlen(*names)) {
            least = distance;
            closest = *names;
        }
    }
    return closest;
}
