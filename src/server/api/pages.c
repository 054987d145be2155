/* SPDX-License-Identifier: Apache-2.0 */
/* Answers requests for the dashboard's pages. The program contains them compressed, and sends them
 * in this form. A client that does not accept gzip gets them unpacked. A client that has the
 * current version gets 304 and no page. */
#include "server/api/pages.h"

#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST /* zlib declares its input as const */
#include <zlib.h>

/* A page may load only from this server and send only to it. No other page may show it in a frame,
 * because such a page could trick a user into clicking on it. */
static const char POLICY[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "img-src 'self'; connect-src 'self'; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'";

static const harpe_page_file *find(const char *path) {
    for (const harpe_page_file *file = harpe_page_files; file->path; file++)
        if (strcmp(file->path, path) == 0) return file;
    return NULL;
}

/* Returns the unpacked file, or NULL if memory runs out. */
static char *unpack(const harpe_page_file *file) {
    z_stream stream = {.next_in = file->gzip, .avail_in = (uInt)file->compressed_length};
    char *text = malloc(file->length + 1);
    if (!text || inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) {
        free(text);
        return NULL;
    }
    stream.next_out = (Bytef *)text;
    stream.avail_out = (uInt)file->length + 1;
    int result = inflate(&stream, Z_FINISH);
    (void)inflateEnd(&stream);
    if (result == Z_STREAM_END && stream.total_out == file->length) return text;
    free(text);
    return NULL;
}

bool harpe_is_page(const char *method, const char *path) {
    return strcmp(method, "GET") == 0 && find(path);
}

void harpe_page_answer(harpe_http_request *request) {
    const harpe_page_file *file = find(harpe_http_path(request));
    const char *known = harpe_http_header(request, "if-none-match");
    const char *accepted = harpe_http_header(request, "accept-encoding");
    bool takes_gzip = accepted && strstr(accepted, "gzip");
    const harpe_http_header_field headers[] = {{"etag", file->etag},
                                               {"cache-control", "no-cache"},
                                               {"vary", "accept-encoding"},
                                               {"content-security-policy", POLICY},
                                               {"x-content-type-options", "nosniff"},
                                               {"referrer-policy", "no-referrer"},
                                               {takes_gzip ? "content-encoding" : NULL, "gzip"},
                                               {NULL, NULL}};
    if (known && strstr(known, file->etag)) {
        harpe_http_answer(request, 304, NULL, NULL, 0, false, headers);
        return;
    }
    char *body = takes_gzip ? malloc(file->compressed_length) : unpack(file);
    if (!body) {
        char none[] = "the server is out of memory: try again later\n";
        harpe_http_answer(request, 503, "text/plain", none, strlen(none), false, NULL);
        return;
    }
    if (takes_gzip) memcpy(body, file->gzip, file->compressed_length);
    harpe_http_answer(request, 200, file->content_type, body,
                      takes_gzip ? file->compressed_length : file->length, true, headers);
}
