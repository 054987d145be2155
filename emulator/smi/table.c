/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of `nvidia-smi` without options, and the list of `nvidia-smi -L`. The heading
 * says that the GPUs are emulated. */
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define LINE \
    "-----------------------------------------------------------------------------------------"
#define THREE_COLUMNS(left, middle, right) "|" left "+" middle "+" right "|\n"
#define DASHES \
    THREE_COLUMNS("-----------------------------------------", "------------------------", \
                  "----------------------")
#define EQUALS \
    THREE_COLUMNS("=========================================", "========================", \
                  "======================")
#define CORNERS \
    "+-----------------------------------------+------------------------" \
    "+----------------------+\n"

int smi_list(const smi_gpus *gpus, FILE *out) {
    for (unsigned int i = 0; i < gpus->count; i++) {
        const smi_gpu *gpu = &gpus->gpu[i];
        fprintf(out, "GPU %u: %s (UUID: %s)\n", gpu->index, SMI_VALUE(gpu, "name"),
                SMI_VALUE(gpu, "uuid"));
    }
    return SMI_OK;
}

/* Formats a power as "62W". "N/A" is not changed. */
static const char *in_watts(const char *value, char *text, size_t size) {
    char *end = NULL;
    double watts = strtod(value, &end);
    if (end != value)
        snprintf(text, size, "%.0fW", watts);
    else
        snprintf(text, size, "%s", value);
    return text;
}

/* Formats "81920 MiB" without its space. */
static const char *joined(const char *value, char *text, size_t size) {
    size_t length = 0;
    for (const char *c = value; *c && length + 1 < size; c++)
        if (*c != ' ') text[length++] = *c;
    text[length] = '\0';
    return text;
}

static const char *on_or_off(const char *value) {
    if (strcmp(value, "Enabled") == 0) return "On";
    return strcmp(value, "Disabled") == 0 ? "Off" : value;
}

static void print_heading(FILE *out) {
    char version[SMI_TEXT_MAX] = "", name[SMI_TEXT_MAX + 64], cuda_text[64];
    int cuda = 0;
    nvmlReturn_t (*cuda_version)(int *) = NULL;
    *(void **)&cuda_version = smi_function("nvmlSystemGetCudaDriverVersion_v2");
    if (cuda_version) (void)cuda_version(&cuda);
    (void)smi_get_system_text("nvmlSystemGetDriverVersion", version, sizeof version);
    snprintf(name, sizeof name, "NVIDIA-SMI %s of Harpe's emulator", version);
    snprintf(cuda_text, sizeof cuda_text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    fprintf(out, "+" LINE "+\n");
    fprintf(out, "| %-41.41s Driver Version: %-10.10s CUDA Version: %-4.4s |\n", name, version,
            cuda_text);
    fprintf(out, DASHES);
    fprintf(out, "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | "
                 "Volatile Uncorr. ECC |\n");
    fprintf(out, "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | "
                 "GPU-Util  Compute M. |\n");
    fprintf(out, "|                                         |                        | "
                 "              MIG M. |\n");
    fprintf(out, EQUALS);
}

static void print_gpu(const smi_gpu *gpu, FILE *out) {
    char power[SMI_TEXT_MAX], limit[SMI_TEXT_MAX], used[SMI_TEXT_MAX], total[SMI_TEXT_MAX];
    char load[SMI_TEXT_MAX], both[2 * SMI_TEXT_MAX + 4], memory[2 * SMI_TEXT_MAX + 8];
    char temperature[SMI_TEXT_MAX + 2];
    in_watts(SMI_VALUE(gpu, "power.draw"), power, sizeof power);
    in_watts(SMI_VALUE(gpu, "enforced.power.limit"), limit, sizeof limit);
    snprintf(both, sizeof both, "%s / %s", power, limit);
    snprintf(memory, sizeof memory, "%s / %s",
             joined(SMI_VALUE(gpu, "memory.used"), used, sizeof used),
             joined(SMI_VALUE(gpu, "memory.total"), total, sizeof total));
    snprintf(temperature, sizeof temperature, "%sC", SMI_VALUE(gpu, "temperature.gpu"));
    fprintf(out, "| %3u  %-28.28s %5.5s | %17.17s %4.4s | %20.20s |\n", gpu->index,
            SMI_VALUE(gpu, "name"), on_or_off(SMI_VALUE(gpu, "persistence_mode")), gpu->pci.busId,
            on_or_off(SMI_VALUE(gpu, "display_active")),
            SMI_VALUE(gpu, "ecc.errors.uncorrected.volatile.total"));
    fprintf(out, "| %3.3s  %4.4s   %4.4s  %21.21s | %22.22s | %8.8s %11.11s |\n",
            SMI_VALUE(gpu, "fan.speed"), temperature, SMI_VALUE(gpu, "pstate"), both, memory,
            joined(SMI_VALUE(gpu, "utilization.gpu"), load, sizeof load),
            SMI_VALUE(gpu, "compute_mode"));
    fprintf(out, "| %39s | %22s | %20.20s |\n", "", "", SMI_VALUE(gpu, "mig.mode.current"));
    fprintf(out, CORNERS);
}

static unsigned int print_processes(const smi_gpu *gpu, FILE *out) {
    nvmlProcessInfo_t processes[SMI_PROCESS_MAX];
    unsigned int count = smi_get_processes(gpu, processes);
    for (unsigned int i = 0; i < count; i++) {
        char name[SMI_TEXT_MAX], memory[32];
        smi_process_name(processes[i].pid, name, sizeof name);
        snprintf(memory, sizeof memory, "%lluMiB", processes[i].usedGpuMemory >> 20);
        fprintf(out, "| %4u   N/A  N/A  %15u      C   %-35.35s %9.9s |\n", gpu->index,
                processes[i].pid, name, memory);
    }
    return count;
}

int smi_table(const smi_gpus *gpus, FILE *out) {
    char now[SMI_TEXT_MAX];
    unsigned int process_count = 0;
    smi_timestamp(now, sizeof now);
    fprintf(out, "%s\n", now);
    print_heading(out);
    for (unsigned int i = 0; i < gpus->count; i++)
        print_gpu(&gpus->gpu[i], out);
    fprintf(out, "\n+" LINE "+\n| %-87s |\n", "Processes:");
    fprintf(out, "|  GPU   GI   CI              PID   Type   Process name                        "
                 "GPU Memory |\n");
    fprintf(out, "|        ID   ID                                                               "
                 "Usage      |\n");
    fprintf(
        out,
        "|========================================================================================="
        "|\n");
    for (unsigned int i = 0; i < gpus->count; i++)
        process_count += print_processes(&gpus->gpu[i], out);
    if (process_count == 0) fprintf(out, "| %-87s |\n", " No running processes found");
    fprintf(out, "+" LINE "+\n");
    return SMI_OK;
}
