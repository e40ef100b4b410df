/*
dist/sockets.h -- TCP: connections, and messages on them.
*/
#ifndef DIST_SOCKETS_H
#define DIST_SOCKETS_H
#include "../core/common.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dist {
inline bool send_all(int fd, const void* p, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t k = send(fd, (const char*)p + at, n - at, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) { continue; }
        if (k <= 0) { return false; }
        at += k;
    }
    return true;
}

inline bool receive_all(int fd, void* p, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t k = recv(fd, (char*)p + at, n - at, 0);
        if (k < 0 && errno == EINTR) { continue; }
        if (k <= 0) { return false; }
        at += k;
    }
    return true;
}

// Goes before the bytes of a message.
struct Head {
    uint32_t number;                    // on the watch a kind, on the talk a count
    uint32_t bytes;
};

inline bool send_message(int fd, uint32_t number, const std::string& text) {
    const Head head = { number, (uint32_t)text.size() };
    std::string all((const char*)&head, sizeof head);
    all += text;
    return send_all(fd, all.data(), all.size());
}

// Receives a message of at most `most` bytes. Takes memory for what has come, not for what the
// other end says will come.
inline bool receive_message(int fd, uint32_t* number, std::string* text, size_t most) {
    Head head;
    text->clear();
    if (!receive_all(fd, &head, sizeof head) || head.bytes > most) { return false; }
    *number = head.number;
    while (text->size() < head.bytes) {
        const size_t at = text->size();
        const size_t n = std::min<size_t>(head.bytes - at, 1 << 20);
        text->resize(at + n);
        if (!receive_all(fd, &(*text)[at], n)) { return false; }
    }
    return true;
}

// Sets how long a receive on this socket waits; 0: for ever.
inline void socket_wait(int fd, int seconds) {
    const timeval wait = { seconds, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
}

inline int socket_new() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd < 0) { die(EXIT_MACHINE, strf("cannot make a socket (%s)", strerror(errno))); }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// Listens on *port, for rank 0. 0: on a free one, which *port becomes.
inline int socket_listen(int* port) {
    const int fd = socket_new();
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    at.sin_port = htons((uint16_t)*port);
    socklen_t length = sizeof at;
    if (bind(fd, (sockaddr*)&at, sizeof at) || listen(fd, 1024) ||
        getsockname(fd, (sockaddr*)&at, &length)) {
        die(EXIT_MACHINE,
            strf("port %d of %s: cannot listen (%s)", *port, host_name().c_str(), strerror(errno)),
            strf("another run is using it: set MASTER_PORT to another number than %d on all ranks",
                 *port - 1));
    }
    *port = ntohs(at.sin_port);
    return fd;
}

// Connects to address:port; returns -1 if it cannot.
inline int socket_connect(const std::string& address, int port) {
    addrinfo want = {};
    addrinfo* found = NULL;
    want.ai_family = AF_INET;
    want.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(address.c_str(), strf("%d", port).c_str(), &want, &found)) { return -1; }
    int fd = socket_new();
    if (connect(fd, found->ai_addr, found->ai_addrlen)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}
} // namespace dist
#endif // DIST_SOCKETS_H
