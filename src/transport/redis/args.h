/* redis/args.h - the arguments of one command: views of texts that live until it is formatted, and numbers. */
#ifndef BQ_REDIS_ARGS_H
#define BQ_REDIS_ARGS_H

#include <babelqueue/types.h>

typedef struct rd_args {
    const char **ptr; /* a NULL stands for bytes of `own`, at that offset in `off` */
    size_t *len;
    size_t *off;
    size_t count, cap;
    size_t bytes; /* of all of them, roughly as on the wire */
    bq_buf own;
    bool failed; /* out of memory */
} rd_args;

void bq_rd_args_init(rd_args *args);
void bq_rd_args_clear(rd_args *args);
void bq_rd_args_reset(rd_args *args);

void bq_rd_arg(rd_args *args, bq_str text); /* borrowed */
#define rd_arg_lit(args, literal) bq_rd_arg((args), BQ_STR(literal))
void bq_rd_arg_int(rd_args *args, int64_t value);
/* Two pieces as one argument, copied. */
void bq_rd_arg_join(rd_args *args, bq_str a, bq_str b);
/* An argument whose bytes the caller appends to args->own between the two. */
size_t bq_rd_arg_begin(rd_args *args);
void bq_rd_arg_end(rd_args *args, size_t begun);

/* The command as it goes onto the wire, to be freed by rd_format_free. NULL: out of memory. */
char *bq_rd_args_format(rd_args *args, size_t *len);
void bq_rd_format_free(char *text);

#endif
