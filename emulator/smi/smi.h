/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator's nvidia-smi: a small program with the name of NVIDIA's program. It is for programs
 * that run nvidia-smi and read its output. It calls NVML functions of the emulated library. It
 * refuses any other library, so it never changes a real GPU. */
#ifndef HARPE_EMULATOR_SMI_H
#define HARPE_EMULATOR_SMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "gpu/nvml_abi.h"

enum {
    SMI_GPU_MAX = 4096,
    SMI_TEXT_MAX = 256,
    SMI_CLOCK_MAX = 1024,
    SMI_PROCESS_MAX = 128,
};

/* Exit status as in NVIDIA's manual page. If a call of NVML has failed, the status is the code of
 * NVML. */
enum {
    SMI_OK = 0,
    SMI_BAD_ARGUMENT = 2,
    SMI_NOT_SUPPORTED = 3,
    SMI_NO_PERMISSION = 4,
    SMI_NOT_FOUND = 6,
    SMI_NO_DRIVER = 9,
    SMI_NO_LIBRARY = 12,
    SMI_OTHER = 255,
};

typedef struct smi_gpu {
    unsigned int index;
    nvmlDevice_t device;
    nvmlPciInfo_t pci;
} smi_gpu;

/* The GPUs that the command line names, in the driver's order. */
typedef struct smi_gpus {
    unsigned int count, driver_count;
    smi_gpu gpu[SMI_GPU_MAX];
} smi_gpus;

/* ---- nvml.c: the library --------------------------------------------------------------------- */

/* Opens the emulator's library and finds the GPUs. `ids` (NULL: all) is a list of indices, UUIDs
 * and PCI addresses. On failure prints the reason, and returns the exit status. */
int smi_open(const char *ids, smi_gpus *gpus);
/* Returns the address of a function of NVML, or NULL. */
void *smi_function(const char *name);
const char *smi_error_text(nvmlReturn_t code);
int smi_exit_status(nvmlReturn_t code);

nvmlReturn_t smi_get_number(const smi_gpu *gpu, const char *function, unsigned int *value);
/* Calls a function that takes a kind or an index before the output. */
nvmlReturn_t smi_get_number_of(const smi_gpu *gpu, const char *function, unsigned int which,
                               unsigned int *value);
nvmlReturn_t smi_get_two(const smi_gpu *gpu, const char *function, unsigned int *one,
                         unsigned int *other);
nvmlReturn_t smi_get_text(const smi_gpu *gpu, const char *function, char *text, size_t size);
nvmlReturn_t smi_get_system_text(const char *function, char *text, size_t size);
nvmlReturn_t smi_get_field(const smi_gpu *gpu, unsigned int field, unsigned int scope,
                           unsigned int *value);
/* Lists the compute processes. Returns their number. */
unsigned int smi_get_processes(const smi_gpu *gpu, nvmlProcessInfo_t *processes);

/* ---- values.c: a GPU's properties, one row each ---------------------------------------------- */

/* Writes the value, with its unit if `with_unit` is true. An unknown value is "[N/A]" with
 * `brackets`, otherwise "N/A". */
typedef struct smi_value_style {
    bool with_unit, brackets;
} smi_value_style;

typedef struct smi_property smi_property;

/* Finds a property by its name or its short name. Returns NULL if there is none. */
const smi_property *smi_property_find(const char *name, size_t length);
/* Writes the heading of a column, such as "power.draw [W]". */
void smi_property_heading(const smi_property *property, const char *name, char *text, size_t size);
void smi_property_value(const smi_property *property, const smi_gpu *gpu, smi_value_style style,
                        char *text, size_t size);
void smi_property_help(FILE *stream);
/* Writes the value of a property that exists, for reports: with its unit, or "N/A" if it is not
 * known. */
const char *smi_value(const smi_gpu *gpu, const char *name, char *text, size_t size);
#define SMI_VALUE(gpu, name) smi_value((gpu), (name), (char[SMI_TEXT_MAX]){0}, SMI_TEXT_MAX)

void smi_timestamp(char *text, size_t size);
/* Writes the program of a process, or "[Not Found]". */
void smi_process_name(unsigned int pid, char *text, size_t size);

/* ---- The program's parts; each returns the exit status; lists are separated by commas -------- */

typedef struct smi_format {
    bool is_given, no_header, no_units;
} smi_format;

int smi_query_gpus(const smi_gpus *gpus, const char *list, smi_format format, FILE *out);
int smi_query_processes(const smi_gpus *gpus, const char *list, smi_format format, FILE *out);
void smi_query_processes_help(FILE *stream);
/* `wanted` is the list of sections of -d; NULL: all sections. */
int smi_report(const smi_gpus *gpus, bool is_xml, const char *wanted, FILE *out);
int smi_table(const smi_gpus *gpus, FILE *out);
int smi_list(const smi_gpus *gpus, FILE *out);

int smi_set_power_limit(const smi_gpus *gpus, const char *text);
int smi_set_persistence(const smi_gpus *gpus, const char *text);
int smi_set_compute_mode(const smi_gpus *gpus, const char *text);
/* `range` is "min,max" or one clock; NULL: reset. */
int smi_lock_clocks(const smi_gpus *gpus, const char *range, bool is_memory);

#endif
