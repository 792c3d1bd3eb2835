/*
 * sqlite/turn.c - see turn.h.
 */
#include "transport/sqlite/turn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/inotify.h>
#define WATCHED (IN_CLOSE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
#endif

#define SUFFIX "-turn"

/* ---- locks ------------------------------------------------------------------------------------------------------- */

#if defined(F_OFD_SETLK)

static int lock_call(const sq_turn *turn, int command, short type, int64_t from, int64_t count, int64_t *found)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)from, .l_len = (off_t)count};
    int result;
    while ((result = fcntl(turn->fd, command, &lock)) != 0 && errno == EINTR)
        continue;
    if (result == 0 && found)
        *found = lock.l_type == F_UNLCK ? -1 : (int64_t)lock.l_start;
    return result;
}

static bool lock_byte(const sq_turn *turn, int64_t byte)
{
    return lock_call(turn, F_OFD_SETLK, F_WRLCK, byte, 1, NULL) == 0;
}

/* The start of some lock of somebody else on `count` bytes from `from` (0: all of them); -1: none. */
static int64_t other_lock(const sq_turn *turn, int64_t from, int64_t count)
{
    int64_t found = -1;
    if (count < 0 || lock_call(turn, F_OFD_GETLK, F_WRLCK, from, count, &found) != 0)
        return -1;
    return found;
}

static void unlock_all(const sq_turn *turn)
{
    (void)lock_call(turn, F_OFD_SETLK, F_UNLCK, 0, 0, NULL);
}

#else

static bool lock_byte(const sq_turn *turn, int64_t byte)
{
    (void)turn;
    (void)byte;
    return true;
}

static int64_t other_lock(const sq_turn *turn, int64_t from, int64_t count)
{
    (void)turn;
    (void)from;
    (void)count;
    return -1;
}

static void unlock_all(const sq_turn *turn)
{
    (void)turn;
}

#endif

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Whoever may write the database may queue for it: the side file gets the database's permissions. */
static int open_side(const char *path, const char *database)
{
    struct stat of;
    mode_t mode = stat(database, &of) == 0 ? of.st_mode & 0666 : 0600;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0)
        (void)fchmod(fd, mode);
    else if (errno == EEXIST)
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd;
}

static void attach(sq_turn *turn, const char *database)
{
    struct stat st;
    turn->fd = open_side(turn->path, database);
    if (turn->fd < 0)
        return;
    if (fstat(turn->fd, &st) == 0) {
        turn->device = st.st_dev;
        turn->inode = st.st_ino;
    }
#if defined(__linux__)
    if (turn->watch < 0)
        turn->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (turn->watch >= 0 && (turn->watch_id = inotify_add_watch(turn->watch, turn->path, WATCHED)) < 0) {
        close(turn->watch);
        turn->watch = -1;
    }
#endif
}

/* Somebody removed the side file: those who still have it and those who open a new one would not see each other. */
static void reattach(sq_turn *turn)
{
    struct stat st;
    if (stat(turn->path, &st) == 0 && st.st_dev == turn->device && st.st_ino == turn->inode)
        return;
    if (turn->fd >= 0)
        close(turn->fd);
#if defined(__linux__)
    if (turn->watch >= 0)
        (void)inotify_rm_watch(turn->watch, turn->watch_id);
#endif
    turn->ticket = 0;
    turn->held = turn->holder_skipped = false;
    turn->path[strlen(turn->path) - strlen(SUFFIX)] = '\0';
    char *database = bq_strndup(bq_str_of(turn->path));
    turn->path[strlen(turn->path)] = SUFFIX[0];
    if (database)
        attach(turn, database);
    else
        turn->fd = -1;
    bq_free(database);
}

bq_status bq_turn_open(sq_turn *turn, const char *database)
{
    size_t len = strlen(database);
    *turn = (sq_turn){.fd = -1, .watch = -1};
    turn->path = bq_malloc(len + sizeof(SUFFIX));
    if (!turn->path)
        return BQ_NOMEM;
    memcpy(turn->path, database, len);
    memcpy(turn->path + len, SUFFIX, sizeof(SUFFIX));
    attach(turn, database);
    return BQ_OK;
}

void bq_turn_abandon(sq_turn *turn)
{
    if (!turn->path)
        return;
    if (turn->fd >= 0)
        close(turn->fd);
    if (turn->watch >= 0)
        close(turn->watch);
    bq_free(turn->path);
    *turn = (sq_turn){.fd = -1, .watch = -1};
}

void bq_turn_close(sq_turn *turn)
{
    if (turn->path && (turn->held || turn->ticket != 0))
        bq_turn_leave(turn, false);
    bq_turn_abandon(turn); /* closing it is a signal too */
}

/* ---- queueing ---------------------------------------------------------------------------------------------------- */

static bool take_ticket(sq_turn *turn)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts); /* everybody's clock, never a test's own */
    int64_t byte = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    for (int i = 0; i < 64; i++) {
        if (byte > turn->skipped && lock_byte(turn, byte)) {
            turn->ticket = byte;
            return true;
        }
        byte++; /* somebody came in the same microsecond */
    }
    return false;
}

static bool enter(sq_turn *turn)
{
    if (lock_byte(turn, 0))
        turn->holder_skipped = false;
    else if (!turn->holder_skipped)
        return false;
    turn->held = true;
    return true;
}

static bool at_front(const sq_turn *turn)
{
    /* A count of 0 would mean "all of them". */
    int64_t count = turn->ticket - turn->skipped - 1;
    return count <= 0 || other_lock(turn, turn->skipped + 1, count) < 0;
}

/* The one that everybody waits for has not moved: ignore it from now on. */
static void skip_front(sq_turn *turn)
{
    if (at_front(turn)) {
        turn->holder_skipped = true;
        return;
    }
    int64_t lowest = turn->ticket, found;
    while ((found = lowest - turn->skipped - 1 > 0 ? other_lock(turn, turn->skipped + 1, lowest - turn->skipped - 1)
                                                   : -1) > turn->skipped)
        lowest = found;
    turn->skipped = lowest;
}

bool bq_turn_try(sq_turn *turn, int64_t now_ms)
{
    if (turn->fd < 0 || turn->held)
        return true;
    if (turn->ticket == 0) {
        if (other_lock(turn, turn->skipped + 1, 0) < 0 && enter(turn))
            return true;
        if (!take_ticket(turn))
            return true; /* no such locks here: SQLite's must do */
        turn->moved_ms = now_ms;
    }
    if (at_front(turn) && enter(turn))
        return true;
    if (now_ms - turn->moved_ms < TURN_PATIENCE_MS)
        return false;
    skip_front(turn);
    turn->moved_ms = now_ms;
    return at_front(turn) && enter(turn);
}

static void signal_all(sq_turn *turn)
{
    struct stat st;
    int fd = open(turn->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool gone = fd < 0 || fstat(fd, &st) != 0 || st.st_dev != turn->device || st.st_ino != turn->inode;
    if (fd >= 0)
        close(fd);
    if (gone)
        reattach(turn);
}

void bq_turn_leave(sq_turn *turn, bool news)
{
    bool queued = turn->held || turn->ticket != 0;
    turn->held = false;
    turn->ticket = 0;
    if (turn->fd < 0)
        return;
    if (queued)
        unlock_all(turn);
    if (news || (queued && other_lock(turn, 1, 0) >= 0))
        signal_all(turn);
}

bool bq_turn_drain(sq_turn *turn, int64_t now_ms)
{
    bool any = false;
#if defined(__linux__)
    _Alignas(struct inotify_event) char events[4096];
    ssize_t n;
    bool check = false;
    while (turn->watch >= 0 && (n = read(turn->watch, events, sizeof(events))) > 0) {
        any = true;
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(events + at);
            check = check || (event->mask & ~(uint32_t)IN_CLOSE) != 0;
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    }
    if (check)
        reattach(turn);
#endif
    if (any)
        turn->moved_ms = now_ms;
    return any;
}
