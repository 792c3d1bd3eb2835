/*
 * inspect.c - judges a message body, a file or stdin, and reads what is in it: no broker, no threads.
 *
 *     ./inspect message.json
 */
#include <babelqueue/babelqueue.h>

#include <stdio.h>

static void print(const char *name, bq_str value)
{
    if (value.ptr) /* absent and empty are not the same */
        printf("%s: %.*s\n", name, (int)value.len, value.ptr);
}

/* The members of `data`, by a tape that is built only now that somebody asks. */
static bq_status print_data(const bq_envelope *envelope, bq_error *err)
{
    bq_json doc;
    bq_json_ref key, value;
    size_t it = 0;
    bq_str name;
    bq_json_init(&doc);
    bq_status status = bq_json_parse(&doc, bq_envelope_raw(envelope, BQ_FIELD_DATA), err);
    while (status == BQ_OK && bq_json_next(&doc, BQ_JSON_ROOT, &it, &key, &value)) {
        status = bq_json_text(&doc, key, &name, err); /* escapes resolved */
        if (status == BQ_OK) {
            bq_str raw = bq_json_raw(&doc, value); /* as it was received: 1.0 stays 1.0 */
            printf("  %.*s = %.*s\n", (int)name.len, name.ptr, (int)raw.len, raw.ptr);
        }
    }
    /* One value deep inside, by its RFC 6901 pointer. */
    print("first item", bq_json_raw(&doc, bq_json_pointer(&doc, BQ_JSON_ROOT, BQ_STR("/items/0/sku"))));
    bq_json_clear(&doc);
    return status;
}

int main(int argc, char **argv)
{
    FILE *in = argc > 1 ? fopen(argv[1], "rb") : stdin;
    char chunk[4096];
    size_t got;
    bq_buf body, scratch;
    bq_envelope envelope;
    bq_str text;
    bq_error err;

    if (!in) {
        perror(argv[1]);
        return 1;
    }
    bq_buf_init(&body, 1 << 20); /* no body above 1 MiB, please */
    bq_buf_init(&scratch, 0);
    while ((got = fread(chunk, 1, sizeof(chunk), in)) > 0)
        (void)bq_buf_add(&body, chunk, got); /* a failure is remembered in `failed` */
    if (in != stdin)
        fclose(in);
    bq_status status = body.failed ? BQ_DATA : BQ_OK;
    if (status == BQ_OK) {
        /* One pass, no allocation: the envelope is a set of views into the body. */
        bq_verdict verdict = bq_envelope_decode(&envelope, body.ptr, body.len);
        printf("verdict: %s\n", bq_verdict_name(verdict));
        if (verdict != BQ_VERDICT_OK)
            printf("reason: %s, at byte %zu\n", bq_envelope_reason(&envelope), envelope.error_offset);
        if (bq_envelope_text(&envelope, BQ_FIELD_URN, &scratch, &text) == BQ_OK)
            print("urn", text);
        print("id", bq_envelope_raw(&envelope, BQ_FIELD_META_ID));
        print("died of", bq_envelope_raw(&envelope, BQ_FIELD_DEAD_REASON));
        printf("attempts: %d\n", (int)bq_envelope_attempts(&envelope));
        if (verdict == BQ_VERDICT_OK)
            status = print_data(&envelope, &err);
        else
            status = BQ_DATA;
    }
    bq_buf_clear(&scratch);
    bq_buf_clear(&body);
    return bq_status_exit(status);
}
