/* fault_vfs.c - see fault_vfs.h. One thread. */
#include "unit/transport/fault_vfs.h"

#include <sqlite3.h>
#include <string.h>

typedef struct shim_file {
    sqlite3_file base;
    sqlite3_file *real;
} shim_file;

static sqlite3_vfs shim, *below;
static unsigned wanted;
static int failure;
static long from, left, calls, failed;

void fault_vfs_fail(unsigned kinds, int code, long nth, long times)
{
    wanted = kinds;
    failure = code;
    from = nth;
    left = times;
    calls = failed = 0;
}

long fault_vfs_failed(void)
{
    return failed;
}

long fault_vfs_calls(void)
{
    return calls;
}

static int check(unsigned kind)
{
    if (!(wanted & kind) || ++calls < from || left == 0)
        return SQLITE_OK;
    if (left > 0)
        left--;
    failed++;
    return failure;
}

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((shim_file *)(void *)file)->real;
}

static int shim_close(sqlite3_file *file)
{
    sqlite3_file *real = real_of(file);
    return real->pMethods ? real->pMethods->xClose(real) : SQLITE_OK;
}

static int shim_read(sqlite3_file *file, void *to, int amount, sqlite3_int64 at)
{
    int code = check(FAULT_READ);
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xRead(real_of(file), to, amount, at);
}

static int shim_write(sqlite3_file *file, const void *bytes, int amount, sqlite3_int64 at)
{
    int code = check(FAULT_WRITE);
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xWrite(real_of(file), bytes, amount, at);
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int code = check(FAULT_TRUNCATE);
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int shim_sync(sqlite3_file *file, int flags)
{
    int code = check(FAULT_SYNC);
    return code != SQLITE_OK ? code : real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int shim_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int shim_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int shim_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int shim_check_lock(sqlite3_file *file, int *out)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int shim_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int shim_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int shim_device(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int shim_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, out);
}

static int shim_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}

static void shim_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int shim_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods methods = {.iVersion = 2,
                                           .xClose = shim_close,
                                           .xRead = shim_read,
                                           .xWrite = shim_write,
                                           .xTruncate = shim_truncate,
                                           .xSync = shim_sync,
                                           .xFileSize = shim_size,
                                           .xLock = shim_lock,
                                           .xUnlock = shim_unlock,
                                           .xCheckReservedLock = shim_check_lock,
                                           .xFileControl = shim_control,
                                           .xSectorSize = shim_sector,
                                           .xDeviceCharacteristics = shim_device,
                                           .xShmMap = shim_map,
                                           .xShmLock = shim_shm_lock,
                                           .xShmBarrier = shim_barrier,
                                           .xShmUnmap = shim_unmap};

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    shim_file *own = (shim_file *)(void *)file;
    (void)vfs;
    own->base.pMethods = NULL;
    int code = check(FAULT_OPEN);
    if (code != SQLITE_OK)
        return code;
    own->real = (sqlite3_file *)(void *)(own + 1);
    code = below->xOpen(below, name, own->real, flags, out);
    if (own->real->pMethods)
        own->base.pMethods = &methods;
    return code;
}

void fault_vfs_install(void)
{
    below = sqlite3_vfs_find(NULL);
    shim = *below;
    shim.zName = "fault";
    shim.szOsFile = (int)sizeof(shim_file) + below->szOsFile;
    shim.xOpen = shim_open;
    shim.pNext = NULL;
    (void)sqlite3_vfs_register(&shim, 1);
}
