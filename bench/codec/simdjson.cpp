// bench/codec/simdjson.cpp - simdjson's DOM as a contestant. It needs padding behind the body, so the body is copied
// into a padded buffer first, as a consumer that receives messages would have to.
#include "bench.h"

#include "simdjson.h"

namespace
{
void *open_parser(size_t largest)
{
    auto *parser = new simdjson::dom::parser;
    if (parser->allocate(largest + 1) != simdjson::SUCCESS)
        abort();
    return parser;
}

uint64_t run(void *state, const char *body, size_t len)
{
    auto *parser = static_cast<simdjson::dom::parser *>(state);
    simdjson::dom::element root;
    std::string_view job;
    if (parser->parse(body, len, true).get(root) != simdjson::SUCCESS || root["job"].get(job) != simdjson::SUCCESS)
        return 0;
    return job.size();
}
} // namespace

extern "C" const contestant bench_simdjson = {"simdjson DOM", open_parser, run};
