/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi --query-gpu` and `--query-compute-apps`: print one line of CSV per GPU or process. */
#include <string.h>

#include "smi.h"

enum { FIELD_MAX = 128 };

typedef struct wanted_field {
    const char *name;
    size_t length;
} wanted_field;

/* Splits the list at its commas. Spaces around a name are not part of the name. */
static int split(const char *list, wanted_field *fields) {
    int count = 0;
    for (const char *at = list; count < FIELD_MAX;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        const char *next = at[length] == ',' ? at + length + 1 : NULL;
        while (length > 0 && at[length - 1] == ' ')
            length--;
        fields[count++] = (wanted_field){at, length};
        if (!next) break;
        at = next;
    }
    return count;
}

static int refuse_field(const wanted_field *field, const char *kind) {
    printf("Field \"%.*s\" is not a valid field to query.\n\n", (int)field->length, field->name);
    fprintf(stderr, "nvidia-smi of Harpe's emulator: --help-query-%s lists the fields.\n", kind);
    return SMI_BAD_ARGUMENT;
}

static int check_format(smi_format format) {
    if (format.is_given) return SMI_OK;
    printf("\"--format=\" switch is missing. Run 'nvidia-smi -h' for help.\n");
    return SMI_BAD_ARGUMENT;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

int smi_query_gpus(const smi_gpus *gpus, const char *list, smi_format format, FILE *out) {
    wanted_field fields[FIELD_MAX];
    char text[SMI_TEXT_MAX];
    int count = split(list, fields);
    for (int i = 0; i < count; i++)
        if (!smi_property_find(fields[i].name, fields[i].length))
            return refuse_field(&fields[i], "gpu");
    int status = check_format(format);
    if (status != SMI_OK) return status;
    for (int i = 0; i < count && !format.no_header; i++) {
        char name[SMI_TEXT_MAX];
        snprintf(name, sizeof name, "%.*s", (int)fields[i].length, fields[i].name);
        smi_property_heading(smi_property_find(fields[i].name, fields[i].length), name, text,
                             sizeof text);
        fprintf(out, "%s%s", i ? ", " : "", text);
    }
    if (!format.no_header) fputc('\n', out);
    smi_value_style style = {.with_unit = !format.no_units, .brackets = true};
    for (unsigned int gpu = 0; gpu < gpus->count; gpu++) {
        for (int i = 0; i < count; i++) {
            smi_property_value(smi_property_find(fields[i].name, fields[i].length), &gpus->gpu[gpu],
                               style, text, sizeof text);
            fprintf(out, "%s%s", i ? ", " : "", text);
        }
        fputc('\n', out);
    }
    return SMI_OK;
}

/* ---- Processes ------------------------------------------------------------------------------- */

typedef enum process_field {
    FIELD_TIMESTAMP,
    FIELD_GPU_NAME,
    FIELD_BUS_ID,
    FIELD_SERIAL,
    FIELD_UUID,
    FIELD_PID,
    FIELD_PROCESS_NAME,
    FIELD_MEMORY,
    PROCESS_FIELD_COUNT,
} process_field;

static const struct {
    const char *name, *short_name;
} process_fields[PROCESS_FIELD_COUNT] = {
    [FIELD_TIMESTAMP] = {"timestamp", NULL},
    [FIELD_GPU_NAME] = {"gpu_name", NULL},
    [FIELD_BUS_ID] = {"gpu_bus_id", NULL},
    [FIELD_SERIAL] = {"gpu_serial", NULL},
    [FIELD_UUID] = {"gpu_uuid", NULL},
    [FIELD_PID] = {"pid", NULL},
    [FIELD_PROCESS_NAME] = {"process_name", "name"},
    [FIELD_MEMORY] = {"used_gpu_memory", "used_memory"},
};

void smi_query_processes_help(FILE *stream) {
    for (int i = 0; i < PROCESS_FIELD_COUNT; i++) {
        fprintf(stream, "\"%s\"", process_fields[i].name);
        if (process_fields[i].short_name)
            fprintf(stream, " or \"%s\"", process_fields[i].short_name);
        fprintf(stream, "%s\n", i == FIELD_MEMORY ? ", in MiB" : "");
    }
}

static bool is_name(const wanted_field *field, const char *name) {
    return name && strlen(name) == field->length && memcmp(name, field->name, field->length) == 0;
}

/* Finds a field by its name. Returns PROCESS_FIELD_COUNT if there is no such field. */
static process_field find_process_field(const wanted_field *field) {
    for (int i = 0; i < PROCESS_FIELD_COUNT; i++)
        if (is_name(field, process_fields[i].name) || is_name(field, process_fields[i].short_name))
            return (process_field)i;
    return PROCESS_FIELD_COUNT;
}

static void print_process_field(process_field field, const smi_gpu *gpu,
                                const nvmlProcessInfo_t *process, bool with_unit, FILE *out) {
    static const char *const gpu_properties[] = {[FIELD_GPU_NAME] = "name",
                                                 [FIELD_BUS_ID] = "pci.bus_id",
                                                 [FIELD_SERIAL] = "serial",
                                                 [FIELD_UUID] = "uuid"};
    char text[SMI_TEXT_MAX];
    smi_value_style style = {.with_unit = with_unit, .brackets = true};
    switch (field) {
    case FIELD_TIMESTAMP: smi_timestamp(text, sizeof text); break;
    case FIELD_PID: snprintf(text, sizeof text, "%u", process->pid); break;
    case FIELD_PROCESS_NAME: smi_process_name(process->pid, text, sizeof text); break;
    case FIELD_MEMORY:
        snprintf(text, sizeof text, "%llu%s", process->usedGpuMemory >> 20,
                 with_unit ? " MiB" : "");
        break;
    default: {
        const char *name = gpu_properties[field];
        smi_property_value(smi_property_find(name, strlen(name)), gpu, style, text, sizeof text);
    }
    }
    fputs(text, out);
}

int smi_query_processes(const smi_gpus *gpus, const char *list, smi_format format, FILE *out) {
    wanted_field fields[FIELD_MAX];
    nvmlProcessInfo_t processes[SMI_PROCESS_MAX];
    int count = split(list, fields);
    for (int i = 0; i < count; i++)
        if (find_process_field(&fields[i]) == PROCESS_FIELD_COUNT)
            return refuse_field(&fields[i], "compute-apps");
    int status = check_format(format);
    if (status != SMI_OK) return status;
    for (int i = 0; i < count && !format.no_header; i++) {
        bool has_unit = find_process_field(&fields[i]) == FIELD_MEMORY;
        fprintf(out, "%s%.*s%s%s", i ? ", " : "", (int)fields[i].length, fields[i].name,
                has_unit ? " [MiB]" : "", i + 1 == count ? "\n" : "");
    }
    for (unsigned int gpu = 0; gpu < gpus->count; gpu++) {
        unsigned int process_count = smi_get_processes(&gpus->gpu[gpu], processes);
        for (unsigned int p = 0; p < process_count; p++) {
            for (int i = 0; i < count; i++) {
                fputs(i ? ", " : "", out);
                print_process_field(find_process_field(&fields[i]), &gpus->gpu[gpu], &processes[p],
                                    !format.no_units, out);
            }
            fputc('\n', out);
        }
    }
    return SMI_OK;
}
