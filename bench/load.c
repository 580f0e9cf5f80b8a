/* A client that asks for one path again and again, and says how long it took.
 *
 *   load [-p HOST:PORT] [-s] [-k] [-c N] [-n N] [-w SECONDS] [-H HEADER] HOST PORT PATH
 *
 *   -p  through this HTTP proxy (CONNECT where it is TLS)
 *   -s  over TLS; SSL_CERT_FILE says whom to trust
 *   -k  keep connections; else each request has a new one
 *   -c  connections at a time
 *   -n  requests altogether
 *   -w  only open the connections, with one request each, and hold them that long
 *   -H  a header of each request
 *
 * Standard output is one line of JSON: seconds, bytes of bodies, the median and
 * the 99th percentile of a request's seconds, and who issued the certificate.
 * Any answer but 200 ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 18, HEAD = 16384, TEXT = 4096 };

enum step { CONNECTING, ASKING_PROXY, PROXY_ANSWER, HANDSHAKE, ASKING, HEADERS, BODY };

struct conn {
    int fd;
    SSL *ssl;
    enum step step;
    size_t sent, have;
    long long left;
    double start;
    char head[HEAD + 1];
};

static const char *host, *port, *path, *proxy_host, *proxy_port, *header = "";
static int secure, keep, width = 1, hold;
static long total = 1, begun, ended;
static long long bytes;
static double *took;
static char request[TEXT], tunnel[TEXT], issuer[TEXT];
static char piece[PIECE];
static struct addrinfo *where;
static SSL_CTX *context;
static int queue;

static void fail(const char *what) {
    fprintf(stderr, "load: %s (%s)\n", what, strerror(errno));
    ERR_print_errors_fp(stderr);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void watch(struct conn *c, int how, unsigned events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(queue, how, c->fd, &event)) fail("epoll_ctl");
}

static void open_one(struct conn *c) {
    int one = 1;
    begun++;
    memset(c, 0, sizeof *c - sizeof c->head);
    c->start = now();
    c->fd = socket(where->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) fail("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, where->ai_addr, where->ai_addrlen) && errno != EINPROGRESS)
        fail("connect");
    watch(c, EPOLL_CTL_ADD, EPOLLOUT);
}

static void close_one(struct conn *c) {
    if (c->ssl) {
        SSL_shutdown(c->ssl);
        SSL_free(c->ssl);
    }
    close(c->fd);
}

static void go(struct conn *c, enum step step, unsigned events) {
    c->step = step;
    c->sent = c->have = 0;
    watch(c, EPOLL_CTL_MOD, events);
}

/* Bytes, 0 where it has to wait, -1 at the end. */
static long take(struct conn *c, char *into, size_t most) {
    long count;
    if (!c->ssl) {
        count = recv(c->fd, into, most, 0);
        if (count > 0) return count;
        if (count < 0 && errno == EAGAIN) return 0;
        return -1;
    }
    ERR_clear_error();
    count = SSL_read(c->ssl, into, (int)most);
    if (count > 0) return count;
    return SSL_get_error(c->ssl, (int)count) == SSL_ERROR_WANT_READ ? 0 : -1;
}

/* Whether the whole text has been sent. */
static int say(struct conn *c, const char *text) {
    size_t size = strlen(text);
    while (c->sent < size) {
        long count = c->ssl ? SSL_write(c->ssl, text + c->sent, (int)(size - c->sent))
                            : send(c->fd, text + c->sent, size - c->sent, MSG_NOSIGNAL);
        if (count <= 0) {
            if (errno == EAGAIN) return 0;
            fail("sending failed");
        }
        c->sent += (size_t)count;
    }
    return 1;
}

/* Whether a head has come; what follows it is moved to the start of `head`. */
static int headed(struct conn *c) {
    char *end = NULL, *field;
    while (!end) {
        long count = take(c, c->head + c->have, HEAD - c->have);
        if (!count) return 0;
        if (count < 0) fail("closed before an answer");
        c->have += (size_t)count;
        c->head[c->have] = 0;
        end = strstr(c->head, "\r\n\r\n");
        if (!end && c->have == HEAD) fail("a head without an end");
    }
    *end = 0;
    if (strncmp(c->head, "HTTP/1.1 200", 12)) fail(c->head);
    field = strcasestr(c->head, "\r\ncontent-length:");
    c->left = field ? atoll(field + 17) : 0;
    c->have -= (size_t)(end + 4 - c->head);
    memmove(c->head, end + 4, c->have);
    return 1;
}

static void secure_one(struct conn *c) {
    c->ssl = SSL_new(context);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_tlsext_host_name(c->ssl, host);
    SSL_set1_host(c->ssl, host);
    SSL_set_connect_state(c->ssl);
}

static int shaken(struct conn *c) {
    X509 *shown;
    int done = SSL_do_handshake(c->ssl);
    if (done != 1) {
        int error = SSL_get_error(c->ssl, done);
        if (error != SSL_ERROR_WANT_READ) fail("TLS");
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
        return 0;
    }
    if (!*issuer) {
        shown = SSL_get1_peer_certificate(c->ssl);
        X509_NAME_get_text_by_NID(X509_get_issuer_name(shown), NID_commonName, issuer,
                                  sizeof issuer);
        X509_free(shown);
    }
    return 1;
}

static void ask(struct conn *c) { go(c, ASKING, EPOLLOUT); }

static void begin(struct conn *c) {
    if (secure) {
        secure_one(c);
        go(c, HANDSHAKE, EPOLLOUT | EPOLLIN);
    } else {
        ask(c);
    }
}

static void finish(struct conn *c) {
    took[ended++] = now() - c->start;
    if (hold) {
        watch(c, EPOLL_CTL_MOD, 0);
    } else if (begun < total && keep) {
        begun++;
        c->start = now();
        ask(c);
    } else {
        close_one(c);
        if (begun < total) open_one(c);
    }
}

static void body(struct conn *c, long count) {
    bytes += count;
    c->left -= count;
    if (c->left < 0) fail("more than was announced");
}

/* Go as far as can be without waiting. */
static void step(struct conn *c) {
    long count;
    switch (c->step) {
    case CONNECTING:
        if (proxy_host && secure) {
            go(c, ASKING_PROXY, EPOLLOUT);
        } else {
            begin(c);
        }
        return;
    case ASKING_PROXY:
        if (say(c, tunnel)) go(c, PROXY_ANSWER, EPOLLIN);
        return;
    case PROXY_ANSWER:
        if (headed(c)) begin(c);
        return;
    case HANDSHAKE:
        if (shaken(c)) ask(c);
        return;
    case ASKING:
        if (say(c, request)) go(c, HEADERS, EPOLLIN);
        return;
    case HEADERS:
        if (!headed(c)) return;
        body(c, (long)c->have);
        c->step = BODY;
        /* fall through */
    case BODY:
        /* What TLS has read ahead wakes nobody. */
        while (c->left && (count = take(c, piece, sizeof piece))) {
            if (count < 0) fail("closed within an answer");
            body(c, count);
        }
        if (!c->left) finish(c);
    }
}

static void run(void) {
    struct conn *conns = calloc((size_t)width, sizeof *conns);
    struct epoll_event events[64];
    for (int i = 0; i < width && begun < total; i++) open_one(&conns[i]);
    while (ended < total) {
        int count = epoll_wait(queue, events, 64, 60000);
        if (count <= 0) fail("nothing happens");
        for (int i = 0; i < count; i++) step(events[i].data.ptr);
    }
}

static void resolve(void) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(proxy_host ? proxy_host : host,
                            proxy_host ? proxy_port : port, &hints, &where);
    if (error) fail(gai_strerror(error));
}

static void prepare(void) {
    char target[TEXT / 4] = "", authority[TEXT / 8];
    int usual = !strcmp(port, secure ? "443" : "80");
    snprintf(authority, sizeof authority, usual ? "%s" : "%s:%s", host, port);
    if (proxy_host && !secure)
        snprintf(target, sizeof target, "http://%s", authority);
    snprintf(request, sizeof request,
             "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: load\r\nAccept: */*\r\n"
             "%s%s\r\n",
             target, path, authority, header, *header ? "\r\n" : "");
    snprintf(tunnel, sizeof tunnel, "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n",
             host, port, host, port);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_default_verify_paths(context) != 1) fail("no certificates");
}

static void arguments(int count, char **given) {
    int option;
    while ((option = getopt(count, given, "p:skc:n:w:H:")) != -1) {
        switch (option) {
        case 'p':
            proxy_host = strtok(optarg, ":");
            proxy_port = strtok(NULL, ":");
            break;
        case 's': secure = 1; break;
        case 'k': keep = 1; break;
        case 'c': width = atoi(optarg); break;
        case 'n': total = atol(optarg); break;
        case 'w': hold = atoi(optarg); break;
        case 'H': header = optarg; break;
        default: fail("unknown option");
        }
    }
    if (count - optind != 3) fail("give HOST PORT PATH");
    host = given[optind], port = given[optind + 1], path = given[optind + 2];
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **given) {
    double start;
    arguments(count, given);
    prepare();
    resolve();
    took = calloc((size_t)total, sizeof *took);
    queue = epoll_create1(0);
    start = now();
    run();
    start = now() - start;
    qsort(took, (size_t)total, sizeof *took, by_value);
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"bytes\": %lld, "
           "\"median\": %.7f, \"p99\": %.7f, \"issuer\": \"%s\"}\n",
           start, total, bytes, took[total / 2], took[total * 99 / 100], issuer);
    fflush(stdout);
    if (hold) sleep((unsigned)hold);
    return 0;
}
