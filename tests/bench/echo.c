/* What the sockets alone cost: receives a client's bytes and sends as many as an answer has, over and over.
 *
 * Usage: echo REQUEST_BYTES ANSWER_BYTES. Prints its port on loopback; serves one connection after another. The
 * first four bytes of an answer are its size, as Kafka has it; the rest are zeros.
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

static char received[BUFFER_BYTES], sent[BUFFER_BYTES];

static int take(int client, size_t bytes) {
    while (bytes > 0) {
        ssize_t some = recv(client, received, bytes < BUFFER_BYTES ? bytes : BUFFER_BYTES, 0);
        if (some <= 0) return 0;
        bytes -= (size_t)some;
    }
    return 1;
}

static int give(int client, size_t bytes) {
    *(uint32_t *)sent = htonl((uint32_t)(bytes - 4));
    for (size_t at = 0; at < bytes;) {
        size_t left = bytes - at, start = at < 4 ? at : 4;
        ssize_t some = send(client, sent + start, left < BUFFER_BYTES - 4 ? left : BUFFER_BYTES - 4, MSG_NOSIGNAL);
        if (some <= 0) return 0;
        at += (size_t)some;
    }
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t request_bytes = strtoul(arguments[1], NULL, 10), answer_bytes = strtoul(arguments[2], NULL, 10);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int client; (client = accept(listener, NULL, NULL)) >= 0; close(client))
        while (take(client, request_bytes) && give(client, answer_bytes)) {}
    return 1;
}
