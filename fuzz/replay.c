/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces libFuzzer in ordinary builds: runs a fuzz target once for every file of a corpus
 * directory, so the stored inputs are unit tests. It generates no inputs. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST_INPUT = 1 << 24 };

static int replay(const char *directory, const char *name) {
    char *data = NULL;
    size_t length = 0;
    harpe_error error;
    char *path = harpe_path_join(directory, "/", name);
    if (!path || harpe_file_read(path, LARGEST_INPUT, &data, &length, &error) != HARPE_OK) {
        fprintf(stderr, "%s\n", path ? error.message : "out of memory");
        free(path);
        return 1;
    }
    printf("%s\n", path);
    fflush(stdout); /* so that the name of the input is printed before a crash */
    (void)LLVMFuzzerTestOneInput((const uint8_t *)data, length);
    free(data);
    free(path);
    return 0;
}

int main(int argument_count, char **arguments) {
    DIR *stream = argument_count == 2 ? opendir(arguments[1]) : NULL;
    if (!stream) {
        fprintf(stderr, "usage: %s <corpus directory>\n", arguments[0]);
        return 2;
    }
    int failures = 0;
    int inputs = 0;
    for (const struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] != '.') {
            inputs++;
            failures += replay(arguments[1], entry->d_name);
        }
    }
    closedir(stream);
    printf("%d inputs\n", inputs);
    return failures > 0 || inputs == 0;
}
