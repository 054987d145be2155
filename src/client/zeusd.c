/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to zeusd, by libcurl over its Unix socket, on a connection that stays open. Whatever
 * answers there must not hold the controller up: time and size have limits. */
#include "client/zeusd.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define CONNECT_LIMIT_MS 1000L
#define REQUEST_LIMIT_MS 5000L

enum { ANSWER_SIZE = 512, URL_SIZE = 256 };

struct harpe_zeusd {
    CURL *curl;
    int gpu;
    char *socket;
    char answer[ANSWER_SIZE]; /* its beginning; the rest is dropped */
    size_t answer_length;
    char reason[CURL_ERROR_SIZE];
};

static size_t receive(char *bytes, size_t size, size_t count, void *user) {
    harpe_zeusd *zeusd = user;
    size_t length = size * count;
    size_t room = sizeof zeusd->answer - 1 - zeusd->answer_length;
    size_t kept = length < room ? length : room;
    memcpy(zeusd->answer + zeusd->answer_length, bytes, kept);
    zeusd->answer_length += kept;
    zeusd->answer[zeusd->answer_length] = '\0';
    return length;
}

harpe_status harpe_zeusd_open(const char *socket, int gpu, harpe_zeusd **out, harpe_error *error) {
    harpe_zeusd *zeusd = harpe_calloc(1, sizeof *zeusd);
    if (!zeusd) return harpe_fail_memory(error);
    zeusd->gpu = gpu;
    zeusd->socket = strdup(socket);
    zeusd->curl = curl_easy_init();
    if (!zeusd->socket || !zeusd->curl) {
        harpe_zeusd_close(zeusd);
        return harpe_fail_memory(error);
    }
    CURL *curl = zeusd->curl;
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, zeusd->reason);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_LIMIT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REQUEST_LIMIT_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, zeusd);
    *out = zeusd;
    return HARPE_OK;
}

void harpe_zeusd_close(harpe_zeusd *zeusd) {
    if (!zeusd) return;
    curl_easy_cleanup(zeusd->curl);
    free(zeusd->socket);
    free(zeusd);
}

/* zeusd answers 403 and 400 for what NVML calls no permission and invalid, and 500 for all else
 * with NVML's text. */
static harpe_status status_of(long code, const char *answer) {
    if (strcasestr(answer, "not supported") || strcasestr(answer, "NotSupported")) {
        return HARPE_NOT_SUPPORTED;
    }
    if (strcasestr(answer, "lost")) return HARPE_GPU_LOST;
    switch (code) {
    case 400: return HARPE_INVALID_ARGUMENT;
    case 401:
    case 403: return HARPE_PERMISSION_DENIED;
    case 404: return HARPE_NOT_SUPPORTED;
    default: return HARPE_DRIVER_ERROR;
    }
}

harpe_status harpe_zeusd_call(harpe_zeusd *zeusd, harpe_error *error, const char *command,
                              const char *format, ...) {
    char url[URL_SIZE];
    int length =
        snprintf(url, sizeof url, "http://zeusd/gpu/%s?gpu_ids=%d&block=true", command, zeusd->gpu);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(url + length, sizeof url - (size_t)length, format, arguments);
    va_end(arguments);
    zeusd->answer_length = 0;
    zeusd->answer[0] = zeusd->reason[0] = '\0';
    curl_easy_setopt(zeusd->curl, CURLOPT_URL, url);
    CURLcode result = curl_easy_perform(zeusd->curl);
    if (result != CURLE_OK) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "zeusd at '%s' does not answer (%s): start it, or unset ZEUSD_SOCK_PATH",
                          zeusd->socket,
                          zeusd->reason[0] ? zeusd->reason : curl_easy_strerror(result));
    }
    long code = 0;
    curl_easy_getinfo(zeusd->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 200 && code < 300) return HARPE_OK;
    harpe_status status =
        harpe_fail(error, status_of(code, zeusd->answer), "GPU %d: zeusd refuses %s with %ld: %s",
                   zeusd->gpu, command, code, zeusd->answer);
    if (error) error->vendor_code = (int)code;
    return status;
}
