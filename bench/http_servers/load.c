/* SPDX-License-Identifier: Apache-2.0 */
/* Sends small requests to 127.0.0.1, one after the other, and prints the requests per second.
 * Usage: load PORT REQUESTS kept|new */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char request[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\n"
                              "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
                              "User-Agent: load\r\nAccept: */*\r\n\r\n";

static void stop(const char *what) {
    perror(what);
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct linger reset = {1, 0}; /* leaves no port in TIME_WAIT */
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) stop("connect");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void ask(int fd) {
    char answer[1024];
    size_t length = 0;
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0) stop("send");
    do {
        ssize_t got = recv(fd, answer + length, sizeof answer - length, 0);
        if (got <= 0) stop("recv");
        length += (size_t)got;
    } while (length < 5 || memcmp(answer + length - 5, "hello", 5) != 0);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int port = (int)strtol(argv[1], NULL, 10);
    int requests = (int)strtol(argv[2], NULL, 10);
    int is_new = strcmp(argv[3], "new") == 0;
    double begin_s = now_s();
    int fd = is_new ? -1 : dial(port);
    for (int i = 0; i < requests; i++) {
        if (is_new) fd = dial(port);
        ask(fd);
        if (is_new) close(fd);
    }
    printf("%.0f\n", requests / (now_s() - begin_s));
    return 0;
}
