/*
 * small_stack.c - deep nesting on a small stack: every function that walks JSON, called on a thread whose stack is
 * as small as the first argument says (KiB), on the body in the file that the second one names.
 *
 * Prints one line per function, "name: result", and ends with 0 when all of them returned; a function that recurses
 * with the nesting dies of a signal instead. tests/interop/test_field_cases.py says what the lines must be.
 */
#include <babelqueue/babelqueue.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    bq_str body;
    bool walked;
} job;

static const char *text_of(bq_status status)
{
    return bq_status_name(status);
}

static void envelope_functions(bq_str body)
{
    bq_envelope env;
    bq_error err;
    bq_buf out;
    bq_dead_letter dl = {.reason = BQ_REASON_FAILED, .original_queue = BQ_STR("q"), .attempts = 1};

    printf("decode: %s\n", bq_verdict_name(bq_envelope_decode(&env, body.ptr, body.len)));
    printf("reason: %s\n", bq_envelope_reason(&env));
    bq_buf_init(&out, 0);
    printf("retry: %s\n", text_of(bq_rewrite_attempts(&env, 1, &out, NULL, &err)));
    bq_buf_reset(&out);
    printf("record: %s\n", text_of(bq_record_envelope(&env, &dl, &out, NULL, &err)));
    bq_buf_reset(&out);
    printf("redrive: %s\n", text_of(bq_rewrite_redrive(&env, &out, NULL, &err)));
    bq_buf_reset(&out);
    printf("poison record: %s\n", text_of(bq_record_poison(&env, &dl, 0, &out, &err)));
    bq_buf_clear(&out);
}

static void json_functions(bq_str body)
{
    bq_json doc;
    bq_error err;
    bq_buf out;
    size_t members = 0, it = 0;
    bq_json_ref key, value;

    bq_json_init(&doc);
    bq_status status = bq_json_parse(&doc, body, &err);
    printf("parse: %s\n", text_of(status));
    if (status == BQ_OK) {
        while (bq_json_next(&doc, BQ_JSON_ROOT, &it, &key, &value))
            members++;
        printf("members: %zu\n", members);
    }
    bq_buf_init(&out, 0);
    printf("print: %s\n", text_of(bq_json_add_compact(&out, body, &err)));
    bq_buf_clear(&out);
    bq_json_clear(&doc);
    printf("free: OK\n");
}

static void *walk(void *arg)
{
    job *j = arg;
    envelope_functions(j->body);
    json_functions(j->body);
    j->walked = true;
    return NULL;
}

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0) {
        long size = ftell(f);
        rewind(f);
        if (size >= 0 && (bytes = malloc((size_t)size + 1)))
            *len = fread(bytes, 1, (size_t)size, f);
    }
    fclose(f);
    return bytes;
}

int main(int argc, char **argv)
{
    job j = {{NULL, 0}, false};
    pthread_attr_t attr;
    pthread_t thread;
    if (argc != 3)
        return 64;
    char *bytes = read_file(argv[2], &j.body.len);
    if (!bytes)
        return 66;
    j.body.ptr = bytes;
    if (pthread_attr_init(&attr) != 0 || pthread_attr_setstacksize(&attr, strtoul(argv[1], NULL, 10) * 1024) != 0) {
        fprintf(stderr, "small_stack: no such stack\n");
        free(bytes);
        return 71;
    }
    int failed = pthread_create(&thread, &attr, walk, &j);
    if (!failed)
        failed = pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    free(bytes);
    return failed || !j.walked;
}
