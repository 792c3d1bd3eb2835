/*
 * scratch.h - places for SQLite files: directories of a test's own under $TMPDIR, removed again.
 */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[256];
static int scratch_count;

/* The directory, made at its first use. */
static inline const char *scratch_home(void)
{
    if (scratch_dir[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        (void)snprintf(scratch_dir, sizeof(scratch_dir), "%s/bq-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        if (!mkdtemp(scratch_dir))
            abort();
    }
    return scratch_dir;
}

/* The path of a file that does not exist yet. Valid until the next call. */
static inline const char *scratch_new(void)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/q%d.db", scratch_home(), ++scratch_count);
    return path;
}

/* "sqlite:PATH?options" */
static inline const char *scratch_url(char *url, size_t size, const char *path, const char *options)
{
    if ((size_t)snprintf(url, size, "sqlite:%s%s%s", path, *options ? "?" : "", options) >= size)
        abort();
    return url;
}

static inline void scratch_remove(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[1024];
    struct stat st;
    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= sizeof(path))
            abort();
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            scratch_remove(path);
        else
            (void)unlink(path);
    }
    if (d)
        closedir(d);
    (void)rmdir(dir);
}

static inline void scratch_clear(void)
{
    if (scratch_dir[0] != '\0')
        scratch_remove(scratch_dir);
    scratch_dir[0] = '\0';
}

#endif
