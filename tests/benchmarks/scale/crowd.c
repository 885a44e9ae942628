/* Many clients of a broker in one thread, for bin/bench scale.
 *
 *   crowd stay  PORT CONNECTIONS RATE SECONDS FRAMES   each connection sends RATE requests a second
 *   crowd visit PORT CONNECTIONS RATE SECONDS FRAMES   RATE clients a second come, ask all frames and leave;
 *                                                      at most CONNECTIONS of them are there at once
 *
 * FRAMES is a file of whole requests, each with its size in front. A connection that stays sends one of them, the
 * n-th that of number n modulo their count; a visitor sends all of them, one after the other. Requests are due at
 * fixed times, whether those before them are answered or not, and a latency counts from when its request was due.
 * Answers are counted, not read: the caller looks whether they were good. Source addresses are 127.0.0.2 and on,
 * so that local ports do not end.
 *
 * Prints JSON: opened, failed, answered, lost (due and never answered), open_s, seconds, p50_ms, p99_ms, max_ms. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OPENING_MAX 256 /* connections under way at once; less than any backlog */
#define PORTS_PER_ADDRESS 20000
#define DRAIN_S 30.0 /* that answers may take after the last request */
#define BUCKETS 4096 /* of latencies, each 0.5 % wider than the one before, from 1 us */
#define GROWTH 1.005

enum state { FREE, CONNECTING, IDLE, ASKED };

struct client {
    enum state state;
    int fd, frame;     /* which one it sends next, or waits for */
    long sent;         /* requests of one that stays */
    double due;        /* of what it waits for */
    unsigned head_got; /* bytes of the size */
    unsigned char head[4];
    unsigned left; /* bytes of the answer */
};

static struct sockaddr_in broker;
static struct client *clients;
static int count, poller, frames_count, *starts, *sizes;
static unsigned char *frames;
static long opened, failed, answered, addresses;
static long histogram[BUCKETS];
static double slowest;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "crowd: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file), at = 0;
    rewind(file);
    frames = malloc(size);
    if (fread(frames, 1, size, file) != (size_t)size) die(path);
    fclose(file);
    while (at < size) {
        unsigned length = frames[at] << 24 | frames[at + 1] << 16 | frames[at + 2] << 8 | frames[at + 3];
        starts = realloc(starts, (frames_count + 1) * sizeof *starts);
        sizes = realloc(sizes, (frames_count + 1) * sizeof *sizes);
        starts[frames_count] = at;
        sizes[frames_count++] = length + 4;
        at += length + 4;
    }
}

static void note(double seconds) {
    double us = seconds * 1e6;
    int bucket = us > 1 ? (int)ceil(log(us) / log(GROWTH)) : 0;
    if (seconds > slowest) slowest = seconds;
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    answered++;
}

static double quantile(double share) {
    long seen = 0;
    double limit = 1;
    for (int bucket = 0; bucket < BUCKETS; bucket++, limit *= GROWTH)
        if ((seen += histogram[bucket]) > 0 && seen >= share * answered) return limit / 1e3;
    return 0;
}

static void leave(struct client *one) {
    close(one->fd);
    one->state = FREE;
}

static void lose(struct client *one) {
    failed++;
    leave(one);
}

static void come(struct client *one) {
    struct sockaddr_in own = {.sin_family = AF_INET};
    int on = 1;
    own.sin_addr.s_addr = htonl(0x7f000002 + addresses++ / PORTS_PER_ADDRESS % 200);
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (one->fd < 0) die("socket");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(one->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(one->fd, (struct sockaddr *)&own, sizeof own)) die("bind");
    if (connect(one->fd, (struct sockaddr *)&broker, sizeof broker) && errno != EINPROGRESS) die("connect");
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = one};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, one->fd, &event)) die("epoll_ctl");
    one->state = CONNECTING;
    one->sent = one->head_got = one->left = 0;
}

static void ask(struct client *one) {
    int size = sizes[one->frame];
    if (send(one->fd, frames + starts[one->frame], size, MSG_NOSIGNAL) != size) {
        lose(one); /* requests are small: one that does not fit goes to a broker that reads no more */
        return;
    }
    one->state = ASKED;
}

/* 1: a whole answer has come, 0: not yet, -1: the broker has closed. */
static int listen_to(struct client *one) {
    static unsigned char buffer[1 << 18];
    for (;;) {
        ssize_t got;
        if (one->head_got < 4) {
            got = recv(one->fd, one->head + one->head_got, 4 - one->head_got, 0);
            if (got > 0 && (one->head_got += got) == 4)
                one->left = one->head[0] << 24 | one->head[1] << 16 | one->head[2] << 8 | one->head[3];
        } else {
            got = recv(one->fd, buffer, one->left < sizeof buffer ? one->left : sizeof buffer, 0);
            if (got > 0 && !(one->left -= got)) {
                one->head_got = 0;
                return 1;
            }
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        if (got <= 0) return -1;
    }
}

static int is_connected(struct client *one) {
    int error = 0;
    socklen_t size = sizeof error;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    if (getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) {
        lose(one);
        return 0;
    }
    epoll_ctl(poller, EPOLL_CTL_MOD, one->fd, &event);
    one->state = IDLE;
    opened++;
    return 1;
}

static double due_of(int number, long sent, double began, double rate) {
    return began + ((double)number / count + sent) / rate;
}

static void open_all(void) {
    struct epoll_event events[OPENING_MAX];
    int begun = 0, under_way = 0, left = count;
    while (left) {
        while (begun < count && under_way < OPENING_MAX) come(&clients[begun++]), under_way++;
        int found = epoll_wait(poller, events, OPENING_MAX, 10000);
        if (!found) break; /* the broker accepts no more */
        for (int index = 0; index < found; index++) {
            struct client *one = events[index].data.ptr;
            if (one->state == CONNECTING) {
                is_connected(one);
                under_way--, left--;
            } else if (one->state != FREE)
                lose(one);
        }
    }
}

static long stay(double rate, double seconds) {
    struct epoll_event events[512];
    double began = now(), ends = began + seconds;
    long turn = 0, asked = 0;
    for (;;) {
        double at = now(), next = due_of(turn % count, turn / count, began, rate);
        while (next <= at && next < ends) { /* those that are busy ask when they have their answer */
            struct client *one = &clients[turn % count];
            if (one->state == IDLE && one->sent == turn / count) {
                one->due = next, one->sent++, asked++;
                ask(one);
            }
            turn++;
            next = due_of(turn % count, turn / count, began, rate);
        }
        int waiting = 0;
        if (at >= ends) {
            for (int index = 0; index < count; index++) waiting += clients[index].state == ASKED;
            if (!waiting || at > ends + DRAIN_S) return asked - answered;
        }
        double until = next < ends ? next - at : 0.01;
        int found = epoll_wait(poller, events, 512, until > 0.001 ? (int)(until * 1e3) : 0);
        at = now();
        for (int index = 0; index < found; index++) {
            struct client *one = events[index].data.ptr;
            if (one->state == FREE) continue;
            int got = listen_to(one);
            if (got < 0) lose(one);
            if (got <= 0) continue;
            note(at - one->due);
            one->state = IDLE;
            double due = due_of(one - clients, one->sent, began, rate);
            if (due <= at && due < ends) {
                one->due = due, one->sent++, asked++;
                ask(one);
            }
        }
    }
}

static long visit(double rate, double seconds) {
    struct epoll_event events[512];
    double began = now(), ends = began + seconds;
    long come_so_far = 0, there = 0;
    int next_free = 0;
    for (;;) {
        double at = now(), due;
        while (there < count && (due = began + come_so_far / rate) <= at && due < ends) {
            while (clients[next_free].state != FREE) next_free = (next_free + 1) % count;
            struct client *one = &clients[next_free];
            one->due = due, one->frame = 0;
            come(one);
            come_so_far++, there++;
        }
        if (!there && began + come_so_far / rate >= ends) return come_so_far - answered;
        if (at > ends + DRAIN_S) return come_so_far - answered;
        int found = epoll_wait(poller, events, 512, 1);
        at = now();
        for (int index = 0; index < found; index++) {
            struct client *one = events[index].data.ptr;
            if (one->state == CONNECTING) {
                if (is_connected(one)) ask(one);
            } else if (one->state == ASKED) {
                int got = listen_to(one);
                if (got < 0) lose(one);
                if (got > 0 && ++one->frame < frames_count) ask(one);
                if (got > 0 && one->frame == frames_count) {
                    note(at - one->due);
                    leave(one);
                }
            }
            if (one->state == FREE) there--;
        }
    }
}

int main(int arguments, char **argument) {
    if (arguments != 7) {
        fprintf(stderr, "usage: crowd stay|visit PORT CONNECTIONS RATE SECONDS FRAMES\n");
        return 2;
    }
    int stays = !strcmp(argument[1], "stay");
    double rate = atof(argument[4]), seconds = atof(argument[5]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    broker = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argument[2]))};
    broker.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    count = atoi(argument[3]);
    clients = calloc(count, sizeof *clients);
    poller = epoll_create1(0);
    read_frames(argument[6]);
    double began = now(), open_s = 0;
    if (stays) {
        for (int index = 0; index < count; index++) clients[index].frame = index % frames_count;
        open_all();
        open_s = now() - began;
        fprintf(stderr, "open\n"); /* the caller looks at the broker now and goes on by a line */
        if (getchar() == EOF) return 1;
        began = now();
    }
    long lost = stays ? stay(rate, seconds) : visit(rate, seconds);
    printf("{\"opened\": %ld, \"failed\": %ld, \"answered\": %ld, \"lost\": %ld, \"open_s\": %.3f, "
           "\"seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n",
           opened, failed, answered, lost, open_s, now() - began, quantile(0.5), quantile(0.99), slowest * 1e3);
    return 0;
}
