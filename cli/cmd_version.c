/* cmd_version.c - `bq version`: the command, the library that runs, and the transports built into it. */
#include "cli.h"
#include "out.h"
#include "text.h"

#include <string.h>

typedef struct version_values {
    cli_common common;
} version_values;

static void add_names(bq_buf *line, const char *(*name)(size_t index))
{
    const char *text;
    buf_text(line, "[");
    for (size_t i = 0; (text = name(i)); i++) {
        if (i > 0)
            buf_text(line, ",");
        bq_json_add_string(line, bq_str_of(text));
    }
    buf_text(line, "]");
}

static const char *transport_name(size_t index)
{
    const bq_transport_ops *ops = bq_transport_at(index);
    return ops ? ops->name : NULL;
}

static const char *library_of(const bq_transport_ops *ops)
{
    bool has = ops->size >= offsetof(bq_transport_ops, library) + sizeof(ops->library);
    return has && ops->library ? ops->library() : NULL;
}

static void print_json(void)
{
    bq_buf line = {0};
    const bq_transport_ops *ops;
    json_object object = json_open(&line);
    json_text(&object, "version", BQ_STR(BQ_CLI_VERSION));
    json_text(&object, "library", bq_str_of(bq_version()));
    json_key(&object, "transports");
    add_names(&line, transport_name);
    json_key(&object, "not_built");
    add_names(&line, bq_transport_missing_at);
    json_key(&object, "libraries");
    json_object libraries = json_open(&line);
    for (size_t i = 0; (ops = bq_transport_at(i)); i++)
        if (library_of(ops))
            json_text(&libraries, ops->name, bq_str_of(library_of(ops)));
    json_close(&libraries);
    json_close(&object);
    out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    const version_values *v = values;
    const bq_transport_ops *ops;
    (void)verb, (void)operands, (void)count;
    if (v->common.json) {
        print_json();
        return CLI_DONE;
    }
    out_printf("bq %s (library %s)\n", BQ_CLI_VERSION, bq_version());
    out_text("transports:");
    for (size_t i = 0; (ops = bq_transport_at(i)); i++)
        out_printf(" %s%s%s%s", ops->name, library_of(ops) ? " (" : "", library_of(ops) ? library_of(ops) : "",
                   library_of(ops) ? ")" : "");
    out_text("\n");
    return CLI_DONE;
}

static const char *const text[] = {
    "Prints the version of the command and of the library it runs with, and the transports that are built in with the "
    "versions of their libraries. --json: one object with version, library, transports, not_built and libraries.",
    NULL};

const cli_verb cli_version = {.name = "version",
                              .operands = "",
                              .summary = "prints versions and the transports that are built in",
                              .text = text,
                              .values_size = sizeof(version_values),
                              .offline = true,
                              .run = run};
