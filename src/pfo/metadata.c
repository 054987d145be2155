/* SPDX-License-Identifier: Apache-2.0 */
#include "pfo/metadata.h"

#include <string.h>

const char *const harpe_word_names[HARPE_WORDS] = {"user", "slurm_job", "node", "nodes", "model"};

const char *harpe_metadata_next(const char **place, const char *name, size_t *length) {
    size_t name_length = strlen(name);
    for (const char *word = *place; *word;) {
        word += strspn(word, HARPE_METADATA_SEPARATORS);
        const char *end = word + strcspn(word, HARPE_METADATA_SEPARATORS);
        if (strncmp(word, name, name_length) == 0 && word[name_length] == '=') {
            *place = end;
            *length = (size_t)(end - word) - name_length - 1;
            return word + name_length + 1;
        }
        word = end;
    }
    return NULL;
}
