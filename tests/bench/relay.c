/* What one thread can pass on at most, a frame at a time: the answer to a fetch has to be there as a whole before it
 * can be written anew, since what it is about to say stands in front, and is told by its end.
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
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE_BYTES = 4, FIRST_BYTES = 1 << 12, MOST_CLIENTS = 64 };

/* One direction. Of two neighbours, 2n and 2n + 1, each receives from where the other sends to. */
struct way {
    int from, to;
    char *frame; /* NULL: nobody is connected. */
    size_t room, has, sent;
};

static struct way ways[2 * MOST_CLIENTS];
static struct pollfd polled[2 * MOST_CLIENTS + 1];

/* Of the frame that comes, as far as that is known. */
static size_t size_of(const struct way *way) {
    uint32_t size;
    if (way->has < SIZE_BYTES) return SIZE_BYTES;
    memcpy(&size, way->frame, SIZE_BYTES);
    return SIZE_BYTES + ntohl(size);
}

static int is_whole(const struct way *way) { return way->has > SIZE_BYTES && way->has == size_of(way); }

/* Whether it is not over. */
static int pass(struct way *way) {
    while (!is_whole(way)) {
        size_t size = size_of(way);
        if (size > way->room) way->frame = realloc(way->frame, way->room = size);
        ssize_t some = recv(way->from, way->frame + way->has, size - way->has, 0);
        if (some <= 0) return some < 0 && errno == EAGAIN;
        way->has += (size_t)some;
    }
    while (way->sent < way->has) {
        ssize_t some = send(way->to, way->frame + way->sent, way->has - way->sent, MSG_NOSIGNAL);
        if (some < 0) return errno == EAGAIN;
        way->sent += (size_t)some;
    }
    way->has = way->sent = 0;
    return 1;
}

static void end(struct way *pair) {
    for (int each = 0; each < 2; each++) {
        close(pair[each].from);
        free(pair[each].frame);
        pair[each].frame = NULL;
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
        if (pair->frame) continue;
        int behind = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(behind, (const struct sockaddr *)server, sizeof *server)) return 0;
        prepared(client);
        prepared(behind);
        pair[0] = (struct way){client, behind, malloc(FIRST_BYTES), FIRST_BYTES, 0, 0};
        pair[1] = (struct way){behind, client, malloc(FIRST_BYTES), FIRST_BYTES, 0, 0};
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
            if (way->frame)
                waits = is_whole(way) ? (struct pollfd){.fd = way->to, .events = POLLOUT}
                                      : (struct pollfd){.fd = way->from, .events = POLLIN};
            polled[each + 1] = waits;
        }
        if (poll(polled, 2 * MOST_CLIENTS + 1, -1) < 0) return 1;
        for (int each = 0; each < 2 * MOST_CLIENTS; each++)
            if (polled[each + 1].revents && ways[each].frame && !pass(&ways[each])) end(&ways[each & ~1]);
        if (polled[0].revents && !begin(accept(listener, NULL, NULL), &server)) return 1;
    }
}
