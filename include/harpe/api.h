/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the macros that every public header uses: symbol visibility, C linkage, deprecated names
 * and checks of printf arguments. */
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
/* Marks a name that the next version removes. The compiler prints `message` where the name is
 * used. */
#define HARPE_DEPRECATED(message) __attribute__((deprecated(message)))
#define HARPE_PRINTF(format_index, first_argument_index) \
    __attribute__((format(printf, format_index, first_argument_index)))

#endif
