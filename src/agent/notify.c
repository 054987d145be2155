/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the protocol of sd_notify(3): sends one datagram to the socket that NOTIFY_SOCKET names. */
#include "agent/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/number.h"

void harpe_agent_notify(const char *state) {
    const char *path = secure_getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (*path != '/' && *path != '@')) return;
    memcpy(address.sun_path, path, length);
    if (*path == '@') address.sun_path[0] = '\0'; /* an abstract name */
    int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (out < 0) return;
    (void)sendto(out, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                 (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(out);
}

int64_t harpe_agent_watchdog_ms(void) {
    const char *text = secure_getenv("WATCHDOG_USEC");
    int64_t period_us;
    if (!text || !harpe_parse_int(text, strlen(text), &period_us) || period_us < 2000) return 0;
    return period_us / 2000;
}
