/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static char *read_pem(const char *path) {
    char *text = NULL;
    size_t length;
    harpe_error error;
    if (harpe_file_read(path, 1 << 20, &text, &length, &error) == HARPE_OK) return text;
    fprintf(stderr, "%s\n", error.message);
    exit(2);
}

static const char *value_of(const char *word, const char *name) {
    size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static void read_word(bench_options *options, const char *word) {
    struct {
        const char *name;
        int *value;
    } numbers[] = {
        {"connections", &options->connections},
        {"request_s", &options->request_s},
        {"idle_s", &options->idle_s},
        {"pool_bytes", &options->pool_bytes},
        {"turbo", &options->turbo},
        {"internal", &options->internal},
        {"watch", &options->watch},
    };
    const char *value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((value = value_of(word, numbers[i].name))) {
            *numbers[i].value = (int)strtol(value, NULL, 10);
            return;
        }
    if ((value = value_of(word, "body_bytes"))) {
        options->body_bytes = strtoul(value, NULL, 10);
    } else if ((value = value_of(word, "cert"))) {
        options->cert_pem = read_pem(value);
    } else if ((value = value_of(word, "key"))) {
        options->key_pem = read_pem(value);
    } else {
        fprintf(stderr, "'%s' is not an option of this server\n", word);
        exit(2);
    }
}

bench_options bench_options_read(int argc, char **argv) {
    bench_options options = {.connections = 19900,
                             .request_s = 60,
                             .idle_s = 600,
                             .body_bytes = (size_t)64 << 20,
                             .pool_bytes = 4096};
    for (int i = 1; i < argc; i++)
        read_word(&options, argv[i]);
    return options;
}

void bench_say_port(int port) {
    printf("listening on %d\n", port);
    fflush(stdout);
}
