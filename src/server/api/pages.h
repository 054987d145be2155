/* SPDX-License-Identifier: Apache-2.0 */
/* The dashboard's pages: files of web/, compressed at build time and part of the program. They
 * contain no data of jobs, so they need no token. They request the data that they show from the
 * server, like any client. */
#ifndef HARPE_SERVER_API_PAGES_H
#define HARPE_SERVER_API_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "http/http.h"

/* One file. Made by cmake/embed_web.cmake. */
typedef struct harpe_page_file {
    const char *path, *content_type;
    const char *etag;          /* with its quotes */
    const unsigned char *gzip; /* compressed_length bytes */
    size_t compressed_length, length;
} harpe_page_file;

/* The last row has a NULL path. */
extern const harpe_page_file harpe_page_files[];

/* Returns true if this is the path of a page. */
bool harpe_is_page(const char *method, const char *path);
/* Answers a request for a page. */
void harpe_page_answer(harpe_http_request *request);

#endif
