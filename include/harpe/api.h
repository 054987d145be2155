/* SPDX-License-Identifier: Apache-2.0 */
/* What every public header needs: symbol visibility, C linkage, printf checking. */
#ifndef HARPE_API_H
#define HARPE_API_H

#ifdef __cplusplus
#define HARPE_BEGIN_DECLS extern "C" {
#define HARPE_END_DECLS }
#else
#define HARPE_BEGIN_DECLS
#define HARPE_END_DECLS
#endif

#define HARPE_API __attribute__((visibility("default")))
#define HARPE_PRINTF(format_index, first_argument_index) \
    __attribute__((format(printf, format_index, first_argument_index)))

#endif
