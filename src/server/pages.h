/* SPDX-License-Identifier: Apache-2.0 */
/* The dashboard's pages: files of web/, compressed at build time and part of the program. They hold
 * no data of any job, so they need no token; what they show they ask for as any client does. */
#ifndef HARPE_SERVER_PAGES_H
#define HARPE_SERVER_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "server/http.h"

/* One file. Made by cmake/embed_web.cmake. */
typedef struct harpe_page_file {
    const char *path, *content_type;
    const char *etag;          /* quoted */
    const unsigned char *gzip; /* compressed_length bytes */
    size_t compressed_length, length;
} harpe_page_file;

/* Ended by a NULL path. */
extern const harpe_page_file harpe_page_files[];

/* Is this the path of a page? */
bool harpe_is_page(const char *method, const char *path);
/* Answers a request for which that is so. */
void harpe_page_answer(harpe_http_request *request);

#endif
