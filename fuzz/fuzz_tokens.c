/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of files of tokens with any bytes. Accepted tokens must be the same after they
 * are written and read again, and the text of the file must open none of them. A refused file must
 * have an error of one line. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rights/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_round_trip(const harpe_tokens *tokens) {
    harpe_tokens again = {0};
    char *text = harpe_tokens_format(tokens);
    require(text != NULL);
    require(harpe_tokens_parse(text, strlen(text), "again", &again, NULL) == HARPE_OK);
    require(again.count == tokens->count);
    for (size_t i = 0; i < again.count; i++) {
        const harpe_named_token *token = &again.tokens[i];
        require(token->role != HARPE_ROLE_NONE);
        require(harpe_tokens_named(tokens, token->name) == &tokens->tokens[i]);
        require(harpe_scope_equal(token->scope, tokens->tokens[i].scope));
        require(!token->scope || !harpe_scope_covers(NULL, token->scope, NULL));
        require(!harpe_tokens_find(tokens, token->name));
    }
    char *second = harpe_tokens_format(&again);
    require(second && strcmp(text, second) == 0);
    free(text);
    free(second);
    harpe_tokens_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_tokens tokens = {0};
    harpe_error error = {0};
    harpe_status status = harpe_tokens_parse((const char *)data, size, "fuzz", &tokens, &error);
    if (status != HARPE_OK) {
        require(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        require(!tokens.tokens);
        return 0;
    }
    check_round_trip(&tokens);
    harpe_tokens_free(&tokens);
    return 0;
}
