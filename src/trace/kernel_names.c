/* SPDX-License-Identifier: Apache-2.0 */
/* Matches names of kernels with regular expressions. A trace has millions of kernels but only some
 * hundred names, so the result for each name is kept. */
#include "trace/trace.h"

#include <jansson.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

#define SIMILAR_SHOWN 3
#define SIMILAR_SHARE 0.01 /* of the time of all kernels: less is not worth a note */

/* Matches the names of communication libraries, and of kernels that no other library has. Upper and
 * lower case are the same. */
static const char known_pattern[] =
    "(one|ms|[nrhxu])ccl|flagcx|(^|[^a-z])(ccl(_|::)|ucc_|hcom_|gloo)" /* NCCL, RCCL, UCC ... */
    "|(nv|roc)shmem|(^|[^a-z])[ix]shmem"
    /* DeepEP, MORI and others: parallel experts, across GPUs and nodes. */
    "|(intra|inter)_?node|deep_?ep.*(dispatch|combine|notify|barrier)(_kernel|_ll)*([<( ]|$)"
    "|hybrid_?ep::|mori::|pplx|moe_?(a2a|all_?to_?all|all_?reduce|comm)"
    /* vLLM, SGLang, TensorRT-LLM, FlashInfer, Transformer Engine. */
    "|cross_?device_|custom_?all_?reduce|quick_?reduce|userbuffers|mnnvl|lamport"
    "|all_?reduce_?fusion|all_?reduce.*(one|two)_?shot|(one|two)_?shot_?(all|reduce_?scatter)"
    /* PyTorch's symmetric memory, Triton-distributed. */
    "|c10d::|symm(etric)?_mem|multimem_|(put|wait)_signal"
    "|all_gather_push|all_to_all_kernel|kernel_(dispatch|combine)_token";

/* Matches names of kernels that may communicate. */
static const char similar_pattern[] =
    "all_?(reduce|gather|to_?all)|reduce_?scatter|a2a|dispatch|combine|notify|broadcast|barrier"
    "|(^|[^a-z])(send|comm(s|unicat|_|$))|recv|receive|exchange|rdma|ibgda|nvlink|p2p|peer|signal"
    "|(one|two)_?shot";

/* Match names of kernels that work on one GPU. Kernels of the first pattern never communicate, even
 * if their names say so: TorchInductor names a kernel after the operations before and after it. */
static const char local_pattern[] = "at::native|triton_(poi|per|red|tem|for)_";
static const char dissimilar_pattern[] =
    "split_?k|softmax|warp|block_?(all_?)?reduce|layout|flash|cutlass|cub::|thrust";

enum { KNOWN, SIMILAR, LOCAL, DISSIMILAR, OWN_COUNT };

typedef enum verdict { WORK, LOOKS_SIMILAR, COMMUNICATES } verdict;

struct harpe_kernel_names {
    const char *const *patterns;
    size_t pattern_count;
    regex_t *regexes; /* [OWN_COUNT + pattern_count] */
    size_t regex_count;
    bool *is_matched;  /* [pattern_count] */
    json_t *verdicts;  /* of each name so far */
    json_t *similar_s; /* of each name that looks similar: the time of its kernels */
    double total_s;    /* of all kernels */
};

static harpe_status compile(harpe_kernel_names *names, harpe_error *error) {
    static const char *const own[OWN_COUNT] = {known_pattern, similar_pattern, local_pattern,
                                               dissimilar_pattern};
    for (size_t i = 0; i < OWN_COUNT + names->pattern_count; i++) {
        bool is_own = i < OWN_COUNT;
        const char *pattern = is_own ? own[i] : names->patterns[i - OWN_COUNT];
        int flags = REG_EXTENDED | REG_NOSUB | (is_own ? REG_ICASE : 0);
        int result = *pattern ? regcomp(&names->regexes[i], pattern, flags) : REG_BADPAT;
        char reason[128] = "it is empty";
        if (*pattern && result != 0)
            (void)regerror(result, &names->regexes[i], reason, sizeof reason);
        if (result != 0)
            return harpe_fail(
                error, HARPE_INVALID_ARGUMENT,
                "--communication: '%s' is not a POSIX extended regular expression: %s", pattern,
                reason);
        names->regex_count++;
    }
    return HARPE_OK;
}

harpe_status harpe_kernel_names_new(const char *const *patterns, size_t pattern_count,
                                    harpe_kernel_names **out, harpe_error *error) {
    harpe_kernel_names *names = harpe_calloc(1, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    names->patterns = patterns;
    names->pattern_count = pattern_count;
    names->regexes = harpe_calloc(OWN_COUNT + pattern_count, sizeof *names->regexes);
    names->is_matched = harpe_calloc(pattern_count, sizeof *names->is_matched);
    names->verdicts = json_object();
    names->similar_s = json_object();
    bool has_memory = names->regexes && names->is_matched && names->verdicts && names->similar_s;
    harpe_status status = has_memory ? compile(names, error) : harpe_fail_memory(error);
    if (status == HARPE_OK)
        *out = names;
    else
        harpe_kernel_names_free(names);
    return status;
}

static bool matches(const harpe_kernel_names *names, size_t regex, const char *name) {
    return regexec(&names->regexes[regex], name, 0, NULL, 0) == 0;
}

static verdict judge(harpe_kernel_names *names, const char *name) {
    bool is_wanted = false;
    for (size_t i = 0; i < names->pattern_count; i++) {
        if (!matches(names, OWN_COUNT + i, name)) continue;
        names->is_matched[i] = is_wanted = true;
    }
    if (is_wanted) return COMMUNICATES;
    if (matches(names, LOCAL, name)) return WORK;
    if (matches(names, KNOWN, name)) return COMMUNICATES;
    bool is_similar = matches(names, SIMILAR, name) && !matches(names, DISSIMILAR, name);
    return is_similar ? LOOKS_SIMILAR : WORK;
}

bool harpe_kernel_names_communicate(harpe_kernel_names *names, const char *name, double time_s) {
    const json_t *found = json_object_get(names->verdicts, name);
    verdict result = found ? (verdict)json_integer_value(found) : judge(names, name);
    /* Without memory, the name is judged again. */
    if (!found) json_object_set_new_nocheck(names->verdicts, name, json_integer(result));
    names->total_s += time_s;
    if (result == LOOKS_SIMILAR) {
        double before_s = json_number_value(json_object_get(names->similar_s, name));
        json_object_set_new_nocheck(names->similar_s, name, json_real(before_s + time_s));
    }
    return result == COMMUNICATES;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

typedef struct similar {
    const char *name;
    double time_s;
} similar;

static int compare_similar(const void *left, const void *right) {
    const similar *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s > b->time_s ? -1 : 1;
    return strcmp(a->name, b->name);
}

void harpe_kernel_names_note_similar(const harpe_kernel_names *names, harpe_text *text) {
    similar *list = harpe_calloc(json_object_size(names->similar_s), sizeof *list);
    const char *name;
    json_t *time;
    size_t count = 0;
    if (!list) return;
    json_object_foreach(names->similar_s, name, time) {
        double time_s = json_number_value(time);
        if (time_s >= SIMILAR_SHARE * names->total_s) list[count++] = (similar){name, time_s};
    }
    qsort(list, count, sizeof *list, compare_similar);
    for (size_t i = 0; i < count && i < SIMILAR_SHOWN; i++) {
        char clean[96];
        harpe_text_printf(
            text, "%s '%s' (%s s)",
            i == 0 ? "these kernels look like communication, but count as work:" : ",",
            harpe_clean_text(clean, sizeof clean, list[i].name), HARPE_DIGITS(list[i].time_s, 4));
    }
    if (count > SIMILAR_SHOWN) harpe_text_printf(text, " and %zu more", count - SIMILAR_SHOWN);
    if (count > 0) harpe_text_printf(text, "; if they communicate, name them with --communication");
    free(list);
}

void harpe_kernel_names_note_unmatched(const harpe_kernel_names *names, harpe_text *text) {
    for (size_t i = 0; i < names->pattern_count; i++) {
        if (names->is_matched[i]) continue;
        harpe_text_printf(text, "--communication '%s': no kernel has such a name",
                          names->patterns[i]);
        return;
    }
}

void harpe_kernel_names_free(harpe_kernel_names *names) {
    if (!names) return;
    for (size_t i = 0; i < names->regex_count; i++)
        regfree(&names->regexes[i]);
    free(names->regexes);
    free(names->is_matched);
    json_decref(names->verdicts);
    json_decref(names->similar_s);
    free(names);
}
