/*
 * fault_vfs.h - a disk that fails on demand: SQLite's default file system behind a shim that counts what is written
 * and lets chosen calls fail, in this process only.
 *
 *     fault_vfs_install();                              // before any connection is opened
 *     fault_vfs_fail(FAULT_SYNC, SQLITE_IOERR_FSYNC, 3, 1);   // the third sync from now on fails, once
 *     fault_vfs_fail(FAULT_NONE, 0, 0, 0);              // a good disk again
 */
#ifndef TESTS_FAULT_VFS_H
#define TESTS_FAULT_VFS_H

typedef enum fault_kind {
    FAULT_NONE = 0,
    FAULT_WRITE = 1 << 0, /* xWrite: log and database */
    FAULT_SYNC = 1 << 1,
    FAULT_READ = 1 << 2,
    FAULT_TRUNCATE = 1 << 3,
    FAULT_OPEN = 1 << 4,
} fault_kind;

void fault_vfs_install(void);
/* The `nth` call (from 1) of those kinds fails with `code`, and the `times - 1` ones after it; -1: all after it. */
void fault_vfs_fail(unsigned kinds, int code, long nth, long times);
/* How many calls failed since the last fault_vfs_fail. */
long fault_vfs_failed(void);
/* How many calls of those kinds there were since then. */
long fault_vfs_calls(void);

#endif
