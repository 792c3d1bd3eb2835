/*
 * out.h - the two streams. Results go to stdout, everything else to stderr. A closed pipe on stdout ends the command
 * cleanly; any other failure to write there is an error. Progress is shown on terminals only.
 *
 * Every function may be called from any thread.
 */
#ifndef BQ_CLI_OUT_H
#define BQ_CLI_OUT_H

#include "cli.h"

/* Reads the options that concern output. Before it, the defaults hold. */
void out_setup(const cli_common *common);

/* ---- stdout -------------------------------------------------------------------------------------------------------- */

/* Appends to the buffer, or a whole line and its line feed. False when stdout takes no more: end the work. */
bool out_put(bq_str bytes);
bool out_line(bq_str line);
bool out_text(const char *text);
bool out_printf(const char *format, ...) BQ_PRINTF(1, 2);
/* Writes what is buffered. */
bool out_flush(void);
/* A line and the flush as one step: true when the line has been written. */
bool out_line_now(bq_str line);
/* Still writable, as far as is known. */
bool out_ok(void);
/* Flushes; the command's exit status: `status`, or CLI_IO when results were lost. */
int out_end(int status);
/* stdout is a terminal and people read it: a table is better than JSON lines. */
bool out_is_terminal(void);
/* Escape sequences around headings on stdout; "" when it is not coloured. */
const char *out_bold(void);
const char *out_plain(void);

/* ---- stderr -------------------------------------------------------------------------------------------------------- */

void out_error(const char *format, ...) BQ_PRINTF(1, 2);
void out_warn(const char *format, ...) BQ_PRINTF(1, 2); /* not with --quiet */
void out_note(const char *format, ...) BQ_PRINTF(1, 2); /* counts and summaries; not with --quiet */
void out_info(const char *format, ...) BQ_PRINTF(1, 2); /* with -v */
void out_hint(const char *format, ...) BQ_PRINTF(1, 2); /* "hint: try ..."; not with --quiet */
/* Prints an error of the library and returns its exit status. `what` may be NULL. */
int out_failure(const char *what, const bq_error *err);
/* Bytes of a handler's stderr, passed through. */
void out_stderr(const void *bytes, size_t len);
/* What the library may log. */
bq_logger out_logger(void);

/* From now on, until out_attach, nobody who says something waits for it to be written (the library's I/O thread must
 * not); handlers' own output does. */
void out_detach(void);
void out_attach(void);

/* Between the two files: all bytes, also into a descriptor that somebody else made non-blocking; 0 or an errno. */
int out_write_all(int fd, const char *bytes, size_t len);
void err_setup(const cli_common *common, bool color);

/* ---- progress ------------------------------------------------------------------------------------------------------ */

/* True when progress is to be drawn now: stderr is a terminal, a second has passed, and the last one is old. */
bool out_progress_due(void);
void out_progress(const char *format, ...) BQ_PRINTF(1, 2);
void out_progress_end(void);

#endif
