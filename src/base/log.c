/* log.c - formats a line that passed the level check and hands it to the program's function. Any thread. */
#include "base/log.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_SIZE 1024

void bq_log_write(const bq_logger *logger, bq_log_level level, const char *format, ...)
{
    if (!logger || !logger->fn || level > logger->level)
        return;
    char raw[LINE_SIZE], line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    if (n < 0)
        return;
    bool cut = (size_t)n >= sizeof raw;
    (void)bq_utf8_line(line, sizeof line, raw, cut ? sizeof raw - 1 : (size_t)n, cut);
    logger->fn(level, line, logger->arg);
}
