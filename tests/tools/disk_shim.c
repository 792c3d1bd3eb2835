/*
 * disk_shim.c - a disk that fails, for LD_PRELOAD: sees every operation that a program makes on files of one directory,
 * and cuts it off, refuses it or writes it down.
 *
 *   BQ_DISK_DIR         the directory (absolute, no symbolic links), whose files count; required
 *   BQ_DISK_KILL=N      SIGKILLs the process before the Nth counted operation
 *   BQ_DISK_FULL=N[:M]  counted operations N to N+M-1 (for ever without M) that would need space fail with ENOSPC
 *   BQ_DISK_FULL_WHILE=FILE  so does every one while FILE exists
 *   BQ_DISK_BAD_SYNC=N[:M]   syncs N to N+M-1 (counted by themselves) fail with EIO
 *   BQ_DISK_EXEMPT=NAME that file of the directory is written down, but neither counted nor refused
 *   BQ_DISK_TRACE=FILE  appends a record of every counted operation, after it was done
 *
 * Counted are: creating a file, write, truncate, allocate, unlink, rename, sync of a file or of the directory. A record
 * is: operation (1 byte), length of the name (2 bytes), number (8), length of the data (4), name, data; integers little
 * endian. Name is relative to the directory; number is the offset of a write or the size of a truncation.
 * tests/support/disk.py reads it. A write through a memory map is not seen: SQLite writes its -shm file so, which is
 * rebuilt after a crash.
 *
 * Threads: a mutex around the operation and its record, so that the order of records is the order of operations.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHIM __attribute__((visibility("default")))
#define FDS 4096
#define NAME_MAX_LEN 512

typedef struct window {
    long first; /* 0: none */
    long count; /* 0: without end */
} window;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *names[FDS]; /* of descriptors of files in the directory, relative; "" is the directory itself */
static char dir[NAME_MAX_LEN];
static const char *full_while, *exempt;
static int trace = -1;
static long counted, syncs, kill_at;
static window full, bad_sync;

static window window_of(const char *text)
{
    window w = {0, 0};
    if (text) {
        char *end;
        w.first = strtol(text, &end, 10);
        if (*end == ':')
            w.count = strtol(end + 1, NULL, 10);
    }
    return w;
}

static bool within(window w, long n)
{
    return w.first && n >= w.first && (!w.count || n < w.first + w.count);
}

__attribute__((constructor)) static void start(void)
{
    const char *d = getenv("BQ_DISK_DIR"), *t = getenv("BQ_DISK_TRACE"), *k = getenv("BQ_DISK_KILL");
    if (!d || strlen(d) >= sizeof dir)
        return;
    memcpy(dir, d, strlen(d) + 1);
    full_while = getenv("BQ_DISK_FULL_WHILE");
    exempt = getenv("BQ_DISK_EXEMPT");
    full = window_of(getenv("BQ_DISK_FULL"));
    bad_sync = window_of(getenv("BQ_DISK_BAD_SYNC"));
    kill_at = k ? strtol(k, NULL, 10) : 0;
    if (t)
        trace = (int)syscall(SYS_openat, AT_FDCWD, t, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The function that the program would have called. */
#define NEXT(type, name)                                                                                               \
    static type next;                                                                                                  \
    if (!next)                                                                                                         \
    *(void **)&next = dlsym(RTLD_NEXT, name)

/* ---- which files ------------------------------------------------------------------------------------------------ */

/* The path relative to the directory, NULL when it is not in it. */
static const char *inside(const char *path)
{
    size_t len = strlen(dir);
    if (!len || !path || strncmp(path, dir, len) != 0)
        return NULL;
    if (path[len] == 0)
        return "";
    return path[len] == '/' ? path + len + 1 : NULL;
}

static void remember(int fd, const char *name)
{
    if (fd < 0 || fd >= FDS)
        return;
    free(names[fd]);
    names[fd] = name ? strdup(name) : NULL;
}

static const char *name_of(int fd)
{
    return fd >= 0 && fd < FDS ? names[fd] : NULL;
}

/* ---- before and after an operation ------------------------------------------------------------------------------ */

static void put(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static void write_down(char op, const char *name, uint64_t number, const void *data, size_t len)
{
    unsigned char head[15];
    if (trace < 0)
        return;
    head[0] = (unsigned char)op;
    put(head + 1, strlen(name), 2);
    put(head + 3, number, 8);
    put(head + 11, len, 4);
    long done = syscall(SYS_write, trace, head, sizeof head);
    done += syscall(SYS_write, trace, name, strlen(name));
    if (len)
        done += syscall(SYS_write, trace, data, len);
    if (done != (long)(sizeof head + strlen(name) + len))
        abort(); /* half a record would be worse than none */
}

/* Counts the operation that is about to be made. False: it is to fail, errno set. */
static bool allowed(const char *name, bool needs_space)
{
    int saved = errno;
    if (exempt && strcmp(name, exempt) == 0)
        return true;
    counted++;
    if (kill_at && counted == kill_at) {
        syscall(SYS_kill, (int)getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (needs_space && (within(full, counted) || (full_while && syscall(SYS_access, full_while, F_OK) == 0))) {
        errno = ENOSPC;
        return false;
    }
    errno = saved;
    return true;
}

/* ---- the functions ---------------------------------------------------------------------------------------------- */

typedef int (*open_fn)(const char *, int, ...);

static int open_with(open_fn next, const char *path, int flags, mode_t mode)
{
    const char *name = inside(path);
    if (!name)
        return next(path, flags, mode);
    pthread_mutex_lock(&lock);
    bool creates = (flags & O_CREAT) && syscall(SYS_access, path, F_OK) != 0;
    int fd = -1;
    if (!(creates || (flags & O_TRUNC)) || allowed(name, creates)) {
        fd = next(path, flags, mode);
        if (fd >= 0)
            remember(fd, name);
        if (fd >= 0 && creates)
            write_down('C', name, 0, NULL, 0);
        if (fd >= 0 && !creates && (flags & O_TRUNC))
            write_down('T', name, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

SHIM int open(const char *path, int flags, ...)
{
    NEXT(open_fn, "open");
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_with(next, path, flags, mode);
}

SHIM int open64(const char *path, int flags, ...)
{
    NEXT(open_fn, "open64");
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_with(next, path, flags, mode);
}

typedef int (*close_fn)(int);

SHIM int close(int fd)
{
    NEXT(close_fn, "close");
    if (name_of(fd)) {
        pthread_mutex_lock(&lock);
        remember(fd, NULL);
        pthread_mutex_unlock(&lock);
    }
    return next(fd);
}

typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);

static ssize_t pwrite_with(pwrite_fn next, int fd, const void *data, size_t len, off_t at)
{
    if (!name_of(fd))
        return next(fd, data, len, at);
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    if (allowed(name_of(fd), true)) {
        done = next(fd, data, len, at);
        if (done > 0)
            write_down('W', name_of(fd), (uint64_t)at, data, (size_t)done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

SHIM ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    NEXT(pwrite_fn, "pwrite");
    return pwrite_with(next, fd, data, len, at);
}

SHIM ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at)
{
    NEXT(pwrite_fn, "pwrite64");
    return pwrite_with(next, fd, data, len, at);
}

SHIM ssize_t write(int fd, const void *data, size_t len)
{
    NEXT(write_fn, "write");
    if (!name_of(fd))
        return next(fd, data, len);
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    if (allowed(name_of(fd), true)) {
        done = next(fd, data, len);
        if (done > 0)
            write_down('W', name_of(fd), (uint64_t)(lseek(fd, 0, SEEK_CUR) - done), data, (size_t)done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

typedef int (*truncate_fn)(int, off_t);

static int truncate_with(truncate_fn next, int fd, off_t size)
{
    if (!name_of(fd))
        return next(fd, size);
    struct stat now;
    pthread_mutex_lock(&lock);
    int failed = -1;
    if (allowed(name_of(fd), fstat(fd, &now) == 0 && size > now.st_size)) {
        failed = next(fd, size);
        if (!failed)
            write_down('T', name_of(fd), (uint64_t)size, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

SHIM int ftruncate(int fd, off_t size)
{
    NEXT(truncate_fn, "ftruncate");
    return truncate_with(next, fd, size);
}

SHIM int ftruncate64(int fd, off64_t size)
{
    NEXT(truncate_fn, "ftruncate64");
    return truncate_with(next, fd, size);
}

typedef int (*allocate_fn)(int, off_t, off_t);

/* Returns an error number, as posix_fallocate does. What it adds is recorded as growth. */
static int allocate_with(allocate_fn next, int fd, off_t at, off_t len)
{
    if (!name_of(fd))
        return next(fd, at, len);
    struct stat now;
    pthread_mutex_lock(&lock);
    int failed = ENOSPC;
    if (allowed(name_of(fd), true)) {
        bool grows = fstat(fd, &now) == 0 && at + len > now.st_size;
        failed = next(fd, at, len);
        if (!failed && grows)
            write_down('T', name_of(fd), (uint64_t)(at + len), NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

SHIM int posix_fallocate(int fd, off_t at, off_t len)
{
    NEXT(allocate_fn, "posix_fallocate");
    return allocate_with(next, fd, at, len);
}

SHIM int posix_fallocate64(int fd, off64_t at, off64_t len)
{
    NEXT(allocate_fn, "posix_fallocate64");
    return allocate_with(next, fd, at, len);
}

static int sync_with(close_fn next, int fd)
{
    if (!name_of(fd))
        return next(fd);
    pthread_mutex_lock(&lock);
    int failed = -1;
    if (allowed(name_of(fd), false)) {
        if (within(bad_sync, ++syncs)) {
            errno = EIO;
        } else {
            failed = next(fd);
            if (!failed)
                write_down(*name_of(fd) ? 'S' : 'D', name_of(fd), 0, NULL, 0);
        }
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

SHIM int fsync(int fd)
{
    NEXT(close_fn, "fsync");
    return sync_with(next, fd);
}

SHIM int fdatasync(int fd)
{
    NEXT(close_fn, "fdatasync");
    return sync_with(next, fd);
}

typedef int (*unlink_fn)(const char *);

SHIM int unlink(const char *path)
{
    NEXT(unlink_fn, "unlink");
    const char *name = inside(path);
    if (!name)
        return next(path);
    pthread_mutex_lock(&lock);
    int failed = -1;
    if (allowed(name, false)) {
        failed = next(path);
        if (!failed)
            write_down('U', name, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

typedef int (*rename_fn)(const char *, const char *);

SHIM int rename(const char *from, const char *to)
{
    NEXT(rename_fn, "rename");
    const char *name = inside(from), *target = inside(to);
    if (!name || !target)
        return next(from, to);
    pthread_mutex_lock(&lock);
    int failed = -1;
    if (allowed(name, false)) {
        failed = next(from, to);
        if (!failed)
            write_down('R', name, 0, target, strlen(target));
    }
    pthread_mutex_unlock(&lock);
    return failed;
}
