/* What one thread can pass on at most: copies what it receives from one socket to another, and knows nothing of it.
 *
 * Usage: relay PORT. Prints its own port on loopback; each connection to it has one to PORT on loopback, too.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, MOST_CLIENTS = 64 };

/* One direction. Of two neighbours, 2n and 2n + 1, each receives from where the other sends to. */
struct way {
    int from, to;
    size_t start, end;
    char *buffer;
};

static struct way ways[2 * MOST_CLIENTS];
static struct pollfd polled[2 * MOST_CLIENTS + 1];

static int is_open(const struct way *way) { return way->buffer != NULL; }

static int is_empty(const struct way *way) { return way->start == way->end; }

/* Whether it is not over. */
static int pass(struct way *way) {
    if (is_empty(way)) {
        ssize_t some = recv(way->from, way->buffer, BUFFER_BYTES, 0);
        if (some <= 0) return some < 0 && errno == EAGAIN;
        way->start = 0;
        way->end = (size_t)some;
    }
    while (!is_empty(way)) {
        ssize_t some = send(way->to, way->buffer + way->start, way->end - way->start, MSG_NOSIGNAL);
        if (some < 0) return errno == EAGAIN;
        way->start += (size_t)some;
    }
    return 1;
}

static void end(struct way *pair) {
    for (int each = 0; each < 2; each++) {
        close(pair[each].from);
        free(pair[each].buffer);
        pair[each].buffer = NULL;
    }
}

static int prepared(int connected) {
    int yes = 1;
    setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connected, F_SETFL, O_NONBLOCK);
    return connected;
}

static int begin(int client, const struct sockaddr_in *server) {
    for (struct way *pair = ways; pair < ways + 2 * MOST_CLIENTS; pair += 2) {
        if (is_open(pair)) continue;
        int behind = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(behind, (const struct sockaddr *)server, sizeof *server)) return 0;
        prepared(client);
        prepared(behind);
        pair[0] = (struct way){client, behind, 0, 0, malloc(BUFFER_BYTES)};
        pair[1] = (struct way){behind, client, 0, 0, malloc(BUFFER_BYTES)};
        return 1;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, server = own;
    server.sin_port = htons((uint16_t)atoi(arguments[1]));
    socklen_t size = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&own, size) || listen(listener, MOST_CLIENTS)) return 1;
    getsockname(listener, (struct sockaddr *)&own, &size);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        for (int each = 0; each < 2 * MOST_CLIENTS; each++) {
            const struct way *way = &ways[each];
            struct pollfd waits = {.fd = -1};
            if (is_open(way))
                waits = is_empty(way) ? (struct pollfd){.fd = way->from, .events = POLLIN}
                                      : (struct pollfd){.fd = way->to, .events = POLLOUT};
            polled[each + 1] = waits;
        }
        if (poll(polled, 2 * MOST_CLIENTS + 1, -1) < 0) return 1;
        for (int each = 0; each < 2 * MOST_CLIENTS; each++)
            if (polled[each + 1].revents && is_open(&ways[each]) && !pass(&ways[each])) end(&ways[each & ~1]);
        if (polled[0].revents && !begin(accept(listener, NULL, NULL), &server)) return 1;
    }
}
